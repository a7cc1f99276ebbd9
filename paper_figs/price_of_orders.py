"""What any order of the axes, and the search among all plans, leave of the price of structure.

On the instances of ``price-of-structure`` whose general optimum is proved: the best contiguous plan
(recorded), the best structured plan (``dp`` with any order of the axes), and what ``lns`` finds
from there, each as a slowdown, objective / general optimum - 1. Instances that have a record are
not run again.

    python paper_figs/price_of_orders.py            # run what is missing, print the table
    python paper_figs/price_of_orders.py --print    # only print the table
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from pathlib import Path
from statistics import mean
from typing import Any

from nestopt import api
from nestopt.core.errors import NestoptError

HERE = Path(__file__).parent / "records"
KNOWN, RECORDS = HERE / "price-of-structure.jsonl", HERE / "price-of-orders.jsonl"
SECONDS = 20.0
"""Wall-clock limit of ``lns``; it needs less where it meets its number of rounds."""


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def instances() -> list[dict[str, Any]]:
    """Instances with a contiguous plan and a proved general optimum: name, tree and both values."""
    best: dict[str, float] = {}
    usual: dict[str, dict[str, Any]] = {}
    for row in _lines(KNOWN):
        name = row["instance"]["name"]
        if row["termination"]["reason"] != "optimal" or row["objective"] is None:
            continue
        if row["method"] == "general":
            best[name] = row["objective"]
        elif row["method"] == "structured":
            usual[name] = {"tree": row["parameters"]["tree"], "contiguous": row["objective"]}
    return [
        {"instance": name, **row, "general": best[name]}
        for name, row in sorted(usual.items())
        if name in best
    ]


def run(part: int, parts: int) -> None:
    """Solve what has no record, every `parts`-th instance from `part`."""
    done = {row["instance"] for row in _lines(RECORDS)}
    for number, row in enumerate(instances()):
        if row["instance"] in done or number % parts != part:
            continue
        job, on = row["instance"].split(" on ")
        for method, space, limit in (
            ("dp", "default-1 structured", 60.0),
            ("lns", "default-1 general", SECONDS),
        ):
            began = time.process_time()
            found = api.solve(
                job, on, method=method, space=space, time_limit=limit, pricing="nestopt-1"
            )
            row[method] = found.objective
            row[f"{method}_cpu"] = round(time.process_time() - began, 2)
            if method == "dp" and str(found.termination.reason) != "optimal":
                raise NestoptError(f"{row['instance']}: not proved in {limit:g} s")
        with RECORDS.open("a") as file:
            file.write(json.dumps(row) + "\n")


def table() -> str:
    """Mean and worst slowdown by tree and in all, percent."""
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in _lines(RECORDS):
        groups[row["tree"]].append(row)
        groups["all"].append(row)
    lines = [
        "| tree | instances | contiguous: mean, worst % | any order: mean, worst % "
        "| lns: mean, worst % |",
        "|---|---|---|---|---|",
    ]
    for tree, rows in sorted(groups.items()):
        cells = [tree, str(len(rows))]
        for method in ("contiguous", "dp", "lns"):
            slow = [100 * (row[method] / row["general"] - 1) for row in rows]
            cells.append(f"{mean(slow):.2f}, {max(slow):.1f}")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--print", action="store_true", dest="only", help="run nothing")
    parser.add_argument("--part", type=int, default=0, help="this share of the instances ...")
    parser.add_argument("--parts", type=int, default=1, help="... of so many")
    asked = parser.parse_args()
    if not asked.only:
        run(asked.part, asked.parts)
    print(table())


if __name__ == "__main__":
    main()
