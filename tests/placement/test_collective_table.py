"""Tables of collectives: their files, and evaluator and checker that price with them."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import numpy as np
import pytest
from plan_cases import random_case, result_of, roomy
from random_tables import families_in, families_on, layout_of, random_table, table_of
from rich.console import Console
from sampling import slow

from nestopt.core.errors import CheckError, InputError, UsageError
from nestopt.core.io import sha256_of
from nestopt.placement.judge.check import Tree, check_result, contended_syncs, family_of, price
from nestopt.placement.model.cluster import Cluster, DeviceType, Level, Override
from nestopt.placement.model.collective_table import CollectiveTable, Layout, Line, Row
from nestopt.placement.model.instance import PlacementInstance
from nestopt.placement.pricing.comm import PROFILE, Network, all_gather, all_reduce, family_profiles
from nestopt.placement.pricing.comm_table import TableEntries
from nestopt.placement.pricing.evaluate import evaluate, reported
from nestopt.placement.problem import PROBLEM

DEVICE = DeviceType("gpu", 1e15, 1e12, 1e12)


def even_cluster(**changes: object) -> Cluster:
    """Two racks of two nodes of four devices."""
    levels = (
        Level("node", 1e-6, 1e11, 4e10),
        Level("rack", 2e-6, 1e10, 4e10),
        Level("top", 4e-6, 1e10),
    )
    return replace(Cluster.regular("even", (4, 2, 2), levels, [DEVICE]), **changes)


# --- layouts ------------------------------------------------------------------------------------

ACROSS_NODES = np.arange(4)[:, None] + 4 * np.arange(2)


@pytest.mark.parametrize(
    ("sets", "layout"),
    [
        (np.arange(4)[None, :], ((4,), ())),
        (np.arange(8).reshape(4, 2), ((2,), ())),
        (np.arange(8)[None, :], ((4, 2), (1,))),
        (np.arange(16)[None, :], ((4, 2, 2), (1, 1))),
        (ACROSS_NODES, ((1, 2), (4,))),
        (ACROSS_NODES[:3], ((1, 2), (3,))),
        (np.concatenate([ACROSS_NODES, ACROSS_NODES + 8]), ((1, 2), (4,))),
        (np.arange(8)[:, None] + 8 * np.arange(2), ((1, 1, 2), (4, 8))),
        (np.arange(2)[:, None] + 2 * np.arange(8), ((2, 2, 2), (2, 2))),
        # three members of one node and one of another
        (np.array([[0, 1, 2, 4]]), None),
        # one family group shares its node, the other does not
        (np.array([[0, 4], [1, 8]]), None),
        # two family groups in the first node, one in the next
        (np.array([[0, 4], [1, 5], [8, 12]]), None),
        # every node has members of two family groups, but they have no other node in common
        (np.array([[0, 4], [5, 8], [9, 1]]), None),
        # spans of different levels
        (np.array([[0, 1], [2, 4]]), None),
    ],
)
def test_layouts(sets: np.ndarray, layout: tuple[tuple[int, ...], tuple[int, ...]] | None) -> None:
    cluster = even_cluster()
    found = layout_of(cluster, sets)
    assert found == (None if layout is None else Layout(*layout))
    wanted = layout or ((2,), ())
    row = Row("all-gather", Layout(*wanted), (Line(1.0, 2.0),))
    cluster = cluster.with_collectives(table_of(cluster, [row]))
    start = np.zeros(1, dtype=np.int64)
    profile = family_profiles(Network.of(cluster), np.arange(16), start, sets)[0]
    assert (profile[PROFILE] == 1.0) == (layout is not None)
    assert bool(family_of(Tree.of(cluster), sets).gathers) == (layout is not None)


@pytest.mark.parametrize(
    ("level", "group", "holds"),
    [(0, 0, False), (0, 1, False), (0, 2, True), (1, 0, False), (2, 0, True)],
)
def test_a_row_does_not_hold_where_a_figure_is_overridden(
    level: int, group: int, holds: bool
) -> None:
    row = Row("all-gather", Layout((1, 2), (4,)), (Line(0.0, 0.0),))
    cluster = even_cluster(overrides=(Override(level, group, latency=1e-6),))
    cluster = cluster.with_collectives(table_of(cluster, [row]))
    start = np.zeros(1, dtype=np.int64)
    profile = family_profiles(Network.of(cluster), np.arange(16), start, ACROSS_NODES)[0]
    assert (profile[PROFILE] == 0.0) == holds
    assert (family_of(Tree.of(cluster), ACROSS_NODES).gather(1e9) == 0.0) == holds


def test_the_cheapest_of_formulas_and_lines_is_taken() -> None:
    """All-reduces also take the doubled lines of all-gathers; by hand."""
    layout = Layout((4,), ())
    rows = [
        Row("all-gather", layout, (Line(1e-6, 5e-12), Line(5e-6, 1e-12))),
        Row("all-reduce", layout, (Line(3e-6, 8e-12),)),
    ]
    cluster = even_cluster()
    plain = family_of(Tree.of(cluster), np.arange(4)[None, :])
    cluster = cluster.with_collectives(table_of(cluster, rows))
    family = family_of(Tree.of(cluster), np.arange(4)[None, :])
    profile = family_profiles(
        Network.of(cluster), np.arange(4), np.zeros(1, dtype=np.int64), np.arange(4)[None, :]
    )[0]
    for size in (0.0, 1e3, 1e5, 1e6, 1e8):
        both = 2e-6 + 10e-12 * size, 3e-6 + 8e-12 * size, 10e-6 + 2e-12 * size
        wanted = min(plain.reduce(size), *both) if size else 0.0
        assert family.reduce(size) == pytest.approx(wanted, rel=1e-14)
        assert all_reduce(4, profile, np.array([size]))[0] == pytest.approx(wanted, rel=1e-14)
        assert family.exchange(size) == plain.exchange(size)
    assert family.gather(1e8) == pytest.approx(5e-6 + 1e-4)


def test_the_least_of_many_layouts_is_below_each_of_them() -> None:
    """Pools have no more lines than a row, so some are merged: lower, but never by much."""
    rng = np.random.default_rng(1)
    gaps = []
    sizes = np.geomspace(1.0, 1e10, 50)
    cluster = even_cluster()
    assert Network.of(cluster).entries == PROFILE
    for _ in range(100):
        rows = []
        for layout in (((4,), ()), ((2, 2), (1,)), ((1, 4), (2,)), ((1, 2, 2), (4, 8))):
            factors = np.exp(rng.uniform(-2, 2, size=(int(rng.integers(1, 4)), 2)))
            lines = tuple(Line(1e-5 * a, 1e-10 * b) for a, b in factors.tolist())
            rows.append(Row("all-gather", Layout(*layout), lines))
        table = TableEntries.of(cluster.with_collectives(table_of(cluster, rows)))
        assert table is not None

        def price(entries: np.ndarray) -> np.ndarray:
            profile = np.concatenate([np.full(PROFILE, 1e200), entries])
            return all_gather(4, profile, sizes)

        pool = price(table.least(lambda layout: len(layout.counts) > 1))
        each = np.min([price(table.entries[row.layout]) for row in rows[1:]], axis=0)
        assert (pool <= each * (1 + 1e-12)).all()
        gaps.append(float((pool / each).min()))
    assert np.median(gaps) > 0.7


# --- evaluator and checker ----------------------------------------------------------------------


@pytest.mark.parametrize("decomposed", [True, *slow([False])])
@pytest.mark.parametrize("block", [0, *slow(range(1, 4))])
def test_evaluator_and_checker_price_alike_with_tables(block: int, decomposed: bool) -> None:
    faster = 0
    for seed in range(100 * block, 100 * block + 100):
        rng = np.random.default_rng(seed)
        workload, plain, plan = random_case(
            rng, ("1f1b", "gpipe", "interleaved"), decomposed=decomposed
        )
        cluster = plain.with_collectives(random_table(rng, plain, families_in(plan)))
        ours, theirs = evaluate(workload, cluster, plan), price(workload, cluster, plan)
        for figures, others in (
            (ours.seconds, [s.seconds for s in theirs.stages]),
            (ours.sync, [s.sync for s in theirs.stages]),
        ):
            np.testing.assert_allclose(figures, others, rtol=1e-12, atol=0, err_msg=str(seed))
        assert ours.iteration_time == pytest.approx(theirs.iteration_time, rel=1e-12)
        without = price(workload, plain, plan).iteration_time
        assert theirs.iteration_time <= without * (1 + 1e-12)
        faster += theirs.iteration_time < without * (1 - 1e-6)
    assert faster > 20


@pytest.mark.parametrize("count", [100, *slow([300])])
def test_contended_synchronisations_use_rows_only_where_nothing_else_loads_the_links(
    count: int,
) -> None:
    alone = loaded = 0
    for seed in range(count):
        rng = np.random.default_rng(seed)
        workload, plain, plan = random_case(rng)
        cluster = plain.with_collectives(random_table(rng, plain, families_in(plan), keep=1.0))
        closed = [s.sync for s in price(workload, cluster, plan).stages]
        contended = contended_syncs(workload, cluster, plan)
        assert all(b >= a * (1 - 1e-12) for a, b in zip(closed, contended, strict=True))
        if len(plan.stages) == 1:
            assert contended == pytest.approx(closed, rel=1e-12)
            alone += closed[0] < price(workload, plain, plan).stages[0].sync
        else:
            loaded += any(b > a * (1 + 1e-9) for a, b in zip(closed, contended, strict=True))
    assert alone > count // 60
    assert loaded > count // 60


# --- files --------------------------------------------------------------------------------------


def test_round_trip_and_hash() -> None:
    rng = np.random.default_rng(5)
    workload, plain, _ = random_case(rng)
    table = random_table(rng, plain, families_on(rng, plain, 40))
    assert table.rows
    again = CollectiveTable.from_json(json.loads(json.dumps(table.to_json())))
    assert again.to_json() == table.to_json()
    bare, full = (
        PlacementInstance(workload, c).to_json() for c in (plain, plain.with_collectives(table))
    )
    assert "collectives" not in bare["cluster"]
    assert sha256_of(bare) != sha256_of(full)
    del full["cluster"]["collectives"]
    assert sha256_of(bare) == sha256_of(full)


def test_a_result_with_a_table_is_checked_by_itself() -> None:
    for seed in range(40):
        rng = np.random.default_rng(seed)
        workload, cluster, plan = random_case(rng)
        big = roomy(cluster)
        big = big.with_collectives(random_table(rng, big, families_in(plan)))
        shown, priced = reported(workload, big, plan)
        if priced.iteration_time < evaluate(workload, roomy(cluster), plan).iteration_time * 0.999:
            break
    hides = {"+".join(stage.config.hides.words) or "none" for stage in shown.stages}
    result = result_of(workload, big, shown, space=f"4d general hides={','.join(sorted(hides))}")
    assert any("as claimed" in line for line in check_result(result))
    console = Console(file=io.StringIO(), width=80, highlight=False)
    PROBLEM.describe(result, console)
    rows = len(big.collectives.rows)
    assert f"  table      {rows} rows beside the formulas" in console.file.getvalue()
    rows = result.instance["data"]["cluster"]["collectives"]["rows"]
    for row in rows:
        row["lines"] = [{"alpha": 1.0, "beta": 1.0}]
    with pytest.raises(CheckError, match=r"instance\.sha256"):
        check_result(result)
    result.instance["sha256"] = sha256_of(result.instance["data"])
    with pytest.raises(CheckError, match="is claimed"):
        check_result(result)


def small_table() -> dict[str, object]:
    row = Row("all-gather", Layout((1, 2), (4,)), (Line(1e-6, 1e-11),))
    return table_of(even_cluster(), [row, replace(row, pattern="all-to-all")]).to_json()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": "nestopt.collective-table/2"}, "t.json: schema"),
        ({"rows": None}, "t.json: rows"),
        ({"more": 1}, "t.json: more"),
        ({"levels": []}, r"rows\[0\].counts: \[1, 2\]; expected 1 to 0 counts"),
        ({0: {"pattern": "broadcast"}}, r"rows\[0\].pattern: 'broadcast'; expected one of all-g"),
        ({0: {"counts": [2, 1]}}, r"rows\[0\].counts: \[2, 1\]; expected 1 to 3 counts"),
        ({0: {"counts": [0, 2]}}, r"t.json: rows\[0\].counts\[0\]"),
        ({0: {"counts": []}}, r"rows\[0\].counts: \[\]"),
        ({0: {"sharing": []}}, r"rows\[0\].sharing: \[\]; expected 1 numbers"),
        ({0: {"counts": [1, 1, 2], "sharing": [4, 6]}}, r"rows\[0\].sharing: \[4, 6\]"),
        ({0: {"lines": []}}, r"rows\[0\].lines: no line"),
        ({0: {"lines": [{"alpha": -1, "beta": 0}]}}, r"rows\[0\].lines\[0\].alpha"),
        ({0: {"pattern": "all-to-all"}}, r"rows\[1\]: the same pattern and layout as rows\[0\]"),
    ],
)
def test_wrong_tables(change: dict[object, object], message: str) -> None:
    data = small_table()
    for key, value in change.items():
        if isinstance(key, int):
            data["rows"][key] |= value  # type: ignore[index]
        else:
            data[key] = value  # type: ignore[index]
    with pytest.raises(InputError, match=message):
        CollectiveTable.from_json(data, file="t.json")


def test_a_table_of_other_levels_is_refused() -> None:
    table = CollectiveTable.from_json(small_table())
    levels = list(even_cluster().levels)
    slower = replace(levels[1], port=5e9)
    with pytest.raises(InputError, match=r"collectives.levels\[1\].port: made for 10000000000 "):
        even_cluster(levels=(levels[0], slower, levels[2])).with_collectives(table)
    with pytest.raises(InputError, match="made for 3 levels; the cluster has 1"):
        Cluster.regular("flat", (4,), levels[2:], [DEVICE]).with_collectives(table)
    data = even_cluster().with_collectives(table).to_json()
    assert Cluster.from_json(data).to_json() == data
    data["levels"][0]["uplink"] = 1e9
    with pytest.raises(InputError, match=r"c.json: collectives.levels\[0\].uplink"):
        Cluster.from_json(data, file="c.json")


def test_names_and_settings(tmp_path) -> None:
    cluster = even_cluster()
    (tmp_path / "t.json").write_text(json.dumps(small_table()))
    (tmp_path / "c.json").write_text(json.dumps(cluster.to_json()))
    table = {"collectives": str(tmp_path / "t.json")}
    names = {"workload": "gpt3-1.7b", "cluster": str(tmp_path / "c.json")}
    instance = PROBLEM.from_names(names, table)
    assert instance.cluster.collectives.to_json() == small_table()
    again = PROBLEM.from_json(instance.to_json())
    assert again.cluster.to_json() == instance.cluster.to_json()
    other = names | {"cluster": "h100-spineleaf-64"}
    with pytest.raises(InputError, match=r"t\.json: levels\[0\]\.latency: made for 1e-06 s"):
        PROBLEM.from_names(other, table)
    with pytest.raises(UsageError, match="model=max-load has no collectives"):
        PROBLEM.from_names(names, table | {"model": "max-load"})
    with pytest.raises(InputError, match=r"none\.json: cannot be read"):
        PROBLEM.from_names(names, {"collectives": "none.json"})
