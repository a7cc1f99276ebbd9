"""Files of real machines with something odd in them: what is read is the machine, or it is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from nestopt.core.errors import InputError
from nestopt.instances.readers import read

if TYPE_CHECKING:
    from pathlib import Path

    from nestopt.instances.network import Network
    from nestopt.instances.readers.base import Reading

GB = 10**9
PCIE_4 = round(16 * GB * 16 * 128 / 130 / 8)
NVSWITCH = '<nvlink target="fffffff:ff:ff.0" count="18" tclass="0x068000"/>'


def _pci(bus: str, inner: str, speed: str = "16.0 GT/s PCIe", width: str = "16") -> str:
    return f'<pci busid="{bus}" link_speed="{speed}" link_width="{width}">{inner}</pci>'


def _gpu(dev: int, links: str, *, sm: str = "90", more: str = "") -> str:
    return f'<gpu dev="{dev}" sm="{sm}" {more} rank="{dev}" gdr="1">{links}</gpu>'


def _cpu(inner: str, numa: int = 0) -> str:
    return f'<cpu host_hash="0x1" numaid="{numa}">{inner}</cpu>'


def _nccl(tmp_path: Path, cpus: str, *, strict: bool = False, **settings: str) -> Reading:
    path = tmp_path / "node.xml"
    path.write_text(f'<system version="1">\n{cpus}\n</system>\n')
    return read("nccl", path, settings, strict=strict)


def _tiers(network: Network) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for tier, bandwidth in zip(network.tier, network.bandwidth.tolist()):
        found.setdefault(tier, []).append(bandwidth)
    return found


def _mi50(other: str, dev: int) -> str:
    link = f'<xgmi target="{other}" count="4" tclass="0x038000"/>'
    return _gpu(dev, link, sm="64", more='gcn="906" arch="38911"')


MI50 = _cpu(
    _pci("43", _mi50("23", 0), speed="16 GT/s") + _pci("23", _mi50("43", 1), speed="16 GT/s")
)


def test_xgmi_links_are_links(tmp_path: Path) -> None:
    reading = _nccl(tmp_path, MI50, strict=True)
    tiers = _tiers(reading.network)
    assert tiers == {"pcie": [PCIE_4] * 4, "xgmi": [25 * GB] * 8}
    assert reading.complaints == ()
    stated = _nccl(tmp_path, MI50, xgmi="46GB/s", bundles="stripe").network
    assert _tiers(stated)["xgmi"] == [4 * 46 * GB] * 2


def test_an_unknown_amd_generation_asks_for_the_rate(tmp_path: Path) -> None:
    cpus = MI50.replace('gcn="906"', 'gcn="1100"')
    with pytest.raises(InputError, match=r"gpu\.gcn.*unknown GPU generation '1100'.*setting xgmi"):
        _nccl(tmp_path, cpus)
    assert _tiers(_nccl(tmp_path, cpus, xgmi="20GB/s").network)["xgmi"] == [20 * GB] * 8


def test_two_gpus_of_one_device_are_two_npus(tmp_path: Path) -> None:
    parts = "".join(
        _gpu(0, NVSWITCH.replace("18", "36"), sm="107", more=f'mlopart="{part}"')
        for part in range(2)
    )
    reading = _nccl(tmp_path, _cpu(_pci("0e", parts)))
    network = reading.network
    assert [network.node_names[i] for i in network.npus] == ["gpu0.0", "gpu0.1"]
    assert _tiers(network)["nvlink"] == [36 * 50 * GB] * 4
    assert _tiers(network)["pcie"] == [PCIE_4] * 6
    assert "2 GPUs in one device" in reading.complaints[0]


def test_a_gpu_without_its_nvlinks_is_told(tmp_path: Path) -> None:
    c2c = '<c2c bw="44712" count="5"/>'
    gpus = [_gpu(i, (NVSWITCH if i != 1 else "") + c2c, sm="103") for i in range(4)]
    cpus = _cpu("".join(_pci(f"0{i}", gpu) for i, gpu in enumerate(gpus)))
    reading = _nccl(tmp_path, cpus)
    assert len(reading.complaints) == 1
    assert "gpu1 has no NVLink or xGMI link while a peer has 18" in reading.complaints[0]
    assert _tiers(reading.network)["nvlink"] == [18 * 50 * GB] * 6
    assert _tiers(reading.network)["c2c"] == [5 * 44_712 * 10**6] * 8
    with pytest.raises(InputError, match="gpu1 has no NVLink"):
        _nccl(tmp_path, cpus, strict=True)


@pytest.mark.parametrize(
    ("speed", "width", "said", "bandwidth"),
    [
        ("16.0 GT/s PCIe", "0", "0 lanes; read as 16", PCIE_4),
        ("Unknown speed", "16", "'Unknown speed' is no known speed; read as 8", PCIE_4 // 2),
        ("", "16", "'' is no known speed; read as 8 GT/s", PCIE_4 // 2),
    ],
)
def test_an_unknown_pcie_link_is_read_as_nccl_reads_it(
    tmp_path: Path, speed: str, width: str, said: str, bandwidth: int
) -> None:
    cpus = _cpu("".join(_pci(f"0{i}", _gpu(i, NVSWITCH), speed, width) for i in range(2)))
    reading = _nccl(tmp_path, cpus)
    assert len(reading.complaints) == 2
    assert said in reading.complaints[0]
    assert _tiers(reading.network)["pcie"] == pytest.approx([bandwidth] * 4, abs=1)
    with pytest.raises(InputError, match="line 2"):
        _nccl(tmp_path, cpus, strict=True)


def test_a_speed_that_is_no_speed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"pci\.link_speed.*'fast'"):
        _nccl(tmp_path, _cpu(_pci("00", _gpu(0, NVSWITCH), "fast")))


def _two_cpus(guids: tuple[str, str]) -> str:
    return "\n".join(
        _cpu(
            _pci(f"0{numa}", _gpu(numa, NVSWITCH))
            + f'<nic><net name="eth0" dev="0" speed="10000" guid="{guid}"/></nic>',
            numa,
        )
        for numa, guid in enumerate(guids)
    )


def test_one_nic_under_both_cpus_is_one_port(tmp_path: Path) -> None:
    reading = _nccl(tmp_path, _two_cpus(("0x0", "0x0")), smp="20GB/s")
    assert [name for name in reading.network.node_names if name.startswith("net")] == ["net eth0"]
    assert "eth0 stands under cpu0 and cpu1" in reading.complaints[0]
    two = _nccl(tmp_path, _two_cpus(("0x1", "0x2")), smp="20GB/s", strict=True)
    assert [n for n in two.network.node_names if n.startswith("net")] == ["net eth0", "net eth0 #2"]


def test_a_known_element_that_is_not_used_is_told(tmp_path: Path) -> None:
    gpu = _gpu(0, NVSWITCH + '<pcilink target="01"/>')
    cpus = _cpu(_pci("00", gpu) + _pci("01", _gpu(1, NVSWITCH)))
    reading = _nccl(tmp_path, cpus)
    assert len(reading.complaints) == 1
    assert "<pcilink>" in reading.complaints[0]
    assert "not used" in reading.complaints[0]
    with pytest.raises(InputError, match="pcilink"):
        _nccl(tmp_path, cpus, strict=True)


def test_generation_120_without_nvlink_is_read(tmp_path: Path) -> None:
    cpus = _cpu("".join(_pci(f"0{i}", _gpu(i, "", sm="120")) for i in range(2)))
    assert set(_tiers(_nccl(tmp_path, cpus, strict=True).network)) == {"pcie"}
    cpus = _cpu("".join(_pci(f"0{i}", _gpu(i, NVSWITCH, sm="120")) for i in range(2)))
    with pytest.raises(InputError, match=r"unknown GPU generation 120; .* setting nvlink"):
        _nccl(tmp_path, cpus)
    assert _tiers(_nccl(tmp_path, cpus, nvlink="50GB/s").network)["nvlink"] == [900 * GB] * 4


def test_nvlink_to_a_cpu_goes_to_the_cpu(tmp_path: Path) -> None:
    link = '<nvlink target="0000:00:00.0" count="3" tclass="0x068001"/>'
    network = _nccl(tmp_path, _cpu(_pci("00", _gpu(0, link, sm="70"))), strict=True).network
    assert network.node_names == ("cpu0", "gpu0")
    assert _tiers(network)["nvlink"] == [75 * GB] * 2


# --- nvidia-smi ----------------------------------------------------------------------------------


def _matrix(tmp_path: Path, cells: list[list[str]]) -> Path:
    names = [f"GPU{i}" for i in range(len(cells))]
    rows = ["\t" + "\t".join([*names, "CPU Affinity"])]
    rows += ["\t".join([name, *row, "0-47"]) for name, row in zip(names, cells)]
    path = tmp_path / "topo.txt"
    path.write_text("\n".join(rows) + "\n")
    return path


def _nv18(tmp_path: Path, dead: int | None = None, size: int = 8) -> Path:
    def cell(a: int, b: int) -> str:
        return " X " if a == b else "SYS" if dead in (a, b) else "NV18"

    return _matrix(tmp_path, [[cell(a, b) for b in range(size)] for a in range(size)])


def test_all_gather_on_an_nvswitch_takes_what_its_bandwidth_says(tmp_path: Path) -> None:
    from nestopt.collective.bounds import best_bound
    from nestopt.collective.model.instance import CollectiveInstance
    from nestopt.core.registry import named

    topology = read("nvidia-smi", _nv18(tmp_path), {"gpu": "h100"}, strict=True).network.topology()
    collective = named("collective", "all-gather:size=64MiB").on(topology)
    # 7 chunks in and a hop out of the last one
    assert best_bound(CollectiveInstance(topology, collective))["value"] == pytest.approx(
        8 * 64 * 2**20 / 450e9 * 1e12, rel=1e-9
    )


def test_a_dead_gpu_goes_by_pcie_or_is_left_out(tmp_path: Path) -> None:
    path = _nv18(tmp_path, dead=3)
    with pytest.raises(InputError, match=r"GPU3: has no NVLink .*pcie=64GB/s.*leave-out=3"):
        read("nvidia-smi", path, {"gpu": "h100"})
    reading = read("nvidia-smi", path, {"gpu": "h100", "pcie": "64GB/s"})
    assert _tiers(reading.network) == {"nvlink": [450 * GB] * 14, "pcie": [64 * GB] * 16}
    assert "GPU3: has no NVLink while others have" in reading.complaints[0]
    left = read("nvidia-smi", path, {"gpu": "h100", "leave-out": "3"}, strict=True).network
    assert [left.node_names[i] for i in left.npus] == [f"GPU{i}" for i in range(8) if i != 3]
    assert _tiers(left) == {"nvlink": [450 * GB] * 14}
    with pytest.raises(InputError, match="setting leave-out: the matrix has no GPU9"):
        read("nvidia-smi", path, {"gpu": "h100", "leave-out": "9"})


def test_a_bundle_between_two_gpus_stripes_unless_asked_otherwise(tmp_path: Path) -> None:
    path = _matrix(tmp_path, [["X", "NV4"], ["NV4", "X"]])
    assert read("nvidia-smi", path, {"gpu": "a100"}).network.bandwidth.tolist() == [100 * GB] * 2
    separate = read("nvidia-smi", path, {"gpu": "a100", "bundles": "separate"}).network
    assert separate.bandwidth.tolist() == [25 * GB] * 8


@pytest.mark.parametrize(
    ("gpu", "gigabytes"), [("h200", 450), ("gh200", 450), ("b200", 900), ("gb200", 900)]
)
def test_generations_by_name(tmp_path: Path, gpu: str, gigabytes: int) -> None:
    network = read("nvidia-smi", _nv18(tmp_path), {"gpu": gpu}).network
    assert set(network.bandwidth.tolist()) == {gigabytes * GB}


@pytest.mark.parametrize("gpu", ["t4", "l4", "l40s"])
def test_generations_without_nvlink(tmp_path: Path, gpu: str) -> None:
    path = _matrix(tmp_path, [["X", "PHB"], ["PHB", "X"]])
    network = read("nvidia-smi", path, {"gpu": gpu, "pcie": "32GB/s"}, strict=True).network
    assert _tiers(network) == {"pcie": [32 * GB] * 4}
    with pytest.raises(InputError, match="NV18, but a GPU has 0 links"):
        read("nvidia-smi", _nv18(tmp_path, size=2), {"gpu": gpu})


# --- schedulers ----------------------------------------------------------------------------------

HOSTS = {"gpus": "8", "nvlink": "450GB/s", "nic": "50GB/s"}
SLURM = """\
- topology: blocks
  block:
    block_sizes: [2, 4]
    blocks:
      - block: b1
        nodes: node[01-02]
      - block: b2
        nodes: node[03-04]
- topology: fabric
  cluster_default: true
  tree:
    switches:
      - switch: root
        children: s[1-2]
      - switch: s1
        nodes: node[01-02]
      - switch: s2
        nodes: node[03-04]
- topology: none
  flat: true
"""


def test_slurm_yaml(tmp_path: Path) -> None:
    path = tmp_path / "topology.yaml"
    path.write_text(SLURM)
    reading = read("slurm", path, {**HOSTS, "uplink": "400GB/s"})
    assert len(reading.network.npus) == 32
    assert {t: len(b) for t, b in _tiers(reading.network).items()} == {
        "nvlink": 64,
        "nic": 64,
        "uplink": 4,
    }
    assert "3 topologies; read fabric" in reading.complaints[0]
    blocks = read("slurm", path, {**HOSTS, "topology": "blocks"}, strict=True).network
    assert sorted(n for n in blocks.node_names if n.startswith("nvlink")) == [
        "nvlink b1",
        "nvlink b2",
    ]
    with pytest.raises(InputError, match="a flat topology lists no hosts"):
        read("slurm", path, {**HOSTS, "topology": "none"})
    with pytest.raises(InputError, match="no topology 'x'; there are blocks, fabric, none"):
        read("slurm", path, {**HOSTS, "topology": "x"})


OLDER = """\
switches:
- name: top
  switches: [a, b]
- name: a
  capacity_blocks: [c1]
- name: b
  capacity_blocks: [c2]
capacity_blocks:
- {name: c1, type: GB200, nvlink: nvl1, nodes: [n1, n2]}
- {name: c2, type: GB200, nvlink: nvl2, nodes: [n3, n4]}
"""
NEWER = """\
switches:
  top: {switches: [a, b]}
blocks:
- {switch: a, nodes: ["n[1-2]"], labels: {accelerated.topology.nvidia.com/level-0: nvl1}}
- {switch: b, nodes: ["n[3-4]"], labels: {accelerated.topology.nvidia.com/level-0: nvl2}}
"""


@pytest.mark.parametrize("text", [OLDER, NEWER], ids=["older", "newer"])
def test_topograph_yaml(tmp_path: Path, text: str) -> None:
    path = tmp_path / "model.yaml"
    path.write_text(text)
    network = read("topograph", path, {**HOSTS, "uplink": "400GB/s"}, strict=True).network
    assert len(network.npus) == 32
    names = [n for n in network.node_names if ".gpu" not in n]
    assert sorted(names) == ["a", "b", "nvlink nvl1", "nvlink nvl2", "top"]
    assert {t: len(b) for t, b in _tiers(network).items()} == {
        "nvlink": 64,
        "nic": 64,
        "uplink": 4,
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("switches: &a [1]\nblocks: *a\n", r"line 2, \*a: has an alias"),
        ("switches:\n  top: {switches: [a]}\n  top: {}\n", "top: is given twice"),
        ("switches: [1, 2]\n", "switches: expected a list of mappings"),
        ("switches: {a: 7}\n", r"switches\.a: expected a mapping"),
    ],
)
def test_malformed_yaml_is_named(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "model.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=said):
        read("topograph", path, HOSTS)


# --- how much data a collective moves ------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "chunk", "chunks"),
    [
        ("all-gather:buffer=64MiB", 8 * 2**20, 8),
        ("all-gather:buffer=64MiB,chunks=4", 2 * 2**20, 32),
        ("all-reduce:buffer=1000B", 125, 8),
        ("all-to-all:buffer=1MiB", 2**17, 56),
        ("broadcast:buffer=1001B,chunks=2", 501, 2),
        ("all-gather:size=1MB,chunks=4", 10**6, 32),
    ],
)
def test_buffer_is_what_benchmarks_call_the_size(name: str, chunk: int, chunks: int) -> None:
    from nestopt.core.registry import named

    collective = named("collective", name).on(named("topology", "switch:8"))
    assert {part.chunk_size for part in collective.parts} == {chunk}
    assert collective.num_chunks == chunks
