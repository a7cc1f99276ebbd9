"""Independent checker and event simulator; no solver's code."""
