"""The largest sizes at which the exact models prove the general space optimal: a table.

GPT-like models with the layers of a 7.5 B model (hidden size 4096) and a batch of 16, on nodes of
four A100 (the ``perlmutter`` clusters), all configurations offered, started from the dynamic
program's plan. A size is certified if the proof took at most the limit in CPU seconds of one
thread; wall-clock seconds are listed too, since other work on the machine stretches them. For each
number of devices the layers are raised until a size is not certified.

    python paper_figs/certified_sizes.py --devices 4 8 --layers 4 8 16 --limit 300
"""

from __future__ import annotations

import argparse
import time

from nestopt.options import SolveOptions
from nestopt.placement.problem import PlacementInstance
from nestopt.registry import get_method, named


def attempt(method: str, devices: int, layers: int, wall: float) -> dict[str, object]:
    """One run: how it ended, its gap, models built and seconds."""
    workload = named("workload", f"gpt3-7.5b,layers={layers},batch=16")
    cluster = named("cluster", f"perlmutter-{devices}")
    began, cpu = time.perf_counter(), time.process_time()
    result = get_method("placement", method)(
        PlacementInstance(workload, cluster), SolveOptions(space="general", time_limit=wall)
    )
    return {
        "method": method,
        "devices": devices,
        "layers": layers,
        "ended": result.termination.reason.value,
        "objective": "-" if result.objective is None else f"{result.objective:.6f}",
        "gap": "-" if result.gap is None else f"{result.gap:.1e}",
        "models": f"{result.stats['models']} of {result.stats['scenarios']}",
        "CPU s": round(time.process_time() - cpu, 1),
        "wall s": round(time.perf_counter() - began, 1),
    }


def main() -> None:
    """Print the table, a row as soon as it is known."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--methods", nargs="+", default=["cpsat", "milp"])
    parser.add_argument("--devices", nargs="+", type=int, default=[4, 8, 16])
    parser.add_argument("--layers", nargs="+", type=int, default=[4, 8, 16, 32])
    parser.add_argument("--limit", type=float, default=300.0, help="CPU seconds")
    parser.add_argument("--patience", type=float, default=2.0, help="wall-clock limit / limit")
    args = parser.parse_args()
    printed = False
    for method in args.methods:
        for devices in args.devices:
            for layers in args.layers:
                row = attempt(method, devices, layers, args.limit * args.patience)
                if not printed:
                    print("| " + " | ".join(row) + " |\n" + "|---" * len(row) + "|")
                    printed = True
                print("| " + " | ".join(str(v) for v in row.values()) + " |", flush=True)
                if row["ended"] != "optimal" or float(str(row["CPU s"])) > args.limit:
                    break


if __name__ == "__main__":
    main()
