"""Seconds of ``dp`` over the whole plan space beside the menu ``default-1``: the cells of NEST.

Each cell is solved in a process of its own, in which a small job has loaded the kernels first, and
the CPU seconds are recorded. Cells that a record has are not run again.

    python paper_figs/full_space.py --devices 64 256     # run what is missing, print the table
    python paper_figs/full_space.py --devices            # only print the table
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

MODELS = ("bert-large", "gpt3-175b", "llama2-7b", "llama3-70b", "mixtral-8x7b")
NETWORKS = ("fattree-tpuv4", "h100-spineleaf")
SPACES = ("default-1", "full")
RECORDS = Path(__file__).parent / "records" / "full-space.jsonl"

_RUN = """
import json, sys, time
from nestopt import api
from nestopt.core.options import SolveOptions
from nestopt.placement.dp.solve import search_structured
job, on, space, limit = sys.argv[1:]
instance = api.instance(job, on, space=space)
search_structured(api.instance("bert-large", "dgx-h100-8", space=space), SolveOptions())
began = time.process_time()
found = search_structured(instance, SolveOptions(time_limit=float(limit)))
finite = found.objective < float("inf")
print(json.dumps({
    "workload": job, "cluster": on, "space": space, "label": instance.space.label,
    "cpu_seconds": round(time.process_time() - began, 2), "time_limit": float(limit),
    "objective": found.objective if finite else None, "bound": found.bound,
    "proved": found.limit is None,
}))
"""


def records() -> list[dict[str, Any]]:
    """What has been run."""
    if not RECORDS.exists():
        return []
    return [json.loads(line) for line in RECORDS.read_text().splitlines()]


def run(devices: list[int], limit: float) -> None:
    """Run the cells that no record has."""
    done = {(r["workload"], r["cluster"], r["space"]) for r in records()}
    for count in devices:
        for network in NETWORKS:
            for job in MODELS:
                for space in SPACES:
                    cell = (job, f"{network}-{count}", space)
                    if cell in done:
                        continue
                    command = [sys.executable, "-c", _RUN, *cell, str(limit)]
                    made = subprocess.run(command, capture_output=True, text=True, check=True)
                    with RECORDS.open("a") as file:
                        file.write(made.stdout.strip().splitlines()[-1] + "\n")


def table() -> str:
    """A row for each cell: CPU seconds and optimum over both spaces, and the slowdown."""
    found = {(r["workload"], r["cluster"], r["space"]): r for r in records()}
    lines = [
        "| workload | cluster | `default-1`: CPU s | s | whole space: CPU s | s "
        "| slowdown of `default-1` |",
        "|---|---|---|---|---|---|---|",
    ]
    for (job, on, space), menu in found.items():
        whole = found.get((job, on, "full"))
        if space != "default-1" or whole is None:
            continue
        row = [job, on]
        for record in (menu, whole):
            row.append(f"{record['cpu_seconds']:.1f}" + ("" if record["proved"] else " (limit)"))
            row.append("-" if record["objective"] is None else f"{record['objective']:.4g}")
        gain = "-"
        if menu["objective"] and whole["objective"]:
            gain = f"{100 * (menu['objective'] / whole['objective'] - 1):.1f} %"
        lines.append("| " + " | ".join([*row, gain]) + " |")
    return "\n".join(lines)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--devices", type=int, nargs="*", default=[64, 256])
    parser.add_argument("--limit", type=float, default=60.0, help="wall-clock seconds of a cell")
    asked = parser.parse_args()
    run(asked.devices, asked.limit)
    print(table())


if __name__ == "__main__":
    main()
