"""The checker accepts valid plans and results and rejects every single mutation of one."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest
from plan_cases import random_case, result_of, roomy, tiny_plan
from sampling import slow

from nestopt.core.errors import CheckError
from nestopt.core.io import sha256_of
from nestopt.core.result import Limit, Reason, Result, Termination
from nestopt.core.verdict import NotProvedError
from nestopt.placement.judge.check import (
    check_plan,
    check_result,
    check_structure,
    price,
    structured_layout,
)
from nestopt.placement.model.cluster import Cluster, DeviceType, Level
from nestopt.placement.model.plan import Plan, Stage, StageConfig
from nestopt.placement.model.workload import Edge, Operator, Workload


def with_stage(plan: Plan, index: int, **changes: object) -> Plan:
    stages = list(plan.stages)
    stages[index] = replace(stages[index], **changes)  # type: ignore[arg-type]
    return replace(plan, stages=tuple(stages))


def rejects(message: str, workload, cluster, plan, claimed=None, kind="iteration-time") -> None:
    with pytest.raises(CheckError, match=message):
        check_plan(workload, cluster, plan, claimed, kind)


def test_a_valid_plan_passes():
    workload, cluster, plan = tiny_plan()
    lines = check_plan(workload, cluster, plan, 125.3)
    assert "4 distinct devices, none failed; 0 alive ones stay idle" in lines
    assert "global batch 8 = 2 replicas x 4 micro-batches x 1 samples" in lines
    assert any("memory suffices" in line and "stage 0" in line for line in lines)
    assert check_plan(workload, cluster, plan, 24.2, "bottleneck")


@pytest.mark.parametrize("seed", [*range(50), *slow(range(50, 150))])
def test_random_valid_plans_pass(seed):
    workload, cluster, plan = random_case(
        np.random.default_rng(seed),
        ("1f1b", "gpipe", "interleaved"),
        decomposed=seed % 2 == 1,
    )
    cluster = roomy(cluster)
    objective = price(workload, cluster, plan).iteration_time
    check_plan(workload, cluster, plan, objective)
    for wrong in (objective * 1.01, objective * 0.99, objective * (1 + 1e-8)):
        rejects("iteration-time is .* is claimed", workload, cluster, plan, wrong)


# --- operators and order ------------------------------------------------------------------------


def test_operator_missing():
    workload, cluster, plan = tiny_plan()
    rejects(
        r"operator 3 \(b3\) is in no stage", workload, cluster, with_stage(plan, 1, operators=(2,))
    )


def test_operator_twice():
    workload, cluster, plan = tiny_plan()
    mutant = with_stage(plan, 1, operators=(1, 2, 3))
    rejects(r"operator 1 \(b1\) is in stage 0 and again in stage 1", workload, cluster, mutant)
    rejects("is in stage 0 and again", workload, cluster, with_stage(plan, 0, operators=(0, 1, 1)))


def test_operator_unknown():
    workload, cluster, plan = tiny_plan()
    rejects("operator 4; .* 0 to 3", workload, cluster, with_stage(plan, 1, operators=(2, 3, 4)))


def test_empty_stage():
    workload, cluster, plan = tiny_plan()
    mutant = with_stage(with_stage(plan, 0, operators=(0, 1, 2, 3)), 1, operators=())
    rejects("stage 1 has no operator", workload, cluster, mutant)
    rejects("no stage", workload, cluster, replace(plan, stages=()))


def test_stages_swapped():
    workload, cluster, plan = tiny_plan()
    mutant = replace(plan, stages=plan.stages[::-1])
    rejects(r"operator 2 \(b2\) in stage 0 needs operator 1 \(b1\)", workload, cluster, mutant)


def test_an_ideal_of_a_dag_that_is_none():
    edges = (Edge(0, 2, 1.0), Edge(1, 3, 1.0))
    workload = Workload("dag", tuple(Operator(n) for n in "abcd"), edges, 4)
    _, cluster, plan = tiny_plan()
    fine = with_stage(with_stage(plan, 0, operators=(1, 3)), 1, operators=(0, 2))
    check_structure(workload, cluster, fine)
    broken = with_stage(with_stage(plan, 0, operators=(1, 2)), 1, operators=(0, 3))
    rejects("needs operator 0", workload, cluster, broken)


# --- devices ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("devices", "message"),
    [
        ([[0], [3]], "device 0 is used by stage 0 and again by stage 1"),
        ([[2], [2]], "device 2 is used by stage 1 and again by stage 1"),
        ([[2], [4]], "device 4; the cluster has 0 to 3"),
        ([[2], [-1]], "device -1; the cluster has 0 to 3"),
        ([[2]], r"shape \(1, 1\); expected 2 replicas x 1 devices"),
        ([[2, 3]], r"shape \(1, 2\)"),
        ([[2], [3], [1]], r"shape \(3, 1\)"),
    ],
)
def test_devices(devices, message):
    workload, cluster, plan = tiny_plan()
    rejects(message, workload, cluster, with_stage(plan, 1, devices=np.array(devices)))


def test_failed_device():
    workload, cluster, plan = tiny_plan()
    rejects("stage 1 uses device 3, which has failed", workload, cluster.fail([3]), plan)


# --- batch, configuration, schedule -------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"microbatch": 3}, "global batch of 8 is no multiple of 2 replicas x micro-batch 3"),
        ({"microbatch": 8}, "no multiple"),
        ({"microbatch": 0}, "at least 1"),
        ({"replicas": 0}, "at least 1"),
        ({"replicas": 4}, "expected 4 replicas"),
        ({"schedule": "zero-bubble"}, "schedule 'zero-bubble'"),
        ({"chunks": 2}, "2 chunks a stage; 1f1b has 1"),
        ({"chunks": 0}, "0 chunks"),
        ({"schedule": "gpipe", "chunks": 2}, "gpipe has 1"),
        ({"schedule": "interleaved", "chunks": 3}, "stage 0 has 2 operators; 3 chunks"),
    ],
)
def test_batch_and_schedule(changes, message):
    workload, cluster, plan = tiny_plan()
    rejects(message, workload, cluster, replace(plan, **changes))


def test_interleaving_needs_whole_rounds():
    workload, cluster, plan = tiny_plan()
    mutant = replace(plan, schedule="interleaved", chunks=2)
    check_structure(workload, cluster, mutant)
    odd = workload.with_batch(6)
    rejects("3 micro-batches are no multiple of 2 stages", odd, cluster, mutant)


SPLIT = Operator("o", flops=1.0, tensor_divides=(4, 6), context_divides=6, experts=4)
WIDE = Cluster.regular(
    "wide", (64,), (Level("node", 1.0, 1.0),), (DeviceType("gpu", 1.0, 1e9, 1.0),)
)


@pytest.mark.parametrize(
    ("config", "operator", "message"),
    [
        (StageConfig((1, 4, 1)), SPLIT, "y = 4 does not divide 6"),
        (StageConfig((1, 2, 1)), replace(SPLIT, tensor_divides=()), "cannot be split by tensor"),
        (StageConfig(context=4), SPLIT, "context degree 4 does not divide 6"),
        (StageConfig(context=2), replace(SPLIT, context_divides=0), "cannot be split by context"),
        (StageConfig(expert=3), SPLIT, "expert degree 3 does not divide the 4 experts"),
        (StageConfig(expert=2), replace(SPLIT, experts=0), "without an operator that has experts"),
        (StageConfig(expert=4), SPLIT, "degree 4 times z = 1 does not divide the micro-batch of 6"),
        (StageConfig(sequence_parallel=True), SPLIT, "needs y > 1 and x = 1"),
        (StageConfig((1, 0, 1)), SPLIT, "at least 1"),
        (StageConfig(zero=4), SPLIT, "ZeRO stage 4"),
        (StageConfig(recompute="some"), SPLIT, "recompute 'some'"),
    ],
)
def test_configurations(config, operator, message):
    workload = Workload("one", (operator,), (), 12)
    devices = np.arange(max(1, config.width))[None, :]
    plan = Plan((Stage((0,), config, devices),), 1, 6)
    rejects(message, workload, WIDE, plan)


def test_degrees_that_divide_pass():
    config = StageConfig((1, 2, 1), 3, 2, True, 3, "full")
    workload = Workload("one", (SPLIT,), (), 12)
    plan = Plan((Stage((0,), config, np.arange(24).reshape(2, 12)),), 2, 6)
    check_plan(workload, WIDE, plan)
    # an operator without experts does not mind the expert degree of its stage
    plain = replace(SPLIT, name="plain", kind="plain", experts=0)
    workload = Workload("two", (SPLIT, plain), (), 12)
    check_plan(workload, WIDE, with_stage(plan, 0, operators=(0, 1)))


# --- memory -------------------------------------------------------------------------------------


def test_memory_to_the_byte():
    # stage 0 needs 448 bytes
    workload, cluster, plan = tiny_plan()
    kind = cluster.types[0]
    check_plan(workload, cluster.with_types([replace(kind, memory=448.0)]), plan)
    check_plan(workload, cluster.with_types([replace(kind, memory=460.0, reserve=12.0)]), plan)
    message = r"stage 0 needs 4.48e-07 GB, device 0 \(gpu\) has 4.47e-07 GB"
    rejects(message, workload, cluster.with_types([replace(kind, memory=447.0)]), plan)
    message = "has 4.6e-07 GB less 1.3e-08 GB reserved"
    small = cluster.with_types([replace(kind, memory=460.0, reserve=13.0)])
    rejects(message, workload, small, plan)


def test_memory_message_names_stage_and_device():
    types = (DeviceType("big", 1.0, 1e12, 1.0), DeviceType("h100", 1.0, 80e9, 1.0))
    cluster = Cluster.regular("two", (2,), (Level("node", 1.0, 1.0),), types, type_of=[0, 1])
    operators = [Operator("a"), Operator("b", params=91.2e9 / 18)]
    workload = Workload.chain("two", operators, 0.0, 1)
    stages = tuple(Stage((i,), StageConfig(), np.array([[i]])) for i in range(2))
    rejects(
        r"stage 1 needs 91.2 GB, device 1 \(h100\) has 80 GB", workload, cluster, Plan(stages, 1, 1)
    )


@pytest.mark.parametrize("seed", range(40))
def test_a_little_less_memory_than_needed_is_refused(seed):
    rng = np.random.default_rng(seed)
    workload, cluster, plan = random_case(rng, decomposed=seed % 2 == 1)
    need = max(s.memory for s in price(workload, cluster, plan).stages)
    if need == 0:
        pytest.skip("the plan needs no memory")
    enough = [replace(t, memory=need, reserve=0.0) for t in cluster.types]
    check_plan(workload, cluster.with_types(enough), plan)
    short = [replace(t, memory=need * (1 - 1e-6)) for t in enough]
    rejects("stage [0-9]+ needs", workload, cluster.with_types(short), plan)


# --- reported figures ---------------------------------------------------------------------------


def reported(plan: Plan, **columns: list[float]) -> Plan:
    rows = [dict(zip(columns, values)) for values in zip(*columns.values())]
    return replace(plan, report={"stages": rows})


def test_reported_figures():
    workload, cluster, plan = tiny_plan()
    good = {"seconds": [24.2, 24.2], "sync": [4.3, 4.3], "memory": [448.0, 434.0]}
    lines = check_plan(workload, cluster, reported(plan, **good))
    assert "the 6 figures that the plan reports of its stages agree" in lines
    check_plan(workload, cluster, replace(plan, report=good))
    for key, wrong, message in (
        ("memory", [448.0, 400.0], "stage 1 needs 434 bytes, but the plan reports 400"),
        ("seconds", [24.1, 24.2], "stage 0 takes 24.2 s"),
        ("sync", [4.3, 0.0], "stage 1 synchronises in 4.3 s"),
        ("memory", [448.0, 434.0, 1.0], "stage 2, which the plan does not have"),
        ("memory", ["much", 434.0], "reports 'much'"),
    ):
        mutant = replace(plan, report=good | {key: wrong})
        rejects(message, workload, cluster, mutant)
        if len(wrong) == 2:
            rejects(message, workload, cluster, reported(plan, **(good | {key: wrong})))


# --- results ------------------------------------------------------------------------------------


def test_a_valid_result_passes():
    case = tiny_plan()
    lines = check_result(result_of(*case))
    assert lines[0] == "the instance has the stated hash"
    feasible = Termination(Reason.FEASIBLE, Limit.TIME)
    check_result(result_of(*case, termination=feasible, bound=-np.inf))
    check_result(result_of(*case, termination=feasible, bound=100.0))
    found = result_of(*case, kind="bottleneck")
    assert found.objective == pytest.approx(24.2, rel=1e-12)
    check_result(found)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"objective": 125.3 * 1.01}, "iteration-time is 125.3 s, but 126.553 s is claimed"),
        ({"objective": 125.3 * 0.99, "bound": 100.0}, "124.047 s is claimed"),
        ({"bound": 125.4}, "bound 125.4 is above the objective"),
        ({"bound": np.nan}, "bound nan"),
        ({"bound": 125.0}, "optimal but its bound 125.0 is 0.239 % below"),
        ({"objective": None}, "no objective"),
        ({"solution_json": None}, "no solution"),
        ({"objective": np.inf}, "inf s is claimed"),
        ({"kind": "bottleneck"}, "bottleneck is 24.2 s"),
        ({"termination": Termination(Reason.INFEASIBLE)}, "infeasible but has a solution"),
        ({"instance": {"name": "x", "sha256": "0"}}, "does not hold its instance"),
    ],
)
def test_results(changes, message):
    workload, cluster, plan = tiny_plan()
    exact = {"objective": 125.3, "bound": 125.3} | changes
    with pytest.raises(CheckError, match=message):
        check_result(result_of(workload, cluster, plan, **exact))


def test_a_gap_that_was_asked_for_is_no_fault():
    settings = {"rel_gap": 0.01}
    check_result(result_of(*tiny_plan(), bound=125.0, settings=settings))


def test_an_instance_changed_after_the_hash():
    result = result_of(*tiny_plan())
    result.instance["data"]["workload"]["global_batch"] = 16
    with pytest.raises(CheckError, match=r"instance.sha256"):
        check_result(result)


def test_solution_of_another_form():
    for solution, message in (
        ({"schema": "nestopt.plan/1"}, "solution: replicas"),
        (tiny_plan()[2].to_json() | {"microbatch": "one"}, "solution: microbatch"),
    ):
        with pytest.raises(CheckError, match=message):
            check_result(result_of(*tiny_plan(), solution_json=solution))


def test_no_solution():
    workload, cluster, plan = tiny_plan()
    small = tuple(replace(kind, memory=kind.reserve + 1.0) for kind in cluster.types)
    case = workload, replace(cluster, types=small), plan
    empty = {"objective": None, "solution_json": None}
    infeasible = empty | {"termination": Termination(Reason.INFEASIBLE), "bound": np.inf}
    because = {"infeasible_because": ("memory: too little",)}
    assert check_result(result_of(*case, **infeasible, **because)).claimed
    with pytest.raises(CheckError, match="bound inf s, but a plan of 4 stages"):
        check_result(result_of(workload, cluster, plan, **infeasible, **because))
    with pytest.raises(NotProvedError, match="I say so"):
        check_result(result_of(*case, **infeasible, infeasible_because=("I say so",)))
    with pytest.raises(NotProvedError, match="names no search"):
        check_result(result_of(*case, **infeasible, **because, witness=None))
    with pytest.raises(CheckError, match="without saying"):
        check_result(result_of(*case, **infeasible))
    with pytest.raises(CheckError, match=r"its bound is 3\.0"):
        check_result(
            result_of(*case, **(infeasible | {"bound": 3.0}), infeasible_because=("memory",))
        )
    limited = Termination(Reason.NO_SOLUTION, Limit.TIME)
    lines = check_result(result_of(*case, **empty, termination=limited, bound=3.0))
    assert "the method found no plan (limit: time)" in lines.claimed
    with pytest.raises(CheckError, match="as if infeasible"):
        check_result(result_of(*case, **empty, termination=limited, bound=np.inf))


FORGED_CLAIMS = {
    "rel_gap inf": ({"bound": 1e-9, "settings": {"rel_gap": "inf"}}, r"rel_gap: 'inf'"),
    "rel_gap 1": ({"bound": 1e-9, "settings": {"rel_gap": 1.0}}, "rel_gap: 1.0"),
    "rel_gap null": ({"settings": {"rel_gap": None}}, "rel_gap: None"),
    "bound 0": ({"bound": 0.0}, "optimal but its bound"),
    "bound -inf": ({"bound": -np.inf}, "optimal but its bound"),
    "witness deleted": ({"witness": None}, "not proved"),
    "witness of unknown kind": ({"witness": {"kind": "faith", "bound": "x"}}, "not proved"),
    "witness without a source": ({"witness": {"relaxes": "nothing"}}, "not proved"),
    "general bound above": (
        {"witness": {"bound": "x", "general_bound": 126.0}}, "general_bound: 126.0 s for all"),
    "general bound as text": ({"witness": {"bound": "x", "general_bound": "1"}}, "general_bound"),
    "general bound in the stats": ({"stats": {"general_bound": 126.0}}, "general_bound: 126.0 s"),
}  # fmt: skip


@pytest.mark.parametrize("name", FORGED_CLAIMS)
def test_a_forged_claim_is_refused(name):
    assert check_result(result_of(*tiny_plan())).claimed
    changes, message = FORGED_CLAIMS[name]
    with pytest.raises(CheckError, match=message):
        check_result(result_of(*tiny_plan(), **changes))


def test_the_arithmetic_bound_is_verified_and_no_other():
    from nestopt.placement.bounds.general import compute_bound
    from nestopt.placement.judge.check.proofs import arithmetic_bound

    judged = 0
    for seed in range(30):
        workload, cluster, plan = random_case(np.random.default_rng(seed))
        if any(stage.config.hides for stage in plan.stages):
            continue
        judged += 1
        for kind in ("iteration-time", "bottleneck"):
            bound = compute_bound(workload, cluster, kind)["value"]
            assert arithmetic_bound(workload, cluster, kind) == pytest.approx(bound, rel=1e-12)
        feasible = Termination(Reason.FEASIBLE, Limit.TIME)
        least = arithmetic_bound(workload, cluster, "iteration-time")
        case = (workload, roomy(cluster), plan)
        proved = check_result(result_of(*case, termination=feasible, bound=least, witness=None))
        assert any("all arithmetic" in line for line in proved) == (least > 0)
        assert not proved.claimed
        with pytest.raises(NotProvedError):
            more = least * 1.001 + 1e-9
            check_result(result_of(*case, termination=feasible, bound=more, witness=None))
    assert judged >= 2


def test_more_chunks_than_operators():
    workload, cluster, plan = tiny_plan()
    absurd = replace(plan, schedule="interleaved", chunks=10**9)
    rejects("chunks need at least one each", workload, cluster, absurd)


# --- the structured space -----------------------------------------------------------------------


def test_layouts():
    _, _, plan = tiny_plan()
    eight = Cluster.regular(
        "eight", (2, 4), (Level("n", 1.0, 1.0, 1.0), Level("t", 1.0, 1.0)),
        (DeviceType("gpu", 1.0, 1e9, 1.0),),
    )  # fmt: skip

    def layout(first, second, failed=()):
        placed = with_stage(plan, 0, devices=np.array(first))
        placed = with_stage(placed, 1, devices=np.array(second))
        return structured_layout(eight.fail(failed), placed)

    assert layout([[0], [1]], [[2], [3]]) == "inner"
    assert layout([[0], [1]], [[5], [6]]) == "inner"  # idle devices between
    assert layout([[0], [2]], [[3], [4]], failed=[1]) == "inner"  # around a failed one
    assert layout([[0], [2]], [[3], [4]]) is None
    assert layout([[2], [3]], [[0], [1]]) is None  # against hierarchy order
    assert layout([[1], [0]], [[2], [3]]) is None
    assert layout([[0], [2]], [[4], [5]]) is None  # a hole
    assert layout([[0], [2]], [[1], [3]]) == "outer"  # windows of two
    assert layout([[0], [4]], [[1], [5]]) == "outer"  # windows of four, half idle
    assert layout([[1], [4]], [[2], [5]]) == "outer"  # windows of three
    assert layout([[1], [3]], [[2], [4]]) is None  # windows of two, but stage 1 lies outside
    assert layout([[0], [4]], [[1], [6]]) is None
    assert layout([[1], [6]], [[2], [7]]) is None  # two windows of five do not fit
    assert layout([[0], [3]], [[2], [4]], failed=[1]) == "outer"


def test_orders_of_axes():
    """A run dealt to replicas and tensor ranks in either order, and in none."""
    workload, _, plan = tiny_plan()
    workload = replace(workload, operators=tuple(
        replace(o, tensor_divides=(2,)) for o in workload.operators
    ))  # fmt: skip
    eight = Cluster.regular(
        "eight", (2, 4), (Level("n", 1e-6, 1e11, 1e11), Level("t", 1e-6, 1e11)),
        (DeviceType("gpu", 1e14, 1e12, 1e12),),
    )  # fmt: skip
    split = StageConfig((1, 2, 1))

    def verified(first, second, space):
        stages = zip(plan.stages, (first, second))
        placed = replace(plan, stages=tuple(
            replace(stage, config=split, devices=np.array(rows)) for stage, rows in stages
        ))  # fmt: skip
        return check_result(result_of(workload, eight, placed, space=space)).verified

    usual, turned = [[0, 1], [2, 3]], [[0, 2], [1, 3]]
    beyond = [[4, 5], [6, 7]]
    assert "the plan lies in the space 'full' (structured) (layout inner)" in verified(
        turned, beyond, "full"
    )
    assert "the plan lies in the space 'full' (contiguous) (layout inner)" in verified(
        usual, beyond, "full contiguous"
    )
    # windows of four: the ranks of a replica stay together
    verified([[0, 1], [4, 5]], [[2, 3], [6, 7]], "full")
    for rows, other, space, told in [
        (turned, beyond, "full contiguous", "stage 0 .*deals its devices|replicas of stage 0"),
        ([[0, 3], [1, 2]], beyond, "full", "each dealt to its axes in one order"),
        ([[1, 0], [3, 2]], beyond, "full", "each dealt to its axes in one order"),
        ([[2, 3], [0, 1]], beyond, "full", "each dealt to its axes in one order"),
        ([[0, 2], [4, 6]], [[1, 3], [5, 7]], "full", "each dealt to its axes in one order"),
        (beyond, turned, "full", "each dealt to its axes in one order"),
    ]:
        with pytest.raises(CheckError, match=told):
            verified(rows, other, space)


def test_a_plan_outside_the_space_is_refused():
    workload, cluster, plan = tiny_plan()
    lines = check_result(result_of(workload, cluster, plan, space="full"))
    assert "the plan lies in the space 'full' (structured) (layout inner)" in lines
    mutant = with_stage(plan, 0, devices=np.array([[1], [0]]))
    check_result(result_of(workload, cluster, mutant))
    with pytest.raises(CheckError, match=r"'full' \(structured\): structure: the stages are no"):
        check_result(result_of(workload, cluster, mutant, space="full"))


@pytest.mark.parametrize(
    ("space", "field"),
    [
        ("replicas=1", "replicas: 2; the space offers 1"),
        ("microbatch=2,4", "microbatch: 1; the space offers 2, 4"),
        ("schedule=gpipe,interleaved", "schedules: 1f1b; the space offers gpipe, interleaved"),
        ("tensor=2", "tensor: stage 0 has 1; the space offers 2"),
        ("context=2", "context: stage 0 has 1"),
        ("expert=2,4", "expert: stage 0 has 1"),
        ("zero=1", "zero: stage 0 has 0"),
        ("recompute=full", "recompute: stage 0 has none; the space offers full"),
        ("layout=outer", "layouts: inner; the space offers outer"),
    ],
)
def test_each_field_of_a_space_is_held(space, field):
    case = tiny_plan()
    check_result(result_of(*case, space="full"))
    with pytest.raises(CheckError, match=f"outside the space .*{field}"):
        check_result(result_of(*case, space=space))


def test_claim_of_uniformity():
    workload, cluster, plan = tiny_plan()
    check_result(result_of(workload, cluster, plan, space="uniform=true"))
    mutant = with_stage(plan, 1, config=StageConfig(zero=1))
    check_result(result_of(workload, cluster, mutant, space="uniform=false"))
    with pytest.raises(CheckError, match=r"2 configurations \(t1 z0, t1 z1\)"):
        check_result(result_of(workload, cluster, mutant, space="uniform=true"))


def test_a_result_of_schema_1_means_what_it_meant():
    """Its instance states no space; its settings do, beside ``default-1``."""
    workload, cluster, plan = tiny_plan()

    def old(plan: Plan, **settings: str) -> Result:
        result = result_of(workload, cluster, plan, settings=settings)
        data = {
            key: result.instance["data"][key] for key in ("problem", "name", "workload", "cluster")
        }
        data["schema"] = "nestopt.instance/1"
        result.instance |= {"data": data, "sha256": sha256_of(data)}
        return result

    lines = check_result(old(plan, space="structured"))
    assert "the plan lies in the space 'default-1' (contiguous) (layout inner)" in lines
    pipelined = replace(plan, schedule="gpipe")
    check_result(old(pipelined, schedule="gpipe"))
    with pytest.raises(CheckError, match="outside the space 'default-1'"):
        check_result(old(pipelined))
    with pytest.raises(CheckError, match="tensor: stage 0 has 1; the space offers 2"):
        check_result(old(plan, tensor="2"))


# --- size ---------------------------------------------------------------------------------------


def test_a_large_plan_is_checked_quickly():
    from nestopt.instances.clusters import by_name as cluster_of
    from nestopt.instances.workloads import by_name as workload_of

    workload, cluster = workload_of("llama3-405b"), cluster_of("h100-spineleaf-16384")
    config = StageConfig((1, 8, 1), sequence_parallel=True, zero=1, recompute="full")
    devices = np.arange(16384).reshape(64, 32, 8)
    parts = np.array_split(np.arange(workload.num_operators), 64)
    stages = tuple(Stage(tuple(part.tolist()), config, devices[q]) for q, part in enumerate(parts))
    start = time.process_time()
    check_plan(workload, cluster, Plan(stages, 32, 1))
    assert time.process_time() - start < 5  # 0.1 s when nothing else runs
