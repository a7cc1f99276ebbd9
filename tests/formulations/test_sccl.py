"""SCCL's question: the published feasible and infeasible rows, and timed schedules."""

from __future__ import annotations

import pytest

from nestopt.collective.judge.check import check_schedule
from nestopt.collective.model.collective import Collective
from nestopt.collective.model.instance import CollectiveInstance
from nestopt.collective.model.schedule import Schedule
from nestopt.core.errors import InputError, UsageError
from nestopt.core.options import SolveOptions
from nestopt.core.registry import named
from nestopt.core.result import Reason
from nestopt.formulations.collective.sccl import multiplicities, solve_sccl, step_outcome


def instance(name: str, pattern: str, chunks: int = 1) -> CollectiveInstance:
    topology = named("topology", name)
    return CollectiveInstance(
        topology, Collective.of(pattern, topology.npus, chunks_per_npu=chunks)
    )


ROWS = [
    ("dgx1v", "all-gather", 1, 2, 2, True),
    ("dgx1v", "all-gather", 2, 2, 3, True),
    ("dgx1v", "all-gather", 6, 3, 7, True),
    ("dgx1v", "all-gather", 3, 2, 4, False),
    ("dgx1v", "all-gather", 5, 2, 7, False),
    ("dgx1v", "all-to-all", 1, 2, 2, False),
    ("dgx1v", "all-to-all", 1, 2, 3, True),
    ("ring:8", "all-gather", 1, 4, 4, True),
    ("ring:8", "all-gather", 2, 4, 7, True),
    ("ring:8", "all-to-all", 1, 4, 8, True),
    ("ring:8", "all-to-all", 1, 4, 7, False),
]


@pytest.mark.parametrize(("name", "pattern", "chunks", "steps", "rounds", "feasible"), ROWS)
def test_published_rows(
    name: str, pattern: str, chunks: int, steps: int, rounds: int, feasible: bool
) -> None:
    problem = instance(name, pattern, chunks)
    outcome, sends, lengths = step_outcome(problem, steps, rounds, time_limit=120.0, threads=2)
    assert outcome.termination.reason is (Reason.OPTIMAL if feasible else Reason.INFEASIBLE)
    if not feasible:
        return
    # an independent reading of the answer
    assert len(lengths) == steps
    assert sum(lengths) == rounds
    width = multiplicities(problem)
    every = range(problem.collective.num_chunks)
    where = {(c, int(v)): 0 for c in every for v in problem.collective.pre(c)}
    for step in range(steps):
        load = dict.fromkeys(width, 0)
        arrived = {}
        for send in (s for s in sends if s.step == step):
            assert where.get((send.chunk, send.source), steps) <= step
            load[send.source, send.target] += 1
            arrived[send.chunk, send.target] = step + 1
        assert all(load[pair] <= width[pair] * lengths[step] for pair in width)
        for place, when in arrived.items():
            where.setdefault(place, when)
    for c in every:
        assert all((c, int(v)) in where for v in problem.collective.post(c))


def test_links_of_double_width_count_twice() -> None:
    assert multiplicities(instance("dgx1v", "all-gather"))[0, 1] == 2
    assert multiplicities(instance("dgx1v", "all-gather"))[0, 2] == 1


@pytest.mark.parametrize("pattern", ["all-gather", "reduce-scatter", "broadcast", "reduce"])
def test_method_gives_a_checked_schedule(pattern: str) -> None:
    problem = instance("ring:6", pattern)
    result = solve_sccl(problem, SolveOptions(set={"steps": "3", "rounds": "3"}))
    assert result.stats["answer"] == "feasible"
    schedule = Schedule.from_json(result.solution_json)
    check_schedule(problem, schedule)
    assert schedule.makespan_ps == result.objective == result.bound
    assert result.termination.reason is Reason.OPTIMAL


def test_too_few_steps_is_infeasible_for_that_reason() -> None:
    result = solve_sccl(
        instance("ring:6", "all-gather"), SolveOptions(set={"steps": "2", "rounds": "9"})
    )
    assert result.termination.reason is Reason.INFEASIBLE
    assert result.stats["answer"] == "infeasible"
    assert result.infeasible_because == ("no algorithm has 2 steps and 9 rounds",)


def test_bad_questions() -> None:
    problem = instance("ring:4", "all-gather")
    with pytest.raises(UsageError, match="--set rounds="):
        solve_sccl(problem, SolveOptions(set={"steps": "2"}))
    with pytest.raises(InputError, match="1 rounds for 2 steps"):
        step_outcome(problem, 2, 1)
    with pytest.raises(InputError, match="not both"):
        step_outcome(instance("ring:4", "all-reduce"), 2, 2)
