"""Starts of the dynamic program: small spaces around a plan, each inside the whole one."""

from __future__ import annotations

from nestopt.core.options import SolveOptions
from nestopt.core.registry import get_method, named
from nestopt.placement.dp.descent import around
from nestopt.placement.model.instance import PlacementInstance
from nestopt.placement.model.space import PlanSpace
from nestopt.placement.model.words import ALL

WORKLOAD = named("workload", "gpt3-1.7b,layers=4,batch=8")
CLUSTER = named("cluster", "dgx-h100-4")


def _best(space: PlanSpace):
    result = get_method("placement", "dp")(
        PlacementInstance(WORKLOAD, CLUSTER, space), SolveOptions(time_limit=60)
    )
    assert result.objective == result.bound
    return result


def test_every_space_around_a_plan_has_it_and_opens_something() -> None:
    whole = PlanSpace()
    plan = _best(PlanSpace.named("default-1")).solution
    found = list(around(plan, whole))
    assert len(found) > 4
    for fields, space in found:
        assert space.admits(plan, CLUSTER) is None, fields
        assert all(getattr(space, name) == getattr(whole, name) for name in fields)
        assert space != whole


def test_a_field_without_choice_is_not_opened_alone() -> None:
    closed = PlanSpace.parse("default-1 expert=1 zero=0 recompute=none")
    opened = [fields for fields, _ in around(_best(closed).solution, closed)]
    assert ("tensor", "sequence") in opened
    assert ("expert",) not in opened
    assert ("zero", "recompute") not in opened


def test_the_whole_space_is_never_worse_than_a_part() -> None:
    part = _best(PlanSpace.named("default-1"))
    whole = _best(PlanSpace())
    assert whole.objective <= part.objective * (1 + 1e-12)


def test_chunks_stay_all_without_interleaving() -> None:
    plan = _best(PlanSpace.named("default-1")).solution
    for fields, space in around(plan, PlanSpace()):
        if "chunks" not in fields:
            assert space.chunks is ALL
