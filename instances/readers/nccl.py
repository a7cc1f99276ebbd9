"""NCCL's and RCCL's topology XML (``NCCL_TOPO_DUMP_FILE``) of one machine.

What the elements mean, as NCCL reads them:

``<pci link_speed= link_width=>``
    A PCIe device and its link to the one above. ``link_speed`` is in GT/s a lane, ``link_width`` in
    lanes; a width of 0 means 16 lanes and an unknown speed 8 GT/s, both with a remark. A lane
    carries 8/10 of its transfers up to 5 GT/s and 128/130 above.
``<gpu>``
    An NPU. Several in one ``<pci>`` are parts of one device: an NPU each, behind one PCIe switch.
``<nvlink target= count= tclass=>``
    `count` links to a GPU (class 0x03....), an NVSwitch (0x068000) or the GPU's CPU (0x068001). The
    rate of a link is not in the file and follows from the GPU's ``sm``: 60 to 69 20 GB/s, 70 to 99
    25 GB/s, 100 to 119 50 GB/s a direction; the setting ``nvlink`` states it for others.
``<xgmi target= count=>``
    `count` Infinity Fabric links of an AMD GPU, whose ``sm`` is a number of compute units. The rate
    follows from its ``gcn`` (906, 908: 25 GB/s; gfx90a: 50; gfx942: 64; gfx950: 76.8 a direction,
    the vendor's figures); the setting ``xgmi`` states it for others.
``<c2c bw= count=>``
    A coherent link between a GPU and its CPU, `count` times `bw` MB/s.
``<nic><net speed= latency=>``
    A port of a NIC: Mb/s and microseconds. A port that stands under two CPUs of one host, with the
    same name and no other ``guid``, is one port that both reach, with a remark.

Links into an NVSwitch stripe: one link of the sum, as the switch spreads every message over all.
Links from GPU to GPU stay separate, since a message takes the links that the library gives it; the
setting ``bundles=stripe`` joins them. CPUs, PCIe switches, NVSwitches and NIC ports become
switches; CPUs of a host are joined with the setting ``smp`` (needed where there are two).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING

from nestopt.instances.network import NetworkBuilder
from nestopt.instances.readers.base import MOST_PARALLEL, bundle, link_spec, whole
from nestopt.instances.readers.xml import parse_xml
from nestopt.instances.spec import LinkSpec

if TYPE_CHECKING:
    from nestopt.instances.readers.base import Reading, Source
    from nestopt.instances.readers.xml import Element

__all__ = ["read_nccl"]

_NVLINK_GB = {6: 20, 7: 25, 8: 25, 9: 25, 10: 50, 11: 50}
"""GB/s of one NVLink and direction, by the tens of ``sm``."""

_XGMI_MB = {"906": 25_000, "908": 25_000, "90a": 50_000, "942": 64_000, "950": 76_800}
"""MB/s of one xGMI link and direction, by the end of ``gcn``; 910 is how RCCL writes gfx90a."""
_XGMI_MB["910"] = _XGMI_MB["90a"]

_KNOWN = ("cpu", "pci", "gpu", "nic", "net", "nvlink", "c2c", "xgmi", "pcilink")
_UNUSED = {"pcilink": "says which devices share a PCIe path"}


def read_nccl(source: Source) -> Reading:
    """Read the XML; settings ``smp``, ``nvlink``, ``xgmi``, ``bundles``."""
    root = parse_xml(source)
    if root.tag != "system":
        raise source.error(f"root element {root.tag!r}; expected 'system'", root.line, root.tag)
    machine = _Machine(source)
    for element in root.children:
        if machine.expect(element, "cpu"):
            machine.cpu(element)
    if not machine.cpus:
        raise source.error("has no <cpu>", root.line, "system")
    machine.join_cpus()
    links = _GpuLinks(source, machine)
    for gpu in machine.gpus:
        links.add(gpu)
    links.judge()
    return source.reading(machine.builder.build(source.name))


@dataclass(frozen=True, slots=True)
class _Gpu:
    """An NPU of the machine: its node, its CPU's node, its element and its PCIe device."""

    node: int
    cpu: int
    element: Element
    bus: str


@dataclass(slots=True)
class _Port:
    """A NIC port, and the CPUs that it stands under."""

    node: int
    guid: str
    cpus: list[str] = field(default_factory=list)


class _Machine:
    """CPUs, PCIe devices, GPUs and NICs: the tree of the file."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.builder = NetworkBuilder()
        self.cpus: dict[tuple[str, str], int] = {}
        self.gpus: list[_Gpu] = []
        self.by_bus: dict[str, list[_Gpu]] = {}
        self.ports: dict[tuple[str, str], list[_Port]] = {}
        self._names: set[str] = set()
        self._host, self._cpu, self._cpu_name = "", -1, ""

    def expect(self, element: Element, *tags: str) -> bool:
        """True for an element with one of the tags; what is known and not used is told."""
        if element.tag not in _KNOWN:
            raise self.source.error(f"unknown link type <{element.tag}>", element.line, element.tag)
        if element.tag in tags:
            return True
        if element.tag in _UNUSED:
            self.source.complain(
                f"<{element.tag}> {_UNUSED[element.tag]}; it is not used",
                element.line,
                element.tag,
            )
        return False

    def attribute(self, element: Element, name: str) -> str:
        """An attribute that must be there."""
        if name not in element.attributes:
            raise self.source.error("is missing", element.line, f"{element.tag}.{name}")
        return element.attributes[name]

    def unique(self, name: str) -> str:
        """A name that no node has yet."""
        chosen, number = name, 2
        while chosen in self._names:
            chosen, number = f"{name} #{number}", number + 1
        self._names.add(chosen)
        return chosen

    def cpu(self, element: Element) -> None:
        """A CPU and all that hangs from it."""
        self._host = element.attributes.get("host_hash", "")
        numa = self.attribute(element, "numaid")
        if (self._host, numa) in self.cpus:
            raise self.source.error(f"duplicate CPU {numa}", element.line, "cpu.numaid")
        self._cpu_name = self.unique(f"cpu{numa}")
        self._cpu = self.cpus[self._host, numa] = self.builder.switch(self._cpu_name)
        for child in element.children:
            if self.expect(child, "pci"):
                self.pci(child, self._cpu)
            elif child.tag == "nic":
                self.nic(child, self._cpu)
            elif child.tag not in _UNUSED:
                raise self.source.error(f"<{child.tag}> inside <cpu>", child.line, child.tag)

    def join_cpus(self) -> None:
        """Cables between the CPUs of each host."""
        by_host: dict[str, list[int]] = {}
        for (host, _), node in self.cpus.items():
            by_host.setdefault(host, []).append(node)
        if all(len(nodes) == 1 for nodes in by_host.values()):
            self.source.settings.option("smp")
            return
        rate = self.source.rate("smp", "how fast CPUs reach each other")
        for nodes in by_host.values():
            for a, b in pairwise(nodes):
                self.builder.cable(a, b, LinkSpec(rate), "smp")

    def pci(self, element: Element, parent: int) -> None:
        """A PCIe device: a bridge, or one with GPUs or a NIC in it."""
        bus = self.attribute(element, "busid")
        link = self._pcie(element)
        inner = [c for c in element.children if self.expect(c, "gpu", "nic", "pci")]
        gpus = [c for c in inner if c.tag == "gpu"]
        if gpus and bus in self.by_bus:
            raise self.source.error(f"duplicate bus id {bus}", element.line, "pci.busid")
        if len(gpus) == 1:
            self.gpu(gpus[0], bus, parent, link)
            above = parent
        elif gpus:
            above = self.builder.switch(self.unique(f"pci{bus}"))
            self.builder.cable(above, parent, link, "pcie")
            for gpu in gpus:
                self.gpu(gpu, bus, above, link)
            self.source.complain(
                f"{len(gpus)} GPUs in one device: an NPU each, sharing its PCIe link",
                element.line,
                "pci",
            )
        else:
            above = self.builder.switch(self.unique(f"pci{bus}"))
            self.builder.cable(above, parent, link, "pcie")
        for child in inner:
            if child.tag == "pci":
                self.pci(child, above)
            elif child.tag == "nic":
                self.nic(child, above)

    def gpu(self, element: Element, bus: str, parent: int, link: LinkSpec) -> None:
        """A GPU below a PCIe device."""
        index = whole(self.source, self.attribute(element, "dev"), element.line, "gpu.dev")
        part = element.attributes.get("mlopart")
        name = f"gpu{index}" if part is None else f"gpu{index}.{part}"
        node = self.builder.npu(self.unique(name))
        self.builder.cable(node, parent, link, "pcie")
        gpu = _Gpu(node, self._cpu, element, bus)
        self.gpus.append(gpu)
        self.by_bus.setdefault(bus, []).append(gpu)

    def nic(self, element: Element, parent: int) -> None:
        """The ports of a NIC, each a switch."""
        for net in element.children:
            if not self.expect(net, "net"):
                continue
            spec = link_spec(
                self.source,
                (self.attribute(net, "speed"), Fraction(10**6, 8)),
                (net.attributes.get("latency", "0"), 10**6),
                net.line,
                ("net.speed", "net.latency"),
            )
            self.builder.cable(self._port(net), parent, spec, "nic")

    def _port(self, net: Element) -> int:
        """The node of a NIC port; the same one where another CPU of the host lists it too."""
        name, guid = self.attribute(net, "name"), net.attributes.get("guid", "")
        known = self.ports.setdefault((self._host, name), [])
        for port in known:
            if port.guid == guid and self._cpu_name not in port.cpus:
                self.source.complain(
                    f"{name} stands under {', '.join(port.cpus)} and {self._cpu_name} with the "
                    "same guid; read as one port that they all reach",
                    net.line,
                    "net.name",
                )
                port.cpus.append(self._cpu_name)
                return port.node
        node = self.builder.switch(self.unique(f"net {name}"))
        known.append(_Port(node, guid, [self._cpu_name]))
        return node

    def _pcie(self, element: Element) -> LinkSpec:
        text = self.attribute(element, "link_speed")
        words = text.split()
        if len(words) < 2 or not words[1].startswith("GT/s"):
            if text.strip() and "unknown" not in text.lower():
                raise self.source.error(
                    f"{text!r}; expected a rate such as '16.0 GT/s PCIe'",
                    element.line,
                    "pci.link_speed",
                )
            self.source.complain(
                f"{text!r} is no known speed; read as 8 GT/s a lane", element.line, "pci.link_speed"
            )
            words = ["8.0", "GT/s"]
        width = whole(
            self.source, self.attribute(element, "link_width"), element.line, "pci.link_width"
        )
        if width == 0:
            self.source.complain("0 lanes; read as 16", element.line, "pci.link_width")
            width = 16
        lane = link_spec(
            self.source, (words[0], 10**9), (0, 1), element.line, ("pci.link_speed", "")
        )
        encoding = Fraction(8, 10) if lane.bandwidth <= 5 * 10**9 else Fraction(128, 130)
        unit = 10**9 * encoding * width / 8
        return link_spec(
            self.source, (words[0], unit), (0, 1), element.line, ("pci.link_width", "")
        )


class _GpuLinks:
    """NVLink, xGMI and C2C: each GPU lists its own, the two ends of a pair must agree."""

    def __init__(self, source: Source, machine: _Machine) -> None:
        self.source, self.machine = source, machine
        self.builder = machine.builder
        self.switches: dict[str, int] = {}
        self.pairs: dict[tuple[int, int], tuple[int, Element]] = {}
        self.counts: dict[int, int] = {}
        self.striped = source.settings.choice("bundles", ("separate", "stripe"), "separate")
        self._stated = {
            key: source.rate(key, "") if source.settings.option(key) is not None else None
            for key in ("nvlink", "xgmi")
        }

    def add(self, gpu: _Gpu) -> None:
        """All links of one GPU."""
        seen: set[str] = set()
        self.counts[gpu.node] = 0
        for element in gpu.element.children:
            if not self.machine.expect(element, "nvlink", "xgmi", "c2c"):
                if element.tag not in _UNUSED:
                    raise self.source.error(
                        f"<{element.tag}> inside <gpu>", element.line, element.tag
                    )
                continue
            if element.tag == "c2c":
                self._c2c(gpu, element)
                continue
            target = self.machine.attribute(element, "target")
            count = self._count(element)
            if target in seen:
                raise self.source.error(
                    f"duplicate edge to {target}", element.line, f"{element.tag}.target"
                )
            seen.add(target)
            self.counts[gpu.node] += count
            self._join(gpu, element, target, count)

    def _count(self, element: Element) -> int:
        return whole(
            self.source,
            self.machine.attribute(element, "count"),
            element.line,
            f"{element.tag}.count",
            minimum=1,
            maximum=MOST_PARALLEL,
        )

    def _join(self, gpu: _Gpu, element: Element, target: str, count: int) -> None:
        link = LinkSpec(self._rate(gpu.element, element.tag))
        kind = self.machine.attribute(element, "tclass")
        if kind.startswith("0x068001"):
            spec, number = bundle(link, count, stripe=True)
            self.builder.cable(gpu.node, gpu.cpu, spec, element.tag, number)
        elif kind.startswith("0x0680"):
            if target not in self.switches:
                self.switches[target] = self.builder.switch(f"nvswitch {target}")
            spec, number = bundle(link, count, stripe=True)
            self.builder.cable(gpu.node, self.switches[target], spec, element.tag, number)
        elif kind.startswith("0x03"):
            others = self.machine.by_bus.get(target, [])
            if len(others) != 1:
                found = "no GPU" if not others else f"{len(others)} GPUs"
                raise self.source.error(
                    f"{found} at {target}", element.line, f"{element.tag}.target"
                )
            self.pairs[gpu.node, others[0].node] = (count, element)
            spec, number = bundle(link, count, stripe=self.striped == "stripe")
            self.builder.link(gpu.node, others[0].node, spec, element.tag, number)
        else:
            raise self.source.error(
                f"unknown link type {kind!r}", element.line, f"{element.tag}.tclass"
            )

    def _rate(self, gpu: Element, tag: str) -> int:
        """Bytes/s of one link and direction."""
        stated = self._stated[tag]
        if stated is not None:
            return stated
        if tag == "xgmi":
            generation = self.machine.attribute(gpu, "gcn").removeprefix("gfx")
            if generation not in _XGMI_MB:
                raise self.source.error(
                    f"unknown GPU generation {generation!r}; give the rate of an xGMI link as the "
                    "setting xgmi",
                    gpu.line,
                    "gpu.gcn",
                )
            return _XGMI_MB[generation] * 10**6
        sm = whole(self.source, self.machine.attribute(gpu, "sm"), gpu.line, "gpu.sm")
        if sm // 10 not in _NVLINK_GB:
            raise self.source.error(
                f"unknown GPU generation {sm}; give the rate of an NVLink as the setting nvlink",
                gpu.line,
                "gpu.sm",
            )
        return _NVLINK_GB[sm // 10] * 10**9

    def _c2c(self, gpu: _Gpu, element: Element) -> None:
        count = self._count(element)
        spec = link_spec(
            self.source,
            (self.machine.attribute(element, "bw"), 10**6 * count),
            (0, 1),
            element.line,
            ("c2c.bw", ""),
        )
        self.builder.cable(gpu.node, gpu.cpu, spec, "c2c")

    def judge(self) -> None:
        """Both ends of a pair state the same links; a GPU that lacks its peers' is told."""
        for (a, b), (count, element) in self.pairs.items():
            back = self.pairs.get((b, a), (0, element))[0]
            if back != count:
                raise self.source.error(
                    f"{count} links, but {back} the other way",
                    element.line,
                    f"{element.tag}.count",
                )
        usual = max(self.counts.values(), default=0)
        for gpu in self.machine.gpus:
            if not self.counts[gpu.node] and usual:
                name = self.builder.name_of(gpu.node)
                self.source.complain(
                    f"{name} has no NVLink or xGMI link while a peer has {usual}",
                    gpu.element.line,
                    "gpu",
                )
