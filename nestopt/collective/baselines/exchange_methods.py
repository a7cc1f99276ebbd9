"""The methods ``one-shot``, ``recursive-doubling`` and ``mixed``: All-Reduce by copied sums."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from nestopt.collective.baselines.exchange import exchange_schedule
from nestopt.collective.bounds import best_bound
from nestopt.collective.greedy.solve import Synthesis, schedule_result
from nestopt.collective.judge.check import check_schedule
from nestopt.collective.model.connectivity import find_separation
from nestopt.core.errors import UsageError

if TYPE_CHECKING:
    from nestopt.collective.model.instance import CollectiveInstance
    from nestopt.core.options import SolveOptions
    from nestopt.core.result import Result

__all__ = ["solve_mixed", "solve_one_shot", "solve_recursive_doubling"]


def solve_one_shot(instance: CollectiveInstance, options: SolveOptions) -> Result:
    """Every NPU's contribution straight to every other."""
    return _solve("one-shot", instance, options)


def solve_recursive_doubling(instance: CollectiveInstance, options: SolveOptions) -> Result:
    """Exchanges of all that has been summed up, in log2(n) rounds; any number of NPUs."""
    return _solve("recursive-doubling", instance, options)


def solve_mixed(instance: CollectiveInstance, options: SolveOptions) -> Result:
    """The best mix by level; ``--set dims=4x8`` gives the levels, the outermost first."""
    return _solve("mixed", instance, options)


def _solve(name: str, instance: CollectiveInstance, options: SolveOptions) -> Result:
    begin = time.perf_counter()
    separation = find_separation(instance)
    if separation is not None:
        return schedule_result(instance, options, name, begin, None, infeasible=separation.message)
    if instance.sums != "copied":
        raise UsageError(f"{name} copies partial sums, but those of the instance only move")
    dims = None
    if "dims" in options.set:
        fields = options.set["dims"].split("x")
        if not all(field.isdigit() and int(field) > 0 for field in fields):
            raise UsageError(f"--set dims={options.set['dims']}: expected sizes, such as 4x8")
        dims = [int(field) for field in fields]
    schedule = exchange_schedule(instance, name, dims=dims)
    if schedule is None:
        patterns = sorted({part.pattern for part in instance.collective.parts})
        known = patterns == ["all-reduce"]
        why = "the instance is too large" if known else f"it has no form for {', '.join(patterns)}"
        raise UsageError(f"{name}: {why}")
    check_schedule(instance, schedule)
    bound = best_bound(instance, effort=5.0, time_limit=options.time_limit)
    synthesis = Synthesis(schedule, {"algorithm": name})
    return schedule_result(instance, options, name, begin, synthesis, bound=bound)
