"""Rebuild every figure and table from the records: the same records give the same bytes.

    python paper_figs/make_all.py [--records DIR] [--output DIR]

What lacks its records is named on stderr and not drawn; the exit status is 1 only for an error.
"""

from __future__ import annotations

import argparse
import sys
import time
from importlib import import_module
from pathlib import Path

SCRIPTS = (
    "price_of_structure",
    "greedy_gap",
    "scale",
    "exact_backends",
    "nest_evaluation",
    "axonn_ranking",
    "time_growth",
)


def main(arguments: list[str] | None = None) -> int:
    """Build everything; 0, or 1 after an error."""
    try:
        from figure_tools import HERE, NoRecordsError, Paths

        from nestopt.core.errors import NestoptError
    except ModuleNotFoundError as error:
        print(f"{error}: pip install 'nestopt[plot]'", file=sys.stderr)
        return 1
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=Path, default=HERE / "records")
    parser.add_argument("--output", type=Path, default=HERE, help="of figures/ and tables/")
    options = parser.parse_args(arguments)
    failed = 0
    for name in SCRIPTS:
        paths = Paths(options.records, options.output / "figures", options.output / "tables")
        began = time.perf_counter()
        try:
            import_module(name).build(paths)
        except NoRecordsError as error:
            print(f"{name}: not drawn, {error}", file=sys.stderr)
            continue
        except NestoptError as error:
            print(f"{name}: {error}", file=sys.stderr)
            failed = 1
            continue
        print(f"{name} ({time.perf_counter() - began:.1f} s): {', '.join(paths.written)}")
    return failed


if __name__ == "__main__":
    sys.exit(main())
