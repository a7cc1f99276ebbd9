"""Plans after failures: what moves, what stays, and that nothing better was left aside."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest

from nestopt.core.errors import InputError, NestoptError
from nestopt.core.options import SolveOptions
from nestopt.core.registry import get_method, named
from nestopt.core.verify import verify
from nestopt.placement.model.instance import PlacementInstance
from nestopt.placement.model.plan import Plan, Stage, StageConfig
from nestopt.placement.model.space import PlanSpace
from nestopt.placement.replan.candidates import fewer_replicas, with_spares
from nestopt.placement.replan.moves import moves_between, renumbered
from nestopt.placement.replan.solve import failed_cluster, replan

WORKLOAD = named("workload", "gpt3-1.7b,layers=6,batch=24")
CLUSTER = named("cluster", "dgx-h100-16")
STATE = sum(o.params + o.params_expert for o in WORKLOAD.operators) * (
    WORKLOAD.bytes_weight + WORKLOAD.bytes_optimizer
)


def _plan(devices: list[int], *, replicas: int, tensor: int = 1, zero: int = 0) -> Plan:
    """Two stages of 4 operators; devices in order of stage, replica, rank."""
    rows = np.array(devices).reshape(2, replicas, tensor)
    config = StageConfig(tensor=(1, tensor, 1), zero=zero)
    return Plan(
        tuple(Stage(tuple(range(4 * q, 4 * q + 4)), config, rows[q]) for q in range(2)),
        replicas,
        1,
    )


def test_a_plan_that_stays_moves_nothing() -> None:
    for zero in range(4):
        plan = _plan(list(range(12)), replicas=3, tensor=2, zero=zero)
        moves = moves_between(plan, plan, WORKLOAD, set())
        assert moves.bytes == pytest.approx(0, abs=1)
        assert moves.devices == 0
        assert moves.lost == ()


@pytest.mark.parametrize(("zero", "copies"), [(0, (3, 3)), (1, (3, 1)), (2, (3, 1)), (3, (1, 1))])
def test_a_plan_on_other_devices_fetches_all_that_it_holds(zero, copies) -> None:
    old = _plan(list(range(6)), replicas=3, zero=zero)
    new = _plan(list(range(6, 12)), replicas=3, zero=zero)
    moves = moves_between(old, new, WORKLOAD, set())
    parameters = STATE / (WORKLOAD.bytes_weight + WORKLOAD.bytes_optimizer)
    whole = parameters * (copies[0] * WORKLOAD.bytes_weight + copies[1] * WORKLOAD.bytes_optimizer)
    assert moves.bytes == pytest.approx(whole, rel=1e-9)
    assert moves.kept == 0
    assert moves.devices == 6
    assert moves.most == pytest.approx(
        max(sum(WORKLOAD.operators[o].params for o in s.operators) for s in new.stages)
        * (copies[0] * WORKLOAD.bytes_weight + copies[1] * WORKLOAD.bytes_optimizer) / 3
    )  # fmt: skip


def test_a_wider_tensor_group_keeps_the_half_that_it_has() -> None:
    old = _plan([0, 1], replicas=1)
    new = _plan([0, 2, 1, 3], replicas=1, tensor=2)
    moves = moves_between(old, new, WORKLOAD, set())
    assert moves.kept == pytest.approx(STATE / 2)
    assert moves.bytes == pytest.approx(STATE / 2)


@pytest.mark.parametrize(
    ("replicas", "zero", "failed", "lost"),
    [
        (1, 0, {0}, tuple(range(4))),
        (1, 0, {1}, tuple(range(4, 8))),
        (2, 0, {0}, ()),
        (2, 0, {0, 1}, tuple(range(4))),
        (2, 1, {0}, tuple(range(4))),
        (2, 3, {3}, tuple(range(4, 8))),
    ],
)
def test_what_no_device_holds_any_more_comes_from_a_checkpoint(
    replicas, zero, failed, lost
) -> None:
    plan = _plan(list(range(2 * replicas)), replicas=replicas, zero=zero)
    other = _plan(list(range(8, 8 + 2 * replicas)), replicas=replicas, zero=zero)
    assert moves_between(plan, other, WORKLOAD, failed).lost == lost


@pytest.mark.parametrize("seed", range(6))
def test_replicas_are_numbered_for_the_fewest_bytes(seed) -> None:
    rng = np.random.default_rng(seed)
    old = _plan(rng.permutation(16)[:8].tolist(), replicas=4, zero=1)
    new = _plan(rng.permutation(16)[:8].tolist(), replicas=4, zero=int(rng.integers(1, 4)))
    best = min(
        moves_between(
            old,
            replace(
                new,
                stages=tuple(replace(s, devices=s.devices[list(order)]) for s in new.stages),
            ),
            WORKLOAD,
            set(),
        ).bytes
        for order in permutations(range(4))
    )
    made = renumbered(new, old, WORKLOAD, set())
    assert moves_between(old, made, WORKLOAD, set()).bytes == pytest.approx(best, rel=1e-9)
    assert best <= moves_between(old, new, WORKLOAD, set()).bytes + 1


def test_a_spare_of_the_same_node_is_taken_first() -> None:
    old = _plan([0, 1, 8, 9], replicas=2)
    plan = with_spares(old, CLUSTER.fail([1, 9]), {1, 9})
    assert plan is not None
    assert [s.devices.ravel().tolist() for s in plan.stages] == [[0, 2], [8, 10]]
    assert with_spares(_plan(list(range(16)), replicas=8), CLUSTER.fail([1]), {1}) is None


def test_replicas_that_are_whole_stay() -> None:
    old = _plan(list(range(8)), replicas=4)
    plans = dict(fewer_replicas(old, CLUSTER.fail([1]), WORKLOAD, {1}))
    assert list(plans) == ["3 of 4 replicas", "2 of 4 replicas", "1 of 4 replicas"]
    three = plans["3 of 4 replicas"]
    assert [s.devices.ravel().tolist() for s in three.stages] == [[0, 2, 3], [4, 6, 7]]


def test_failures_are_named_by_device_and_node() -> None:
    assert failed_cluster(CLUSTER, [3], [1]).failed == (3, *range(8, 16))
    with pytest.raises(InputError, match="99; dgx-h100-16 has devices 0 to 15"):
        failed_cluster(CLUSTER, [99], [])
    with pytest.raises(InputError, match="7; dgx-h100-16 has nodes 0 to 1"):
        failed_cluster(CLUSTER, [], [7])


@pytest.fixture(scope="module")
def placed():
    result = get_method("placement", "dp")(
        PlacementInstance(WORKLOAD, CLUSTER, PlanSpace.named("default-1")), SolveOptions()
    )
    verify(result)
    return result


@pytest.mark.parametrize(
    ("devices", "nodes"), [([5], []), ([0, 9], []), ([], [0]), (list(range(1, 16)), [])]
)
def test_the_chosen_plan_is_checked_and_no_candidate_is_better(placed, devices, nodes) -> None:
    found = replan(placed, devices, nodes)
    assert verify(found.result)
    gone = {*devices, *(d for n in nodes for d in range(8 * n, 8 * n + 8))}
    used = {int(d) for s in found.chosen.plan.stages for d in s.devices.ravel()}
    assert not gone & used
    least = min(c.seconds for c in found.candidates)
    assert found.chosen.seconds == pytest.approx(least, rel=1e-9)
    assert found.result.objective == pytest.approx(found.chosen.seconds, rel=1e-9)
    assert found.chosen.seconds >= found.old_seconds * (1 - 1e-9)
    equal = [c for c in found.candidates if c.seconds <= least * (1 + 1e-9)]
    assert found.chosen.moves.bytes == min(c.moves.bytes for c in equal)


def test_a_short_horizon_prefers_what_moves_little(placed) -> None:
    long = replan(placed, [5], horizon=10**9).chosen
    short = replan(placed, [5], horizon=1e-6).chosen
    assert short.fetch <= long.fetch
    assert short.seconds >= long.seconds


def test_nothing_left_is_said(placed) -> None:
    with pytest.raises(NestoptError, match="no plan fits on what is left"):
        replan(placed, range(16))


def test_a_schedule_is_made_anew_for_the_survivors() -> None:
    from nestopt.collective.model.instance import CollectiveInstance
    from nestopt.collective.model.survivors import survivors

    topology = named("topology", "mesh2d:3x3")
    job = named("collective", "all-gather").on(topology)
    left = survivors(CollectiveInstance(topology, job), [4])
    assert left.collective.parts[0].npus.tolist() == list(range(8))
    assert left.topology.num_nodes == 8
    result = get_method("collective", "greedy")(left, SolveOptions())
    assert verify(result)
    rooted = named("collective", "broadcast:root=4").on(topology)
    with pytest.raises(InputError, match="the root 4 has failed"):
        survivors(CollectiveInstance(topology, rooted), [4])
