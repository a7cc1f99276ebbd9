"""Copy the records of finished studies into the repository, sorted and without traces.

    python paper_figs/collect.py DIR...      # directories that `nestopt study run` made

Writes ``records/STUDY.jsonl``, and the study's number of cells into ``records/cells.json``. A study
with cells that have no record is refused unless ``--partial`` is given; its captions then say so.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from figure_tools import CELLS, HERE, cells_of, compact

from nestopt.core.errors import NestoptError
from nestopt.core.io import write_json
from nestopt.study.directory import RECORDS, status
from nestopt.study.records import read_records


def main(arguments: list[str] | None = None) -> int:
    """Collect; 0, or 1 if something was refused."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directories", nargs="+", type=Path)
    parser.add_argument("--partial", action="store_true", help="take unfinished studies too")
    parser.add_argument("--records", type=Path, default=HERE / "records")
    options = parser.parse_args(arguments)
    options.records.mkdir(parents=True, exist_ok=True)
    refused = 0
    for directory in options.directories:
        try:
            state = status(directory)
            missing = {name: count for name, count in state.missing.items() if count}
            if missing:
                print(f"{directory}: no record of {missing}", file=sys.stderr)
                if not options.partial:
                    refused = 1
                    continue
            rows = read_records(directory / RECORDS).rows
            compact(rows, options.records / f"{state.name}.jsonl")
            cells = cells_of(options.records) | {state.name: state.cells}
            write_json(options.records / CELLS, dict(sorted(cells.items())))
        except NestoptError as error:
            print(error, file=sys.stderr)
            refused = 1
            continue
        print(f"{state.name}: {len(rows)} of {state.cells} cells")
    return refused


if __name__ == "__main__":
    sys.exit(main())
