"""Links by kind, the nodes' places, and charts of characters."""

from __future__ import annotations

import numpy as np
import pytest

import nestopt
from nestopt.collective.model.instance import CollectiveInstance
from nestopt.collective.model.schedule import Schedule
from nestopt.collective.model.topology import Topology
from nestopt.collective.show.chart import schedule_chart
from nestopt.collective.show.kinds import busy_ps, idle_share, in_rows, link_kinds
from nestopt.collective.show.places import link_paths, places
from nestopt.collective.show.shares import chunk_runs, run_names, shares
from nestopt.core.charts import for_encoding, rendered, shaded, symbol


def kinds(name: str) -> list[tuple[str, int]]:
    return [(k.label, len(k.links)) for k in link_kinds(nestopt.load(name, "topology"))]


def test_kinds_of_machines() -> None:
    assert kinds("dgx-a100:2x8") == [
        ("NVLink to the switch, 300 GB/s", 16),
        ("NVLink from the switch, 300 GB/s", 16),
        ("NIC to the switch, 25 GB/s", 16),
        ("NIC from the switch, 25 GB/s", 16),
    ]
    assert kinds("perlmutter:2")[0] == ("NVLink, 25 GB/s", 2 * 6 * 4 * 2)
    assert kinds("mi250:1x16") == [
        ("in the package, 50 GB/s", 64),
        ("Infinity Fabric, 50 GB/s", 48),
    ]
    # a failed GPU takes its links along
    assert kinds("dgx-a100:2x8+fail:3")[2:] == [
        ("NIC to the switch, 25 GB/s", 15),
        ("NIC from the switch, 25 GB/s", 15),
    ]


def test_kinds_by_names_and_bandwidths() -> None:
    assert kinds("mesh2d:3x3") == [("link, 1 GB/s", 24)]
    assert kinds("fat-tree:4")[:2] == [("npu to edge, 1 GB/s", 16), ("edge to npu, 1 GB/s", 16)]
    assert kinds("mesh2d:3x3+choice:1,2+seed:1") != kinds("mesh2d:3x3")
    (uneven,) = kinds("mesh2d:4x4+log-uniform:0.5,2+seed:1")
    assert " to " in uneven[0] and uneven[1] == 48
    own = Topology.from_links(
        "own", 5,
        [(0, 1, "1 us", "100 GB/s"), (2, 3, "1 us", "100 GB/s"), (0, 2, "1 us", "10 GB/s"),
         (1, 4, "1 us", "20 GB/s"), (4, 3, "1 us", "20 GB/s")],
        switches=[4], node_names=["a.gpu0", "a.gpu1", "b.gpu0", "b.gpu1", "leaf0"],
    )  # fmt: skip
    assert [k.label for k in link_kinds(own)] == [
        "inside a node, 100 GB/s",
        "between nodes, 10 GB/s",
        "NIC to the switch, 20 GB/s",
        "NIC from the switch, 20 GB/s",
    ]


def test_a_name_that_promises_too_much_is_not_made() -> None:
    small = nestopt.load("dgx-a100:1x4", "topology")
    for name in ("dgx-a100:900000x8", "perlmutter:99999999", "dgx-a100:2x8", "dgx-a100:x"):
        forged = Topology.from_json({**small.to_json(), "name": name})
        assert [k.name for k in link_kinds(forged)] == [
            "NVLink to the switch",
            "NVLink from the switch",
        ]


@pytest.mark.parametrize(
    "name", ["dgx-h100:3x4", "perlmutter:2", "torus3d:3x3x3", "fat-tree:4", "ring:5", "dgx1v"]
)
def test_every_link_has_a_row_and_every_node_a_place(name: str) -> None:
    topology = nestopt.load(name, "topology")
    order, row = in_rows(link_kinds(topology), topology.num_links)
    assert sorted(order.tolist()) == list(range(topology.num_links))
    assert np.array_equal(order[row], np.arange(topology.num_links))
    place = places(topology)
    apart = np.hypot(*(place[:, None] - place[None]).transpose(2, 0, 1))
    assert apart[~np.eye(len(place), dtype=bool)].min() > 0.2
    middles = link_paths(topology, place)[:, link_paths(topology, place).shape[1] // 2]
    assert len({tuple(m) for m in middles.round(4).tolist()}) == topology.num_links


@pytest.fixture(scope="module")
def relay() -> tuple[CollectiveInstance, Schedule]:
    """A chunk goes from 0 over 1 to 2 in 1 and 3 seconds: idle shares are 3/4 and 1/4."""
    topology = Topology.from_links("line", 3, [(0, 1, 0, 3), (1, 2, 0, 1)])
    collective = nestopt.Collective.of("broadcast", 3, chunk_size=3)
    instance = CollectiveInstance(topology, collective)
    return instance, Schedule.of([0, 0], [0, 1], [0, 10**12], 4 * 10**12)


def test_idle_shares(relay: tuple[CollectiveInstance, Schedule]) -> None:
    instance, schedule = relay
    found = link_kinds(instance.topology)
    assert [k.rate for k in found] == ["3 B/s", "1 B/s"]
    busy = busy_ps(instance, schedule)
    assert [idle_share(k, busy, schedule.makespan_ps) for k in found] == [0.75, 0.25]
    _, row = in_rows(found, 2)
    assert shares(instance, schedule, row, bins=4).tolist() == [[1, 0, 0, 0], [0, 1, 1, 1]]


def test_a_chart_of_characters(relay: tuple[CollectiveInstance, Schedule]) -> None:
    instance, schedule = relay
    lines = rendered(schedule_chart(instance, schedule, 43)).splitlines()
    assert lines[0] == "broadcast on line: makespan 4 s"
    assert "links: 1 of 3 B/s, idle 75 %" in lines
    assert "0 → 1".ljust(22) + "|" + "0" * 5 + "·" * 15 + "|" in lines
    assert "1 → 2".ljust(22) + "|" + "·" * 5 + "0" * 15 + "|" in lines
    assert max(map(len, lines)) <= 44
    coloured = rendered(schedule_chart(instance, schedule, 43), colour=True)
    assert "\x1b[38;2;0;114;178m" in coloured
    poor = for_encoding("\n".join(lines), "ascii")
    assert poor.isascii() and "0 > 1" in poor and for_encoding("a→b", "utf-8") == "a→b"


def test_pieces_of_charts() -> None:
    assert shaded([0, 0.001, 0.5, 1]) == " ▁▄█"
    assert [symbol(i) for i in (0, 10, 36, 61, 62)] == ["0", "a", "A", "Z", "+"]
    assert run_names(chunk_runs(3)) == ["0", "1", "2"]
    assert chunk_runs(100).tolist()[-1] == 100 and len(run_names(chunk_runs(100))) == 16
