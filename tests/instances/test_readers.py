"""Readers of the field's files: bandwidth totals against closed forms, and malformed variants."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import networkx as nx
import numpy as np
import pytest

from nestopt.core.errors import InputError, UsageError
from nestopt.instances.network import Network, strongly_connected
from nestopt.instances.readers import FORMATS, read, write
from nestopt.instances.topologies import network_by_name

if TYPE_CHECKING:
    from collections.abc import Callable

DATA = Path(__file__).parent / "data"
GB, GIB = 10**9, 2**30


def total(network: Network, tier: str | None = None) -> int:
    """Sum of the bandwidths of all links, or of those of a tier."""
    return sum(int(b) for b, t in zip(network.bandwidth, network.tier) if tier is None or t == tier)


def load(kind: str, name: str, **settings: str) -> Network:
    return read(kind, DATA / name, settings).network


def links(network: Network) -> list[tuple[int, int, int, int]]:
    return sorted(
        zip(
            network.src.tolist(),
            network.dst.tolist(),
            network.bandwidth.tolist(),
            network.alpha_ps.tolist(),
        )
    )


SMI = {"gpu": "h100"}
HOSTS = {"gpus": "4", "nvlink": "450GB/s", "nic": "50GB/s", "uplink": "400GB/s"}

# format, file, settings, NPUs, total bandwidth of all links in bytes/s
SAMPLES: list[tuple[str, str, dict[str, str], int, int]] = [
    # 24 cables of 25 GB/s
    ("nvidia-smi", "dgx1v.smi.txt", {"gpu": "v100"}, 8, 2 * 24 * 25 * GB),
    # 8 GPUs with 18 links of 25 GB/s into the switch
    ("nvidia-smi", "h100.smi.txt", SMI, 8, 2 * 8 * 18 * 25 * GB),
    # the same, each GPU also 64 GB/s to its host
    ("nvidia-smi", "h100.smi.txt", {**SMI, "pcie": "64GB/s"}, 8, 2 * 8 * (450 + 64) * GB),
    # NVLink: 6 pairs of 4; PCIe 4.0 x16: 8 devices; two 200 Gb/s NICs; one link between CPUs
    (
        "nccl",
        "a100x4.nccl.xml",
        {"smp": "20GB/s"},
        4,
        2 * (6 * 4 * 25 * GB + 8 * round(16 * GB * 16 * 128 / 130 / 8) + 2 * 25 * GB + 20 * GB),
    ),
    ("nccl", "h100.nccl.xml", {}, 8, 2 * 8 * (18 * 25 * GB + round(32 * GB * 16 * 128 / 130 / 8))),
    # rings of 2: 32 cables; cliques of 4: 16 * 6; switches of 8: 64
    (
        "astra-sim",
        "rfs.astra.yml",
        {},
        64,
        2 * (32 * 200 + 96 * 100 + 64 * 50) * GIB,
    ),
    # 8 x 2400 Gb/s, 8 x 200 Gb/s, 4 x 400 Gb/s
    ("simai", "rail.simai.txt", {}, 8, 2 * (8 * 300 + 8 * 25 + 4 * 50) * GB),
    ("ns3", "star.ns3.txt", {}, 4, 2 * 4 * 12_500_000_000),
    # 8 double links of 23 us and 8 single links of 46 us for 1 MB
    (
        "taccl",
        "ndv2.taccl.json",
        {"size": "1MB", "topo": "ndv2"},
        8,
        2 * 8 * (round(10**12 / 23) + round(10**12 / 46)),
    ),
    ("taccl", "ring4.taccl.json", {"size": "1MB"}, 4, 4 * (50 + 25) * GB),
    ("sccl", "dgx1.sccl.json", {"link": "25GB/s"}, 8, 2 * 24 * 25 * GB),
    ("sccl", "switch4.sccl.json", {"link": "1GB/s"}, 4, 2 * 4 * 6 * GB),
    (
        "teccl",
        "uneven.teccl.csv",
        {"alpha": str(DATA / "uneven.alpha.csv")},
        4,
        2 * (25 + 50 + 12.5 + 12.5) * GB,
    ),
    # 8 hosts of 4 GPUs; NVLink and NIC of each; two links between switches
    ("slurm", "topology.conf", HOSTS, 32, 2 * (32 * (450 + 50) + 2 * 400) * GB),
    ("slurm", "block.conf", {**HOSTS, "uplink": "1GB/s"}, 32, 2 * 32 * (450 + 50) * GB),
    ("topograph", "cluster.topograph.json", HOSTS, 24, 2 * (24 * 500 + 2 * 400) * GB),
    ("graphml", "star.graphml", {}, 4, 2 * (4 * 25 + 50) * GB),
]


@pytest.mark.parametrize("kind, name, settings, npus, bandwidth", SAMPLES)
def test_bandwidth_totals(
    kind: str, name: str, settings: dict[str, str], npus: int, bandwidth: float
) -> None:
    network = read(kind, DATA / name, settings).network
    assert len(network.npus) == npus
    assert total(network) == bandwidth
    assert strongly_connected(network)
    assert network.topology().num_links == network.num_links


def test_dgx1v_is_the_same_from_every_source() -> None:
    expected = links(network_by_name("dgx1v"))
    assert links(load("nvidia-smi", "dgx1v.smi.txt", gpu="v100", bundles="separate")) == expected
    assert links(load("sccl", "dgx1.sccl.json", link="25GB/s")) == expected


def test_nvswitch_matrix_is_one_switch_over_which_18_links_stripe() -> None:
    network = load("nvidia-smi", "h100.smi.txt", gpu="h100")
    assert int(network.is_switch.sum()) == 1
    assert np.bincount(network.src).tolist() == [1] * 8 + [8]
    assert set(network.bandwidth.tolist()) == {18 * 25 * GB}


def test_ansi_codes_are_removed_with_a_complaint() -> None:
    reading = read("nvidia-smi", DATA / "h100.smi.txt", {"gpu": "h100"})
    assert len(reading.complaints) == 1
    assert "line 1, header: terminal colour codes were removed" in reading.complaints[0]
    with pytest.raises(InputError, match="line 1, header"):
        read("nvidia-smi", DATA / "h100.smi.txt", {"gpu": "h100"}, strict=True)


def test_astra_sim_numbers_the_first_dimension_fastest() -> None:
    network = load("astra-sim", "rfs.astra.yml")
    ring = {
        (int(u), int(v))
        for u, v, tier in zip(network.src, network.dst, network.tier)
        if tier == "dim0"
    }
    assert ring == {(i, i + 1) for i in range(0, 64, 2)} | {(i + 1, i) for i in range(0, 64, 2)}
    by_tier = dict(zip(network.tier, network.alpha_ps.tolist()))
    assert by_tier == {"dim0": 500_000, "dim1": 500_000, "dim2": 1_000_000}


def test_sccl_is_destination_major() -> None:
    network = load("sccl", "oneway.sccl.json", link="1GB/s")
    assert links(network) == [
        (0, 1, GB, 0),
        (1, 2, GB, 0),
        (1, 2, GB, 0),
        (2, 0, GB, 0),
    ]


def test_sccl_ports_become_a_switch() -> None:
    network = load("sccl", "switch4.sccl.json", link="1GB/s")
    assert int(network.is_switch.sum()) == 1
    assert set(network.tier) == {"switch"}


def test_taccl_is_destination_major_and_adds_nics() -> None:
    network = load("taccl", "ring4.taccl.json", size="1MB")
    speed = {(u, v): b for u, v, b, _ in links(network)}
    assert speed[0, 1] == 50 * GB
    assert speed[1, 0] == 25 * GB
    assert set(network.alpha_ps.tolist()) == {700_000}
    two = load("taccl", "ndv2.taccl.json", size="1MB", topo="ndv2", nodes="2")
    assert len(two.npus) == 16
    assert strongly_connected(two)
    assert set(two.bandwidth[np.array(two.tier) == "nic"].tolist()) == {round(10**12 / 105)}


def test_teccl_latencies_are_seconds() -> None:
    network = load("teccl", "uneven.teccl.csv", alpha=str(DATA / "uneven.alpha.csv"))
    delay = {(u, v): a for u, v, _, a in links(network)}
    assert delay[0, 1] == 700_000
    assert delay[0, 3] == 1_300_000
    assert not load("teccl", "uneven.teccl.csv").alpha_ps.any()
    assert load("teccl", "uneven.teccl.csv", switches="3").is_switch.tolist() == [False] * 3 + [
        True
    ]


def test_slurm_groups_and_complaint() -> None:
    reading = read("slurm", DATA / "topology.conf", HOSTS)
    assert any("line 2, LinkSpeed" in text for text in reading.complaints)
    names = reading.network.node_names
    assert "gpu001.gpu0" in names and "gpu008.gpu3" in names
    assert len(reading.network.groups["node"]) == 8
    assert len(reading.network.groups["rack"]) == 3


def test_blocks_are_nvlink_domains() -> None:
    network = load("slurm", "block.conf", **{**HOSTS, "uplink": "1GB/s"})
    assert [n for n in network.node_names if n.startswith("nvlink")] == ["nvlink b1", "nvlink b2"]
    nvl = load("topograph", "cluster.topograph.json", **HOSTS)
    assert [n for n in nvl.node_names if n.startswith("nvlink")] == ["nvlink nvl1", "nvlink nvl2"]


def test_latencies_of_hosts() -> None:
    network = load("slurm", "topology.conf", **HOSTS, alpha="0.5us:1us:2us")
    by_tier = dict(zip(network.tier, network.alpha_ps.tolist()))
    assert by_tier == {"nvlink": 500_000, "nic": 1_000_000, "uplink": 2_000_000}


def changed(tmp_path: Path, name: str, change: Callable[[str], str]) -> Path:
    text = (DATA / name).read_text()
    new = change(text)
    assert new != text
    path = tmp_path / name
    path.write_text(new)
    return path


def swap(old: str, new: str, count: int = 1) -> Callable[[str], str]:
    return lambda text: text.replace(old, new, count)


def drop_last_cell(line: int, keep: int) -> Callable[[str], str]:
    def change(text: str) -> str:
        rows = text.splitlines()
        rows[line - 1] = "\t".join(rows[line - 1].split("\t")[:keep])
        return "\n".join(rows)

    return change


NCCL = {"smp": "20GB/s"}
MALFORMED: list[tuple[str, str, dict[str, str], Callable[[str], str], str]] = [
    # nvidia-smi
    ("nvidia-smi", "h100.smi.txt", SMI, drop_last_cell(4, 5), r"line 4, GPU2: short row: 4 "),
    ("nvidia-smi", "h100.smi.txt", SMI, swap("NV18", "NW18"), r"line 2, GPU0 to GPU1: unknown"),
    ("nvidia-smi", "h100.smi.txt", SMI, swap("NV18", "NV17"), r"line 2, GPU0 to GPU1: 17 links"),
    ("nvidia-smi", "h100.smi.txt", SMI, swap("GPU7\tNV18", "GPU6\tNV18"), "has a second row"),
    ("nvidia-smi", "h100.smi.txt", SMI, swap("\tGPU7\tCPU", "\tCPU"), "line 1, GPU7: header lists"),
    ("nvidia-smi", "h100.smi.txt", SMI, swap("GPU0", "\x1b[2JGPU0"), "line 1, header: .*control"),
    (
        "nvidia-smi",
        "h100.smi.txt",
        {**SMI, "nvswitch": "no"},
        swap("Legend", "legend"),
        r"line 2, GPU0: 126 links in the row, but a GPU has 18",
    ),
    ("nvidia-smi", "h100.smi.txt", {"gpu": "a100"}, swap("Legend", "legend"), "NV18, but a GPU"),
    ("nvidia-smi", "h100.smi.txt", {}, swap("Legend", "legend"), "setting gpu"),
    (
        "nvidia-smi",
        "dgx1v.smi.txt",
        {"gpu": "v100"},
        swap("NV2", "NV9", -1),
        "line 2, GPU0: 20 links",
    ),
    # NCCL
    ("nccl", "a100x4.nccl.xml", NCCL, swap("nvlink", "foolink"), "line 6, foolink: unknown link"),
    ("nccl", "a100x4.nccl.xml", NCCL, swap('tclass="0x030200"', 'tclass="0x1"'), "nvlink.tclass"),
    ("nccl", "a100x4.nccl.xml", NCCL, swap('count="4"', 'count="3"'), "line 6, nvlink.count: 3 "),
    ("nccl", "a100x4.nccl.xml", NCCL, swap('count="4"', 'count="-4"'), "line 6, nvlink.count: -4"),
    (
        "nccl",
        "a100x4.nccl.xml",
        NCCL,
        swap('latency="1.5"', 'latency="-1"'),
        "line 20, net.latency",
    ),
    ("nccl", "a100x4.nccl.xml", NCCL, swap('speed="200000"', 'speed="0"'), "line 20, net.speed"),
    ("nccl", "a100x4.nccl.xml", NCCL, swap("16.0 GT/s PCIe", "fast"), "line 3, pci.link_speed"),
    ("nccl", "a100x4.nccl.xml", NCCL, swap(' sm="80"', ""), "line 5, gpu.sm: is missing"),
    (
        "nccl",
        "a100x4.nccl.xml",
        NCCL,
        swap('target="0000:87:00.0"', 'target="0000:0f:00.0"'),
        "line 7, nvlink.target: duplicate edge",
    ),
    ("nccl", "a100x4.nccl.xml", NCCL, swap("</system>", ""), "not well-formed XML"),
    ("nccl", "a100x4.nccl.xml", {}, swap("</system>", "</system> "), "setting smp"),
    (
        "nccl",
        "a100x4.nccl.xml",
        NCCL,
        lambda t: '<!DOCTYPE a [<!ENTITY x "y">]>\n' + t,
        "line 1, DOCTYPE a: .*refused",
    ),
    # ASTRA-sim
    ("astra-sim", "rfs.astra.yml", {}, swap("Ring", "Rong"), r"line 2, topology\[0\]: unknown"),
    ("astra-sim", "rfs.astra.yml", {}, swap("200.0, ", ""), "line 4, bandwidth: 2 values for 3"),
    ("astra-sim", "rfs.astra.yml", {}, swap("200.0", "0"), r"line 4, bandwidth\[0\]: 0 is a zero"),
    ("astra-sim", "rfs.astra.yml", {}, swap("500.0", "-5"), r"line 5, latency\[0\]: -5 is a neg"),
    ("astra-sim", "rfs.astra.yml", {}, swap("[ 2,", "[ 0,"), r"line 3, npus_count\[0\]: 0; exp"),
    ("astra-sim", "rfs.astra.yml", {}, swap("latency", "latencies"), "latency: is missing"),
    ("astra-sim", "rfs.astra.yml", {}, swap("]", "", 1), "line .*not YAML"),
    ("astra-sim", "rfs.astra.yml", {}, lambda t: t + "latency: [1]\n", "line 6, latency: is given"),
    # SimAI, ns-3
    (
        "simai",
        "rail.simai.txt",
        {},
        swap("1 8 2400Gbps 0.000025ms 0", "1 8 2400Gbps"),
        "line 4, .*short row: 3",
    ),
    ("simai", "rail.simai.txt", {}, swap("2400Gbps", "2400GBps"), "line 3, rate: .*no known unit"),
    ("simai", "rail.simai.txt", {}, swap("0.000025ms", "-1ms"), "line 3, delay: -1 is a negative"),
    ("simai", "rail.simai.txt", {}, swap("1 8 ", "0 8 "), "line 4, 0 8: duplicate edge"),
    ("simai", "rail.simai.txt", {}, swap("0 8 ", "0 15 "), "line 3, dst: 15; nodes are 0 to 14"),
    ("simai", "rail.simai.txt", {}, swap("15 4", "\x1b[1m15 4"), "line 1, header: .*control"),
    ("simai", "rail.simai.txt", {}, swap("15 4 2 5 20 A100", "15 4 2 5"), "line 1, header: header"),
    ("simai", "rail.simai.txt", {}, swap("8 9 10 11", "8 8 10 11"), "line 2, switch id: 8 is"),
    ("ns3", "star.ns3.txt", {}, swap("5 1 4", "5 x 4"), "line 1, switch_num: 'x'; expected"),
    ("ns3", "star.ns3.txt", {}, swap("0 4 100", "4 4 100"), "line 3, dst: 4 is joined to itself"),
    # TACCL
    ("taccl", "ndv2.taccl.json", {"size": "1MB"}, swap("0.3", "0.4"), "links: is missing"),
    ("taccl", "ndv2.taccl.json", {"topo": "ndv2"}, swap("0.3", "0.4"), "setting size"),
    (
        "taccl",
        "ndv2.taccl.json",
        {"size": "1MB", "topo": "ndv2"},
        swap("0.3", "-0.3"),
        "alpha: -0.3 is a negative latency",
    ),
    ("taccl", "ring4.taccl.json", {"size": "1MB"}, swap("40, -1, 20", "40, 20"), r"betas\[0\]: sh"),
    ("taccl", "ring4.taccl.json", {"size": "1MB"}, swap("[-1, 40", "[-1, 0"), r"betas\[0\]\[1\]"),
    ("taccl", "ring4.taccl.json", {"size": "1MB"}, swap('"alpha"', '"links"'), "links: is given"),
    # SCCL
    (
        "sccl",
        "dgx1.sccl.json",
        {"link": "1GB/s"},
        swap("[0, 2, 1,", "[0, 2,"),
        r"links\[0\]: short",
    ),
    ("sccl", "dgx1.sccl.json", {"link": "1GB/s"}, swap("[0, 2", "[0, -2"), r"links\[0\]\[1\]: -2"),
    ("sccl", "dgx1.sccl.json", {"link": "1GB/s"}, swap("[[0,", "[[1,"), r"links\[0\]\[0\]: joins"),
    ("sccl", "dgx1.sccl.json", {}, swap("DGX1", "DGX"), "setting link"),
    ("sccl", "switch4.sccl.json", {"link": "1GB/s"}, swap("6,", "0,"), r"switches\[0\]\[2\]: 0"),
    ("sccl", "switch4.sccl.json", {"link": "1GB/s"}, swap("[1, 2, 3]", "[1, 2]"), "lacks its port"),
    ("sccl", "dgx1.sccl.json", {"link": "1GB/s"}, swap("}", ""), "line 1, column .*: not JSON"),
    # TE-CCL
    ("teccl", "uneven.teccl.csv", {}, swap("0,25,0,12.5", "0,25,0"), "line 1, row 0: short row: 3"),
    (
        "teccl",
        "uneven.teccl.csv",
        {},
        swap("12.5", "-12.5"),
        "line 1, column 4: -12.5 is a negative",
    ),
    ("teccl", "uneven.teccl.csv", {}, swap("12.5", "fast"), "line 1, column 4: 'fast'; expected a"),
    ("teccl", "uneven.teccl.csv", {}, swap("0,25", "1,25"), "line 1, column 1: .*itself"),
    (
        "teccl",
        "uneven.teccl.csv",
        {"alpha": str(DATA / "uneven.teccl.csv"), "switches": "7"},
        swap("50", "51"),
        "switches: 7; nodes are 0 to 3",
    ),
    # SLURM, topograph
    ("slurm", "topology.conf", HOSTS, swap("LinkSpeed", "Speed"), "line 2, Speed: unknown entry"),
    ("slurm", "topology.conf", HOSTS, swap("[001-004]", "[004-001]"), "line 2, Nodes: .*no range"),
    ("slurm", "topology.conf", HOSTS, swap("leaf2 ", "leaf1 "), "line 3, SwitchName: duplicate"),
    (
        "slurm",
        "topology.conf",
        HOSTS,
        swap("gpu008", "gpu001"),
        "line 3, switch leaf2: host gpu001",
    ),
    ("slurm", "topology.conf", HOSTS, swap("leaf[1-2]", "leaf[1-3]"), "line 4, switch spine: unk"),
    ("slurm", "topology.conf", HOSTS, swap("leaf[1-2]", "leaf[1-2],leaf1"), "duplicate edge"),
    ("slurm", "topology.conf", HOSTS, swap(" Nodes=gpu[001-004]", ""), "line 2, SwitchName: needs"),
    ("slurm", "topology.conf", {"gpus": "4"}, swap("two", "2"), "setting nic"),
    ("slurm", "topology.conf", {**HOSTS, "nic": "-1GB/s"}, swap("two", "2"), "nic: .*than zero"),
    ("slurm", "block.conf", HOSTS, swap("n[4-7]", "n[3-7]"), "line 2, Nodes: host n3 is in two"),
    (
        "topograph",
        "cluster.topograph.json",
        HOSTS,
        swap("node_id", "id"),
        r"S2.nodes\[0\]: expected",
    ),
    ("topograph", "cluster.topograph.json", HOSTS, swap('"S3"', '"S2"'), "duplicate edge to 'S2'"),
    ("topograph", "cluster.topograph.json", HOSTS, swap('"nodes"', '"hosts"'), "switches.S2: exp"),
    # GraphML
    ("graphml", "star.graphml", {}, swap("25 GB/s", "25"), "line .*, bandwidth: '25' has no unit"),
    ("graphml", "star.graphml", {}, swap("25 GB/s", "-25 GB/s"), "bandwidth: .*negative bandwidth"),
    ("graphml", "star.graphml", {}, swap("0.5 us", "-0.5 us"), "latency: .*negative latency"),
    ("graphml", "star.graphml", {}, swap("0.5 us", "0.5 parsec"), "latency: .*unknown unit"),
    (
        "graphml",
        "star.graphml",
        {},
        swap('target="sw"', 'target="sx"'),
        "edge.target: unknown node",
    ),
    ("graphml", "star.graphml", {}, swap('source="gpu2"', 'source="gpu3"'), "edge: duplicate edge"),
    ("graphml", "star.graphml", {}, swap('key="d1"', 'key="d9"'), "data.key: undeclared key"),
    ("graphml", "star.graphml", {"units": "1GB/s"}, swap("25", "26"), "unknown option 'units'"),
]


@pytest.mark.parametrize("kind, name, settings, change, message", MALFORMED)
def test_malformed_files_name_line_and_field(
    tmp_path: Path,
    kind: str,
    name: str,
    settings: dict[str, str],
    change: Callable[[str], str],
    message: str,
) -> None:
    path = changed(tmp_path, name, change)
    with pytest.raises(InputError, match=message) as caught:
        read(kind, path, settings)
    assert name in str(caught.value)


def test_negative_latency_in_a_matrix_names_its_own_file(tmp_path: Path) -> None:
    path = changed(tmp_path, "uneven.alpha.csv", swap("7e-7", "-7e-7"))
    with pytest.raises(
        InputError, match=r"uneven.alpha.csv: line 1, column 2: -7e-7 is a negative"
    ):
        load("teccl", "uneven.teccl.csv", alpha=str(path))


@pytest.mark.parametrize("count", ["18", "25"])
def test_wrong_link_count_is_read_with_a_complaint(tmp_path: Path, count: str) -> None:
    path = changed(tmp_path, "rail.simai.txt", swap(" 20 A100", f" {count} A100"))
    reading = read("simai", path)
    assert reading.network.num_links == 40
    assert len(reading.complaints) == 1
    assert (
        f"line 1, link_num: the header counts {count} links, the file has 20"
        in (reading.complaints[0])
    )
    with pytest.raises(InputError, match="line 1, link_num"):
        read("simai", path, strict=True)


def test_missing_and_empty_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read: No such file"):
        read("ns3", tmp_path / "none.txt")
    (tmp_path / "empty.txt").write_text("\n")
    with pytest.raises(InputError, match="is empty"):
        read("ns3", tmp_path / "empty.txt")
    with pytest.raises(UsageError, match="did you mean 'nccl'"):
        read("nccll", tmp_path / "empty.txt")


@pytest.mark.parametrize("kind", sorted(FORMATS))
@pytest.mark.parametrize(
    "junk", ["}{", "<a>", "1 2 3", "\x00\x01", "x = y", "[[[[", "- a\n- b", "0 0"]
)
def test_junk_is_an_input_error(tmp_path: Path, kind: str, junk: str) -> None:
    path = tmp_path / "junk"
    path.write_text(junk)
    with pytest.raises(InputError):
        read(kind, path, {"gpu": "h100"} if kind == "nvidia-smi" else {})


@pytest.mark.parametrize(
    ("number", "message"),
    [
        ("9" * 4400, "a number of 4400 characters; expected at most 400"),
        ("9_" * 2200 + "9", "a number of 4401 characters"),
        ("9:" * 2200 + "9", "a number of 4401 characters"),
        ("-0x" + "f" * 4400, "a number of 4403 characters"),
        ("1e999999999", r"latency\[0\]: '1e999999999'; expected an exponent of at most 400"),
        ("'1e-9_99999999'", "expected an exponent of at most 400"),
        ("'" + "9" * 4400 + "'", r"latency\[0\]: a number of about 4400 digits"),
    ],
)
def test_numbers_too_long_to_read_are_refused_at_once(
    tmp_path: Path, number: str, message: str
) -> None:
    text = (DATA / "rfs.astra.yml").read_text()
    file = tmp_path / "a.yml"
    file.write_text(text.replace("500.0", number, 1))
    begin = time.process_time()
    with pytest.raises(InputError, match=message):
        read("astra-sim", file, {})
    assert time.process_time() - begin < 1.0


def test_an_alias_bomb_is_refused_at_once(tmp_path: Path) -> None:
    rows = ["a0: &a0 [x, x]"] + [f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]" for i in range(1, 60)]
    file = tmp_path / "bomb.yml"
    file.write_text("\n".join(rows))
    begin = time.process_time()
    with pytest.raises(InputError, match=r"line 2.*has an alias; files with aliases are refused"):
        read("astra-sim", file, {})
    assert time.process_time() - begin < 1.0


def test_yaml_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(InputError, match="needs PyYAML: pip install pyyaml"):
        load("astra-sim", "rfs.astra.yml")


@pytest.mark.parametrize(
    "kind, name, settings",
    [
        ("ns3", "leaf-spine:4x4,bw=12.5GB/s,alpha=1us", {}),
        ("ns3", "mesh2d:3x4+log-uniform:0.1,1+seed:3", {}),
        ("simai", "torus2d:4x4", {}),
        ("graphml", "dgx1v", {}),
        ("graphml", "dgx-a100:2x8,alpha=0.7us:1.3us", {}),
        ("graphml", "ring:5,directed=yes+lognormal:1", {}),
        ("teccl", "torus2d:3x4,bw=25GB/s", {}),
        ("teccl", "mesh2d:3x3,alpha=0.7us+log-uniform:0.1,1", {}),
        ("sccl", "dgx1v", {"link": "25GB/s"}),
        ("sccl", "mesh2d:3x3", {"link": "1GB/s"}),
    ],
)
def test_written_files_read_back(
    tmp_path: Path, kind: str, name: str, settings: dict[str, str]
) -> None:
    network = network_by_name(name)
    paths = write(kind, network, tmp_path / "net.csv")
    if kind == "teccl":
        settings = {"alpha": str(paths[1])}
    back = read(kind, paths[0], settings, strict=True).network
    assert links(back) == links(network)
    assert back.is_switch.tolist() == network.is_switch.tolist()


@pytest.mark.parametrize(
    "kind, name, message",
    [
        ("ns3", "ring:4,directed=yes", "equal reverse"),
        ("ns3", "dgx1v", "parallel links"),
        ("teccl", "dgx1v", "parallel links"),
        ("sccl", "switch:4", "has switches"),
        ("sccl", "ring:4+log-uniform:0.1,1", "no multiple"),
    ],
)
def test_what_a_format_cannot_say(tmp_path: Path, kind: str, name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        write(kind, network_by_name(name), tmp_path / "net")
    assert not list(tmp_path.iterdir())
    with pytest.raises(UsageError, match="only read"):
        write("slurm", network_by_name(name), tmp_path / "net")


def test_networkx_reads_what_is_written(tmp_path: Path) -> None:
    write("graphml", network_by_name("fat-tree:4"), tmp_path / "net.graphml")
    graph = nx.read_graphml(tmp_path / "net.graphml")
    assert len(graph) == 36
    assert graph.number_of_edges() == 96
    assert sum(data.get("switch", False) for _, data in graph.nodes(data=True)) == 20


def test_topology_zoo_speeds_are_bits(tmp_path: Path) -> None:
    graph = nx.Graph()
    graph.add_edge("a", "b", LinkSpeedRaw=10_000_000_000)
    nx.write_graphml(graph, tmp_path / "zoo.graphml")
    assert (
        read("graphml", tmp_path / "zoo.graphml").network.bandwidth.tolist() == [1_250_000_000] * 2
    )


def test_graphml_bare_numbers_need_a_unit(tmp_path: Path) -> None:
    graph = nx.DiGraph()
    graph.add_edge("a", "b", bandwidth=2.5)
    nx.write_graphml(graph, tmp_path / "bare.graphml")
    network = read("graphml", tmp_path / "bare.graphml", {"unit": "1GiB/s"}).network
    assert links(network) == [(0, 1, 5 * GIB // 2, 0)]


def test_sccl_algorithm_files_hold_their_topology(tmp_path: Path) -> None:
    inner = json.loads((DATA / "dgx1.sccl.json").read_text())
    (tmp_path / "algo.json").write_text(json.dumps({"msccl_type": "algorithm", "topology": inner}))
    network = read("sccl", tmp_path / "algo.json", {"link": "25GB/s"}).network
    assert total(network) == 2 * 24 * 25 * GB


@pytest.mark.parametrize("kind, name, settings", [row[:3] for row in SAMPLES])
def test_damaged_files_never_end_in_another_error(
    tmp_path: Path, kind: str, name: str, settings: dict[str, str]
) -> None:
    """Sixty damaged copies: each is read or refused with an `InputError`."""
    text = (DATA / name).read_text()
    rng = np.random.default_rng(0)
    junk = ["", "-1", "9" * 20, "1e400", "nan", "null", "\n", "\t", "x", "[", '"', "<", "="]
    path = tmp_path / name
    refused = 0
    for _ in range(60):
        start = int(rng.integers(0, len(text)))
        stop = min(len(text), start + int(rng.integers(0, 4)))
        path.write_text(text[:start] + junk[int(rng.integers(0, len(junk)))] + text[stop:])
        try:
            read(kind, path, settings).network.topology()
        except InputError:
            refused += 1
    assert refused > 10
