"""Processor time of collective synthesis (warm): run with ``pytest tests/benchmarks -m benchmark``.

The limits are those that users were promised, on one core of a 2-core cloud machine; each case runs
a few times and the best counts.
"""

from __future__ import annotations

import time
from math import log
from typing import TYPE_CHECKING

import pytest

from nestopt.collective.greedy.bound import quick_bound
from nestopt.collective.greedy.solve import synthesize
from nestopt.collective.judge.check import check_schedule
from nestopt.collective.judge.check_steps import check_steps
from nestopt.collective.model.collective import Collective
from nestopt.collective.model.instance import CollectiveInstance
from nestopt.collective.model.of_result import in_columns
from nestopt.collective.model.steps import StepSchedule
from nestopt.collective.model.store import open_store, write_store
from nestopt.core.options import SolveOptions
from nestopt.core.registry import named

if TYPE_CHECKING:
    from nestopt.collective.model.store import AnySchedule

pytestmark = pytest.mark.benchmark


def timed(network: str, pattern: str, tries: int, **keys: str) -> tuple[float, AnySchedule]:
    """Best processor seconds of a few syntheses, and a schedule; its check is not timed."""
    topology = named("topology", network)
    problem = CollectiveInstance(topology, Collective.of(pattern, topology.npus.tolist()))
    best = float("inf")
    target = quick_bound(problem)["value"]
    for _ in range(tries):
        begin = time.process_time()
        schedule = synthesize(problem, SolveOptions(set=keys), target=target).schedule
        best = min(best, time.process_time() - begin)
    if isinstance(schedule, StepSchedule):
        check_steps(problem, schedule)
    else:
        check_schedule(problem, in_columns(problem, schedule))
    print(
        f"{network} {pattern}: {best:.3f} s, {schedule.num_sends} sends, "
        f"makespan {schedule.makespan_ps} ps, bound {target} ps"
    )
    return best, schedule


@pytest.mark.parametrize(
    ("network", "limit"),
    [
        ("mesh2d:16x16", 0.2),
        ("mesh2d:32x32", 1.0),
        ("torus2d:32x32", 2.0),
        ("mesh2d:64x64", 10.0),
        ("torus3d:8x8x8+log-uniform:0.5,2", 10.0),
        ("3d-rfs:2x4x64", 10.0),
        ("dgx-h100:64x8", 10.0),
    ],
)
def test_all_gather(network: str, limit: float) -> None:
    timed("mesh2d:16x16" if "mesh" in network else "ring:4", "all-gather", 1)
    seconds, _ = timed(network, "all-gather", 3)
    assert seconds <= limit


@pytest.mark.parametrize("network", ["torus3d:8x8x8", "torus3d:8x8x8+log-uniform:0.5,2"])
def test_all_to_all_of_512(network: str) -> None:
    timed("torus3d:2x2x2", "all-to-all", 1)
    seconds, _ = timed(network, "all-to-all", 1)
    assert seconds <= 60


def test_all_reduce() -> None:
    timed("mesh2d:4x4", "all-reduce", 1)
    seconds, schedule = timed("mesh2d:32x32", "all-reduce", 1)
    assert seconds <= 60
    assert schedule.makespan_ps <= 630 * 10**9


def test_growth_with_the_number_of_npus() -> None:
    """The number of sends grows with the square of the number of NPUs; so should the time."""
    points = [(n * n, timed(f"mesh2d:{n}x{n}", "all-gather", 2)[0]) for n in (16, 32, 64, 128)]
    exponent = log(points[-1][1] / points[0][1]) / log(points[-1][0] / points[0][0])
    print(f"growth exponent {exponent:.2f}: {points}")
    assert exponent <= 2.4


def test_40000_npus(tmp_path) -> None:
    """1.6e9 sends: synthesized, stored and checked in 15 min on 2 cores within 20 GiB."""
    from resource import RUSAGE_SELF, getrusage

    topology = named("topology", "mesh2d:200x200")
    problem = CollectiveInstance(topology, Collective.of("all-gather", 40_000))
    begin, used = time.perf_counter(), time.process_time()
    schedule = synthesize(problem, SolveOptions(threads=2), target=1).schedule
    synthesized = time.process_time() - used
    write_store(tmp_path / "s", schedule)
    del schedule
    read = open_store(tmp_path / "s")
    assert isinstance(read, StepSchedule)
    check_steps(problem, read, threads=2)
    seconds = time.perf_counter() - begin
    memory = getrusage(RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{seconds:.0f} s ({synthesized:.0f} s CPU to synthesize), {memory:.1f} GiB at most")
    assert read.num_steps == 20_000
    assert seconds <= 900
    assert memory <= 20
