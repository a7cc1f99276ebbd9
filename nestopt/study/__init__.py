"""Studies: many (instance, method, seed) cells, run once, recorded line by line, reported.

`nestopt.study.spec` documents the specification (TOML), `nestopt.study.records` the records.
"""
