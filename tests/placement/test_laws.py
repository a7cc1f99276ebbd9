"""Metamorphic laws of the optimum: what a change of the instance may and may not do to it.

A law about added devices holds for devices behind the last one. In the structured space a repaired
device in the middle of the line splits the runs it lies in, so that the optimum may rise; in the
general space, and for its bound, repairs never hurt.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from random_instances import TinyInstance, tiny_instance
from sampling import slow
from truth import general_optimum, search

from nestopt.placement.judge.check import price
from nestopt.placement.model.cluster import Cluster, DeviceType, Level, Override
from nestopt.placement.model.instance import PlacementInstance
from nestopt.placement.model.plan import Plan
from nestopt.placement.model.workload import Edge, Operator, Tied, Workload

if TYPE_CHECKING:
    from collections.abc import Callable

    Law = Callable[[TinyInstance, np.random.Generator], TinyInstance]

SEEDS = range(8)
MORE = range(30)
BY_DEFAULT = pytest.mark.parametrize("seeds", [SEEDS, *slow([MORE])], ids=len)


def draw(seed: int, **size: int) -> tuple[TinyInstance, np.random.Generator]:
    rng = np.random.default_rng(seed)
    return tiny_instance(rng, **({"devices": 5, "operators": 4, "modes": 1} | size)), rng


def optimum(tiny: TinyInstance) -> float:
    found = search(tiny)
    assert found.limit is None
    return found.objective


def with_cluster(tiny: TinyInstance, **changes: object) -> TinyInstance:
    return replace(tiny, cluster=replace(tiny.cluster, **changes))  # type: ignore[arg-type]


def with_operators(tiny: TinyInstance, operators: list[Operator]) -> TinyInstance:
    return replace(tiny, workload=replace(tiny.workload, operators=tuple(operators)))


# --- changes for the worse ----------------------------------------------------------------------


def slower_level(tiny: TinyInstance, rng: np.random.Generator) -> TinyInstance:
    levels = list(tiny.cluster.levels)
    index = int(rng.integers(len(levels)))
    slow = float(rng.uniform(1, 50))
    figure = str(rng.choice(["port", "uplink", "latency"]))
    value = getattr(levels[index], figure)
    value = value * slow if figure == "latency" else value / slow
    levels[index] = replace(levels[index], **{figure: value})
    return with_cluster(tiny, levels=tuple(levels))


def slower_group(tiny: TinyInstance, rng: np.random.Generator) -> TinyInstance:
    cluster = tiny.cluster
    level = int(rng.integers(len(cluster.levels)))
    group = int(rng.integers(len(cluster.sizes[level])))
    slow = float(rng.uniform(1, 50))
    last = level == len(cluster.levels) - 1
    worse = Override(
        level,
        group,
        float(cluster.latency[level, group]) * slow,
        float(cluster.port[level, group]) / slow,
        None if last else float(cluster.uplink[level, group]) / slow,
    )
    return with_cluster(tiny, overrides=(*cluster.overrides, worse))


def own_type(tiny: TinyInstance, device: int, **changes: float) -> TinyInstance:
    """The device gets a type of its own, a copy but for the changes."""
    cluster = tiny.cluster
    old = cluster.types[int(cluster.type_of[device])]
    type_of = cluster.type_of.copy()
    type_of[device] = len(cluster.types)
    copy = replace(old, name="a type of its own", **changes)

    def measured(times: dict[str, float]) -> dict[str, float]:
        return times | {copy.name: times[old.name]} if old.name in times else times

    operators = [
        replace(o, time_fwd=measured(dict(o.time_fwd)), time_bwd=measured(dict(o.time_bwd)))
        for o in tiny.workload.operators
    ]
    changed = with_cluster(tiny, types=(*cluster.types, copy), type_of=type_of)
    return with_operators(changed, operators)


def less_memory(tiny: TinyInstance, rng: np.random.Generator) -> TinyInstance:
    device = int(rng.choice(tiny.cluster.alive))
    kind = tiny.cluster.types[int(tiny.cluster.type_of[device])]
    return own_type(tiny, device, memory=kind.memory * float(rng.uniform(0, 0.9)))


def less_memory_everywhere(tiny: TinyInstance, rng: np.random.Generator) -> TinyInstance:
    left = float(rng.uniform(0.5, 1))
    types = [replace(t, memory=t.memory * left) for t in tiny.cluster.types]
    return with_cluster(tiny, types=tuple(types))


_WORK = (
    "flops", "flops_attn", "bytes_full", "bytes_shard", "bytes_attn", "params", "params_expert",
    "act_full", "act_shard", "act_attn", "act_input", "tp_bytes", "cp_bytes", "ep_bytes",
    "logits_bytes",
)  # fmt: skip


def more_work(tiny: TinyInstance, rng: np.random.Generator) -> TinyInstance:
    kind = tiny.workload.operators[int(rng.integers(tiny.workload.num_operators))]
    chosen = rng.choice(_WORK, size=3, replace=False).tolist()
    grown = {name: getattr(kind, name) * float(rng.uniform(1, 5)) for name in chosen}
    slower = float(rng.uniform(1, 5))
    grown["time_fwd"] = {k: v * slower for k, v in kind.time_fwd.items()}
    operators = [replace(o, **grown) if o.kind == kind.kind else o for o in tiny.workload.operators]
    return with_operators(tiny, operators)


def more_to_send(tiny: TinyInstance, rng: np.random.Generator) -> TinyInstance:
    grow = rng.uniform(1, 20, size=len(tiny.workload.edges)).tolist()
    edges = tuple(replace(e, bytes=e.bytes * g) for e, g in zip(tiny.workload.edges, grow))
    return replace(tiny, workload=replace(tiny.workload, edges=edges))


def another_operator(tiny: TinyInstance, rng: np.random.Generator) -> TinyInstance:
    # Without experts: an expert degree is only offered where experts are, so more of them could
    # open configurations.
    count = tiny.workload.num_operators
    extra = Operator(
        "one more", flops=1e11, params=1e7, act_full=1e7, tensor_divides=(12,), context_divides=12
    )
    edge = Edge(int(rng.integers(count)), count, 1e6)
    workload = replace(
        tiny.workload,
        operators=(*tiny.workload.operators, extra),
        edges=(*tiny.workload.edges, edge),
    )
    return replace(tiny, workload=workload)


def smaller_space(tiny: TinyInstance, rng: np.random.Generator) -> TinyInstance:
    key, value = [
        ("layout", "inner"), ("layout", "outer"), ("uniform", "true"), ("tensor", "1"),
        ("sequence", "0"), ("replicas", "1"), ("microbatch", "1"),
    ][int(rng.integers(7))]  # fmt: skip
    if key in tiny.options and value not in tiny.options[key].split(",") and key != "uniform":
        return tiny
    return replace(tiny, options=tiny.options | {key: value})


WORSE = [
    slower_level, slower_group, less_memory, less_memory_everywhere, more_work, more_to_send,
    another_operator, smaller_space,
]  # fmt: skip


@BY_DEFAULT
@pytest.mark.parametrize("law", WORSE, ids=lambda law: law.__name__)
def test_the_optimum_never_falls(law, seeds):
    risen = 0
    for seed in seeds:
        tiny, rng = draw(seed)
        before, after = optimum(tiny), optimum(law(tiny, rng))
        assert after >= before * (1 - 1e-9), f"seed {seed}: {before} fell to {after}"
        risen += after > before * (1 + 1e-9)
    assert risen > 0  # else the law was tried where it says nothing


# --- changes for the better ---------------------------------------------------------------------


def device_behind_the_last(tiny: TinyInstance, rng: np.random.Generator) -> TinyInstance:
    """In a group of its own on every level but the outermost."""
    cluster = tiny.cluster
    sizes = (*((*row, 1) for row in cluster.sizes[:-1]), (cluster.num_devices + 1,))
    kind = int(rng.integers(len(cluster.types)))
    return with_cluster(tiny, sizes=sizes, type_of=np.append(cluster.type_of, kind))


@BY_DEFAULT
def test_an_added_device_never_raises_the_optimum(seeds):
    fallen = 0
    for seed in seeds:
        tiny, rng = draw(seed)
        before, after = optimum(tiny), optimum(device_behind_the_last(tiny, rng))
        assert after <= before * (1 + 1e-9), f"seed {seed}: {before} rose to {after}"
        fallen += after < before * (1 - 1e-9)
    assert fallen > 0


def test_a_repair_in_the_middle_may_raise_the_optimum_of_the_structured_space():
    """Why the law of added devices asks for one behind the last."""
    good, bad = (DeviceType(name, 1e14, size, 1e12) for name, size in (("good", 1e12), ("bad", 1)))
    cluster = Cluster.regular(
        "three", (3,), (Level("node", 1e-9, 1e12),), (good, bad), type_of=(0, 1, 0), failed=(1,)
    )
    block = Operator("block", flops=1e12, params=1e6, tensor_divides=(2,))
    options = {"tensor": "1,2"}
    failed = TinyInstance(Workload.chain("one", [block], 0.0, 1), cluster, "bottleneck", options)
    assert optimum(failed) < 0.6 * optimum(repaired(failed)) < math.inf


def repaired(tiny: TinyInstance) -> TinyInstance:
    return with_cluster(tiny, failed=tiny.cluster.failed[1:])


@pytest.mark.parametrize("count", [16, *slow([60])])
def test_a_repair_never_raises_the_bound_of_the_general_space(count):
    fallen = tried = 0
    for seed in range(count):
        tiny, _ = draw(seed)
        if not tiny.cluster.failed:
            continue
        tried += 1
        before, after = search(tiny).general_bound, search(repaired(tiny)).general_bound
        assert after <= before * (1 + 1e-9), f"seed {seed}: {before} rose to {after}"
        fallen += after < before * (1 - 1e-9)
    assert tried > count // 6 and fallen > 0


def test_a_repair_never_raises_the_general_optimum():
    tried = 0
    for seed in range(40):
        tiny, _ = draw(seed, devices=2, operators=2)
        if not tiny.cluster.failed:
            continue
        tried += 1
        before, after = general_optimum(tiny), general_optimum(repaired(tiny))
        assert after <= before * (1 + 1e-9), f"seed {seed}: {before} rose to {after}"
    assert tried > 5


# --- changes that change nothing ----------------------------------------------------------------


def other_names(tiny: TinyInstance, rng: np.random.Generator) -> TinyInstance:
    """Types, kinds, operators and levels renamed, the types also in another order."""
    cluster, workload = tiny.cluster, tiny.workload
    order = rng.permutation(len(cluster.types)).tolist()
    renamed = {t.name: f"chip {len(order) - i}" for i, t in enumerate(cluster.types)}
    types = tuple(replace(cluster.types[i], name=renamed[cluster.types[i].name]) for i in order)
    type_of = np.argsort(order)[cluster.type_of]
    kinds = {o.kind: f"z{-i}" for i, o in enumerate(workload.operators)}
    operators = tuple(
        replace(
            o,
            name=f"layer {workload.num_operators - i}",
            kind=kinds[o.kind],
            time_fwd={renamed[k]: v for k, v in o.time_fwd.items()},
            time_bwd={renamed[k]: v for k, v in o.time_bwd.items()},
        )
        for i, o in enumerate(workload.operators)
    )
    levels = tuple(replace(level, name="same name") for level in cluster.levels)
    return replace(
        tiny,
        workload=replace(workload, name="w", operators=operators),
        cluster=replace(cluster, name="c", types=types, type_of=type_of, levels=levels),
    )


def every_operator_a_kind(tiny: TinyInstance, rng: np.random.Generator) -> TinyInstance:
    return with_operators(tiny, [replace(o, kind=o.name) for o in tiny.workload.operators])


def other_topological_order(tiny: TinyInstance, rng: np.random.Generator) -> TinyInstance:
    workload = tiny.workload
    waiting = {i: set(p) for i, p in enumerate(workload.predecessors)}
    order: list[int] = []
    while waiting:
        pick = max(i for i, p in waiting.items() if not p)
        order.append(pick)
        del waiting[pick]
        for rest in waiting.values():
            rest.discard(pick)
    place = {old: new for new, old in enumerate(order)}
    edges = tuple(Edge(place[e.source], place[e.target], e.bytes) for e in workload.edges)
    operators = tuple(workload.operators[i] for i in order)
    tied = workload.tied
    if tied is not None:
        first, second = place[tied.first], place[tied.second]
        tied = Tied(first, second, tied.params)
    return replace(tiny, workload=replace(workload, operators=operators, edges=edges, tied=tied))


def a_copy_of_a_device(tiny: TinyInstance, rng: np.random.Generator) -> TinyInstance:
    return own_type(tiny, int(rng.choice(tiny.cluster.alive)))


def through_json(tiny: TinyInstance, rng: np.random.Generator) -> TinyInstance:
    read = PlacementInstance.from_json(tiny.instance.to_json())
    assert read == tiny.instance
    return replace(tiny, workload=read.workload, cluster=read.cluster)


def a_level_that_says_nothing(tiny: TinyInstance, rng: np.random.Generator) -> TinyInstance:
    """The innermost groups twice, the second time around the first, as fast and as wide."""
    cluster = tiny.cluster
    first = cluster.levels[0]
    inner = replace(first, uplink=1e50)
    overrides = tuple(replace(o, level=o.level + 1) for o in cluster.overrides)
    overrides += tuple(
        Override(0, o.group, o.latency, o.port) for o in cluster.overrides if o.level == 0
    )
    return with_cluster(
        tiny,
        levels=(inner, *cluster.levels),
        sizes=(cluster.sizes[0], *cluster.sizes),
        overrides=overrides,
    )


SAME = [
    other_names, every_operator_a_kind, other_topological_order, a_copy_of_a_device, through_json,
    a_level_that_says_nothing,
]  # fmt: skip


@BY_DEFAULT
@pytest.mark.parametrize("law", SAME, ids=lambda law: law.__name__)
def test_the_optimum_stays(law, seeds):
    for seed in seeds:
        tiny, rng = draw(seed)
        before, after = optimum(tiny), optimum(law(tiny, rng))
        assert after == pytest.approx(before, rel=1e-9), f"seed {seed}"


@pytest.mark.parametrize("count", [16, *slow([60])])
def test_the_order_of_equal_groups_does_not_move_the_general_bound(count):
    """Siblings change places with everything in them; the structured space may notice, not this."""
    moved = 0
    for seed in range(count):
        tiny, _ = draw(seed)
        cluster = tiny.cluster
        if len(cluster.levels) < 2 or len(cluster.sizes[-2]) < 2:
            continue
        mirrored = mirror(cluster)
        before, after = search(tiny), search(replace(tiny, cluster=mirrored))
        assert after.general_bound == pytest.approx(before.general_bound, rel=1e-9), f"seed {seed}"
        moved += 1
    assert moved > count // 12


def mirror(cluster: Cluster) -> Cluster:
    """The tree from right to left."""
    last = cluster.num_devices - 1
    return replace(
        cluster,
        type_of=cluster.type_of[::-1].copy(),
        sizes=tuple(row[::-1] for row in cluster.sizes),
        failed=tuple(last - i for i in cluster.failed),
        overrides=tuple(
            replace(o, group=len(cluster.sizes[o.level]) - 1 - o.group) for o in cluster.overrides
        ),
    )


@pytest.mark.parametrize("count", [10, *slow([30])])
def test_the_mirrored_tree_has_the_same_general_optimum(count):
    tried = 0
    for seed in range(count):
        tiny, _ = draw(seed, devices=3, operators=2)
        before = general_optimum(tiny)
        after = general_optimum(replace(tiny, cluster=mirror(tiny.cluster)))
        assert after == pytest.approx(before, rel=1e-9), f"seed {seed}"
        tried += math.isfinite(before)
    assert tried > count // 6


# --- scaling ------------------------------------------------------------------------------------


def twice_as_slow(tiny: TinyInstance) -> TinyInstance:
    cluster = tiny.cluster

    def half(value: float | None) -> float | None:
        return None if value is None else value / 2

    types = tuple(
        replace(t, peak=t.peak / 2, memory_bandwidth=t.memory_bandwidth / 2) for t in cluster.types
    )
    levels = tuple(Level(v.name, v.latency * 2, v.port / 2, v.uplink / 2) for v in cluster.levels)
    overrides = tuple(
        Override(o.level, o.group, None if o.latency is None else o.latency * 2, half(o.port),
                 half(o.uplink))
        for o in cluster.overrides
    )  # fmt: skip
    operators = [
        replace(
            o,
            time_fwd={k: 2 * v for k, v in o.time_fwd.items()},
            time_bwd={k: 2 * v for k, v in o.time_bwd.items()},
        )
        for o in tiny.workload.operators
    ]
    return with_operators(
        with_cluster(tiny, types=types, levels=levels, overrides=overrides), operators
    )


@BY_DEFAULT
def test_twice_as_slow_is_twice_the_optimum(seeds):
    for seed in seeds:
        tiny, _ = draw(seed)
        before, after = search(tiny), search(twice_as_slow(tiny))
        assert after.objective == pytest.approx(2 * before.objective, rel=1e-12), f"seed {seed}"
        assert after.general_bound == pytest.approx(2 * before.general_bound, rel=1e-12)


@BY_DEFAULT
def test_bytes_are_only_a_unit(seeds):
    """Twice the bytes of everything on twice the bandwidths and memory: the same optimum."""
    for seed in seeds:
        tiny, _ = draw(seed)
        cluster, workload = tiny.cluster, tiny.workload
        types = tuple(
            DeviceType(t.name, t.peak, 2 * t.memory, 2 * t.memory_bandwidth, t.efficiency,
                       t.half_flops, 2 * t.reserve)
            for t in cluster.types
        )  # fmt: skip
        levels = tuple(Level(v.name, v.latency, 2 * v.port, 2 * v.uplink) for v in cluster.levels)
        overrides = tuple(
            replace(o, port=o.port and 2 * o.port, uplink=o.uplink and 2 * o.uplink)
            for o in cluster.overrides
        )
        sizes = [name for name in _WORK if not name.startswith(("flops", "params"))]
        operators = tuple(
            replace(o, **{name: 2 * getattr(o, name) for name in sizes}) for o in workload.operators
        )
        doubled = replace(
            workload,
            operators=operators,
            edges=tuple(replace(e, bytes=2 * e.bytes) for e in workload.edges),
            bytes_weight=2 * workload.bytes_weight,
            bytes_gradient=2 * workload.bytes_gradient,
            bytes_optimizer=2 * workload.bytes_optimizer,
        )
        after = replace(
            tiny,
            workload=doubled,
            cluster=replace(cluster, types=types, levels=levels, overrides=overrides),
        )
        assert optimum(after) == pytest.approx(optimum(tiny), rel=1e-12), f"seed {seed}"


# --- JSON ---------------------------------------------------------------------------------------


@BY_DEFAULT
def test_plans_survive_json(seeds):
    for seed in seeds:
        tiny, _ = draw(seed)
        plan = search(tiny).plan
        if plan is None:
            continue
        read = Plan.from_json(plan.to_json())
        assert read.to_json() == plan.to_json()
        assert price(tiny.workload, tiny.cluster, read) == price(tiny.workload, tiny.cluster, plan)


def test_an_operator_with_experts_may_lower_the_optimum():
    """Why the law of added operators asks for one without experts.

    An expert degree splits the micro-batch of every operator of its stage, and is offered only
    where experts are.
    """
    plain = Operator("plain", flops=1e12)
    expert = Operator("expert", flops=1e6, experts=2)
    cluster = Cluster.regular(
        "two", (2,), (Level("node", 1e-9, 1e12),), (DeviceType("gpu", 1e14, 1e12, 1e12),)
    )
    options = {"expert": "1,2", "replicas": "1", "microbatch": "2", "tensor": "1"}
    alone = TinyInstance(Workload.chain("one", [plain], 1e3, 2), cluster, "bottleneck", options)
    both = replace(alone, workload=Workload.chain("two", [plain, expert], 1e3, 2))
    assert optimum(both) < 0.6 * optimum(alone)
