"""Making tables of collectives: layouts, their networks, lines of schedules, whole tables."""

from __future__ import annotations

import heapq
import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from random_tables import layout_of
from sampling import slow

from nestopt.collective.greedy.solve import synthesize
from nestopt.collective.judge.check import check_schedule
from nestopt.collective.judge.simulate import simulate_schedule
from nestopt.collective.model.collective import Collective
from nestopt.collective.model.instance import CollectiveInstance
from nestopt.collective.model.of_result import in_columns
from nestopt.core.options import SolveOptions
from nestopt.core.registry import named
from nestopt.placement.dp.solve import solve
from nestopt.placement.model.cluster import Cluster, DeviceType, Level
from nestopt.placement.model.collective_table import CollectiveTable, Figures, Layout
from nestopt.placement.model.instance import PlacementInstance
from nestopt.placement.model.space import PlanSpace
from nestopt.placement.pricing.tables import layouts_on, make_table
from nestopt.placement.pricing.tables.lines import line_of, retimed
from nestopt.placement.pricing.tables.network import network_of_layout
from nestopt.placement.problem import PROBLEM

if TYPE_CHECKING:
    from nestopt.collective.model.topology import Topology

DEVICE = DeviceType("gpu", 1e15, 80e9, 3e12)
LEVELS = (
    Figures(1e-6, 100e9, 40e9),
    Figures(3e-6, 20e9, 30e9),
    Figures(2e-6, 10e9, math.inf),
)


def cluster_of(shape: tuple[int, ...]) -> Cluster:
    """An even tree with the figures above."""
    levels = [Level(f"l{i}", *figures) for i, figures in enumerate(LEVELS[: len(shape)])]
    levels[-1] = replace(levels[-1], uplink=math.inf)
    return Cluster.regular("small", shape, levels, [DEVICE])


LAYOUTS = [
    Layout((2,), ()),
    Layout((4,), ()),
    Layout((2, 2), (1,)),
    Layout((2, 2), (2,)),
    Layout((1, 2), (4,)),
    Layout((1, 1, 2), (2, 4)),
    Layout((2, 2, 2), (1, 1)),
    Layout((1, 2, 2), (2, 2)),
]


def instance_of(layout: Layout, pattern: str, chunk: int, chunks: int) -> CollectiveInstance:
    topology, groups = network_of_layout(layout, LEVELS)
    parts = [Collective.of(pattern, g, chunk_size=chunk, chunks_per_npu=chunks) for g in groups]
    return CollectiveInstance(topology, Collective.together(*parts), "pipelined")


def latencies(topology: Topology, source: int) -> list[float]:
    """Least latency from a device to every node, seconds."""
    best = [math.inf] * topology.num_nodes
    queue = [(0.0, source)]
    while queue:
        so_far, node = heapq.heappop(queue)
        if so_far >= best[node]:
            continue
        best[node] = so_far
        for link in np.flatnonzero(topology.src == node):
            heapq.heappush(
                queue, (so_far + topology.alpha_ps[link] / 1e12, int(topology.dst[link]))
            )
    return best


# --- layouts and networks -----------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(4,), (4, 2), (4, 2, 2), (2, 3), (3, 2, 2)])
def test_every_layout_comes_with_a_family_that_has_it(shape: tuple[int, ...]) -> None:
    cluster = cluster_of(shape)
    found = layouts_on(cluster, [2, 3, 4, 6])
    for layout, family in found.items():
        assert layout_of(cluster, family) == layout
        assert layout.members == family.shape[1]
    assert Layout((2,), ()) in found
    if len(shape) > 1:
        # whole innermost groups beside one another, as data parallelism over nodes has them
        assert Layout((1, shape[1]), (shape[0],)) in found


def test_layouts_of_an_uneven_tree() -> None:
    levels = (Level("node", 1e-6, 1e11, 1e10), Level("top", 1e-6, 1e10))
    cluster = Cluster("uneven", levels, (DEVICE,), np.zeros(8, dtype=np.int64), ((2, 3, 3), (8,)))
    found = layouts_on(cluster, [2, 3])
    assert {Layout((3,), ()), Layout((1, 2), (3,)), Layout((1, 3), (1,))} <= set(found)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_network_has_no_more_than_the_tree(layout: Layout) -> None:
    topology, groups = network_of_layout(layout, LEVELS)
    devices = sorted(d for group in groups for d in group)
    assert len(devices) == layout.members * (layout.sharing[-1] if layout.sharing else 1)
    assert sorted(np.flatnonzero(~topology.is_switch)) == devices
    for device in devices:
        assert topology.bandwidth[topology.src == device].sum() <= LEVELS[0].port
        assert topology.bandwidth[topology.dst == device].sum() <= LEVELS[0].port
    # latencies: the highest level crossed, paid once
    highest = np.maximum.accumulate([level.latency for level in LEVELS])
    span = len(layout.counts) - 1
    for group in groups:
        between = latencies(topology, group[0])
        assert max(between[d] for d in group) == pytest.approx(highest[span], rel=1e-6)
        assert min(between[d] for d in group[1:]) >= highest[0] * (1 - 1e-9)


def test_what_leaves_a_group_keeps_to_ports_and_uplinks() -> None:
    """Two devices of each of two nodes, two family groups: by hand."""
    topology, _ = network_of_layout(Layout((2, 2), (2,)), LEVELS)
    rows = sorted(
        (bool(topology.is_switch[a]), bool(topology.is_switch[b]), int(w))
        for a, b, w in zip(topology.src, topology.dst, topology.bandwidth, strict=True)
    )
    up = [w for a, _, w in rows if not a]
    assert up == [20e9] * 8 + [80e9] * 8
    assert [w for a, b, w in rows if a and b] == [40e9] * 4


# --- lines --------------------------------------------------------------------------------------


@pytest.mark.parametrize("pattern", ["all-gather", "all-reduce", "all-to-all"])
@pytest.mark.parametrize("layout", [*LAYOUTS[:2], *slow(LAYOUTS[2:])])
def test_a_line_suffices_at_every_size(layout: Layout, pattern: str) -> None:
    chunk, chunks = 100_000, 3
    instance = instance_of(layout, pattern, chunk, chunks)
    found = synthesize(instance, SolveOptions(set={"effort": "0.1"}))
    schedule = in_columns(instance, found.schedule)
    check_schedule(instance, schedule)
    size = float(chunk * chunks * layout.members)
    line = line_of(instance, schedule, size)
    topology = instance.topology
    latency = topology.alpha_ps / 1e12
    # at its own size the schedule takes no longer than it says, nor than played event by event
    own = retimed(instance, schedule, chunk / topology.bandwidth, latency)
    played = simulate_schedule(instance, schedule)["simulated"] / 1e12
    assert own <= min(schedule.makespan_ps / 1e12, played) * (1 + 1e-9)
    for factor in (0.0, 1e-3, 0.1, 1.0, 10.0, 1e4):
        serial = factor * chunk / topology.bandwidth
        taken = retimed(instance, schedule, serial, latency)
        assert taken <= (line.alpha + factor * size * line.beta) * (1 + 1e-9)
    assert line.alpha >= latency.max()
    # what must cross the uplinks of a part of the tree takes its time
    n, inside = layout.members, 1
    sent = (2 if pattern == "all-reduce" else 1) / n
    for level, (count, share) in enumerate(zip(layout.counts, layout.sharing)):
        inside *= count
        each = inside * (n - inside) if pattern == "all-to-all" else n - inside
        assert line.beta >= share * each * sent / LEVELS[level].uplink * (1 - 1e-9)
    assert line.beta >= sent * (n - 1) / LEVELS[0].port * (1 - 1e-9)


def test_a_pair_by_hand() -> None:
    instance = instance_of(Layout((2,), ()), "all-gather", 50_000, 4)
    found = synthesize(instance, SolveOptions())
    line = line_of(instance, in_columns(instance, found.schedule), 400_000.0)
    assert line.alpha == pytest.approx(1e-6)
    assert line.beta == pytest.approx(0.5 / 100e9)


# --- tables -------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("each", [2, 4])
def test_tables_can_be_made_and_used(each: int) -> None:
    """Two nodes of `each` devices."""
    cluster, every = cluster_of((each, 2)), 2 * each
    sizes, members = ([2.0**24], [every]) if each == 2 else ([2.0**16, 2.0**24], [2, every])
    seen: list[tuple[int, int]] = []
    table, compared = make_table(
        cluster, sizes, members, progress=lambda done, n, _: seen.append((done, n))
    )
    layouts = layouts_on(cluster, members)
    assert seen == [(i, len(layouts)) for i in range(len(layouts))]
    assert len(compared) == 3 * len(sizes) * len(layouts)
    assert CollectiveTable.from_json(table.to_json()).to_json() == table.to_json()
    if len(members) > 1:
        again, _ = make_table(cluster, sizes, [every])
        assert again.rows == tuple(row for row in table.rows if row.layout.members == every)
    # both halves of the tree at work at once: faster than one level after the other
    both = [c for c in compared if c.layout == Layout((each, 2), (1,)) and c.size > 1e7]
    assert min(c.line / c.formulas for c in both) < 0.95
    rows = {(row.pattern, row.layout): row.lines for row in table.rows}
    for c in compared:
        lines = rows.get((c.pattern, c.layout), ())
        said = min((a + c.size * b for a, b in lines), default=math.inf)
        assert min(said, c.formulas) <= min(c.line, c.formulas) * (1 + 1e-5)

    workload = named("workload", "gpt3-1.7b,batch=32,layers=4")
    space = PlanSpace.parse({"tensor": str(every)}, PlanSpace.named("default-1"))
    plain = PlacementInstance(workload, cluster, space)
    full = PlacementInstance(workload, cluster.with_collectives(table), space)
    before, after = solve(plain, SolveOptions()), solve(full, SolveOptions())
    assert after.objective < before.objective * 0.999
    assert after.bound == after.objective
    PROBLEM.check(after)
    assert PROBLEM.simulate(after)["closed_form"] == pytest.approx(after.objective, rel=1e-9)


def test_a_time_limit_leaves_layouts_out() -> None:
    table, compared = make_table(cluster_of((4, 2)), [1e6], [2], time_limit=0.0)
    assert not table.rows
    assert not compared
