"""The largest sizes that the exact models prove within a limit: a table of each problem.

*Placement*: the general space of GPT-like models with the layers of a 7.5 B model (hidden size
4096) and a batch of 16, on nodes of four A100 (the ``perlmutter`` clusters), all configurations
offered, started from the dynamic program's plan. For each number of devices the layers are raised.

*Collectives*: All-Gather, with no greedy schedule to start from, so that the solver finds the
optimum; with ``--bound none`` no bound either but the distances, so that it refutes the step below
too. Each family of networks is raised through its sizes (dgx1v: through chunks per NPU).

A size is certified if the proof took at most the limit in CPU seconds of one thread; wall-clock
seconds are listed too, since other work on the machine stretches them. A family ends at its first
size that is not certified.

    python paper_figs/certified_sizes.py                # both problems, hours
    python paper_figs/certified_sizes.py placement --devices 4 8 --layers 4 8 16 --limit 300
    python paper_figs/certified_sizes.py collective --families mesh2d torus2d
"""

from __future__ import annotations

import argparse
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from nestopt.core.options import SolveOptions
from nestopt.core.registry import get_method, named

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from nestopt.core.result import Result

    Case = tuple[dict[str, Any], Callable[[], tuple[str, Any, SolveOptions]]]

SQUARES = range(3, 13)
FAMILIES = {
    "mesh2d": [(f"mesh2d:{n}x{n}", 1) for n in SQUARES],
    "torus2d": [(f"torus2d:{n}x{n}", 1) for n in SQUARES],
    "mesh3d": [(f"mesh3d:{n}x{n}x{n}", 1) for n in (2, 3, 4)],
    "torus3d": [(f"torus3d:{n}x{n}x{n}", 1) for n in (3, 4)],
    "hypercube": [(f"hypercube:{n}", 1) for n in range(3, 9)],
    "ring": [(f"ring:{n}", 1) for n in (8, 16, 32, 48, 64, 80, 96, 112, 128)],
    "fat-tree": [(f"fat-tree:{n}", 1) for n in (2, 4, 6)],
    "dgx1v": [("dgx1v", chunks) for chunks in range(1, 17)],
}


def placement_cases(method: str, args: argparse.Namespace) -> Iterator[Iterator[Case]]:
    """For each number of devices, its cases with more and more layers."""

    def make(devices: int, layers: int) -> tuple[str, Any, SolveOptions]:
        from nestopt.placement.model.instance import PlacementInstance
        from nestopt.placement.model.space import PlanSpace

        workload = named("workload", f"gpt3-7.5b,layers={layers},batch=16")
        space = PlanSpace.parse("default-1 general")
        instance = PlacementInstance(workload, named("cluster", f"perlmutter-{devices}"), space)
        return "placement", instance, SolveOptions()

    for devices in args.devices:
        yield (
            (
                {"method": method, "devices": devices, "layers": layers},
                partial(make, devices, layers),
            )
            for layers in args.layers
        )


def collective_cases(method: str, args: argparse.Namespace) -> Iterator[Iterator[Case]]:
    """For each family of networks, its cases from small to large."""

    def make(name: str, chunks: int) -> tuple[str, Any, SolveOptions]:
        from nestopt.collective.model.collective import Collective
        from nestopt.collective.model.instance import CollectiveInstance

        network = named("topology", name)
        pattern = Collective.of("all-gather", network.npus, chunks_per_npu=chunks)
        settings = {"bound": args.bound, "incumbent": "none"}
        return "collective", CollectiveInstance(network, pattern), SolveOptions(set=settings)

    for family in args.families:
        yield (
            (
                {"method": method, "network": name, "chunks": chunks},
                partial(make, name, chunks),
            )
            for name, chunks in FAMILIES[family]
        )


def attempt(method: str, make: Callable[[], tuple[str, Any, SolveOptions]], wall: float) -> Any:
    """One run: its result, CPU seconds and wall-clock seconds."""
    from dataclasses import replace

    problem, instance, options = make()
    began, cpu = time.perf_counter(), time.process_time()
    options = replace(options, time_limit=wall, threads=1)
    result = get_method(problem, method)(instance, options)
    return result, time.process_time() - cpu, time.perf_counter() - began


def figures(result: Result, cpu: float, wall: float) -> dict[str, object]:
    """What a row says of a run."""
    objective = result.objective
    return {
        "ended": result.termination.reason.value,
        "objective": "-" if objective is None else f"{objective:.9g}",
        "bound": f"{result.bound:.9g}",
        "gap": "-" if result.gap is None else f"{result.gap:.1e}",
        "CPU s": round(cpu, 1),
        "wall s": round(wall, 1),
    }


def main() -> None:
    """Print a table of each problem, a row as soon as it is known."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "problem", nargs="?", choices=["placement", "collective", "both"], default="both"
    )
    parser.add_argument("--methods", nargs="+", default=["cpsat", "milp"])
    parser.add_argument("--devices", nargs="+", type=int, default=[4, 8, 16])
    parser.add_argument("--layers", nargs="+", type=int, default=[4, 8, 16, 32])
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    parser.add_argument("--bound", choices=["best", "none"], default="best")
    parser.add_argument("--limit", type=float, default=300.0, help="CPU seconds")
    parser.add_argument("--patience", type=float, default=2.0, help="wall-clock limit / limit")
    args = parser.parse_args()
    every = {"placement": placement_cases, "collective": collective_cases}
    for problem, cases in every.items():
        if args.problem in (problem, "both"):
            show(cases, args)


def show(cases: Callable[..., Iterator[Iterator[Case]]], args: argparse.Namespace) -> None:
    """The table of one problem."""
    printed = False
    for method in args.methods:
        for family in cases(method, args):
            for named_by, make in family:
                result, cpu, wall = attempt(method, make, args.limit * args.patience)
                row = named_by | figures(result, cpu, wall)
                if not printed:
                    print("| " + " | ".join(row) + " |\n" + "|---" * len(row) + "|")
                    printed = True
                print("| " + " | ".join(str(v) for v in row.values()) + " |", flush=True)
                if row["ended"] != "optimal" or cpu > args.limit:
                    break


if __name__ == "__main__":
    main()
