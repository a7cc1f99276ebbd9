"""NCCL's topology XML (``NCCL_TOPO_DUMP_FILE``) of one machine.

Conventions of the format: ``<nvlink target= count= tclass=>`` under a ``<gpu>`` is `count` links to
a GPU (class 0x0302..) or an NVSwitch (class 0x0680..); ``link_speed`` is in GT/s a lane,
``link_width`` in lanes; ``<net speed=>`` is in Mb/s and its ``latency`` in microseconds. The rate
of an NVLink is not in the file and follows from the GPU's ``sm``: 60 20 GB/s, 70 to 90 25 GB/s, 100
50 GB/s a direction. A PCIe lane carries 8/10 of its transfers up to 5 GT/s and 128/130 above. CPUs,
PCIe bridges, NVSwitches and NICs become switches; CPUs are joined with the setting ``smp`` (needed
where there are two).
"""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING

from nestopt.instances.network import NetworkBuilder
from nestopt.instances.readers.base import MOST_PARALLEL, link_spec, whole
from nestopt.instances.readers.xml import parse_xml
from nestopt.instances.spec import LinkSpec

if TYPE_CHECKING:
    from nestopt.instances.readers.base import Reading, Source
    from nestopt.instances.readers.xml import Element

__all__ = ["read_nccl"]

_NVLINK_GB = {6: 20, 7: 25, 8: 25, 9: 25, 10: 50}
_KNOWN = ("cpu", "pci", "gpu", "nic", "net", "nvlink", "c2c", "xgmi", "pcilink")


def read_nccl(source: Source) -> Reading:
    """Read the XML; setting ``smp`` (bandwidth between CPUs)."""
    root = parse_xml(source)
    if root.tag != "system":
        raise source.error(f"root element {root.tag!r}; expected 'system'", root.line, root.tag)
    builder = NetworkBuilder()
    state = _State(source, builder)
    cpus = [state.cpu(element) for element in root.children if state.expect(element, "cpu")]
    if not cpus:
        raise source.error("has no <cpu>", root.line, "system")
    if len(cpus) > 1:
        rate = source.rate("smp", "how fast CPUs reach each other")
        for a, b in pairwise(cpus):
            builder.cable(a, b, LinkSpec(rate), "smp")
    state.nvlinks()
    return source.reading(builder.build(source.name))


class _State:
    """The network so far and the GPUs by bus id."""

    def __init__(self, source: Source, builder: NetworkBuilder) -> None:
        self.source, self.builder = source, builder
        self.gpus: dict[str, tuple[int, Element]] = {}

    def expect(self, element: Element, *tags: str) -> bool:
        """True for an element with one of the tags; an unknown tag is an error."""
        if element.tag not in _KNOWN:
            raise self.source.error(f"unknown link type <{element.tag}>", element.line, element.tag)
        return element.tag in tags

    def attribute(self, element: Element, name: str) -> str:
        """An attribute that must be there."""
        if name not in element.attributes:
            raise self.source.error("is missing", element.line, f"{element.tag}.{name}")
        return element.attributes[name]

    def cpu(self, element: Element) -> int:
        """A CPU and all that hangs from it."""
        node = self.builder.switch(f"cpu{self.attribute(element, 'numaid')}")
        for child in element.children:
            if self.expect(child, "pci"):
                self.pci(child, node)
            elif child.tag == "nic":
                self.nic(child, node, None)
        return node

    def pci(self, element: Element, parent: int) -> None:
        """A PCIe device: a bridge, or one with a GPU or a NIC in it."""
        bus = self.attribute(element, "busid")
        link = self._pcie(element)
        inner = [c for c in element.children if self.expect(c, "gpu", "nic", "pci")]
        gpus = [c for c in inner if c.tag == "gpu"]
        if gpus:
            if bus in self.gpus:
                raise self.source.error(f"duplicate bus id {bus}", element.line, "pci.busid")
            index = whole(self.source, self.attribute(gpus[0], "dev"), gpus[0].line, "gpu.dev")
            node = self.builder.npu(f"gpu{index}")
            self.gpus[bus] = (node, gpus[0])
            self.builder.cable(node, parent, link, "pcie")
            return
        node = self.builder.switch(f"pci{bus}")
        self.builder.cable(node, parent, link, "pcie")
        for child in inner:
            if child.tag == "pci":
                self.pci(child, node)
            else:
                self.nic(child, node, link)

    def nic(self, element: Element, parent: int, link: LinkSpec | None) -> None:
        """The ports of a NIC, each a switch."""
        for net in element.children:
            if self.expect(net, "net"):
                speed = self.attribute(net, "speed")
                port = link_spec(
                    self.source,
                    (speed, Fraction(10**6, 8)),
                    (net.attributes.get("latency", "0"), 10**6),
                    net.line,
                    ("net.speed", "net.latency"),
                )
                node = self.builder.switch(f"net {self.attribute(net, 'name')}")
                self.builder.cable(node, parent, port, "nic")

    def _pcie(self, element: Element) -> LinkSpec:
        speed = self.attribute(element, "link_speed").split()
        if len(speed) < 2 or not speed[1].startswith("GT/s"):
            raise self.source.error(
                f"{' '.join(speed)!r}; expected a rate such as '16.0 GT/s PCIe'",
                element.line,
                "pci.link_speed",
            )
        width = whole(
            self.source, self.attribute(element, "link_width"), element.line, "pci.link_width"
        )
        probe = link_spec(
            self.source, (speed[0], 10**9), (0, 1), element.line, ("pci.link_speed", "")
        )
        encoding = Fraction(8, 10) if probe.bandwidth <= 5 * 10**9 else Fraction(128, 130)
        return link_spec(
            self.source,
            (speed[0], 10**9 * encoding * width / 8),
            (0, 1),
            element.line,
            ("pci.link_width", ""),
        )

    def nvlinks(self) -> None:
        """The NVLinks of all GPUs, from each GPU's own list."""
        switches: dict[str, int] = {}
        pairs: dict[tuple[int, int], tuple[int, Element]] = {}
        for node, gpu in self.gpus.values():
            sm = whole(self.source, self.attribute(gpu, "sm"), gpu.line, "gpu.sm")
            if sm // 10 not in _NVLINK_GB:
                raise self.source.error(f"unknown GPU generation {sm}", gpu.line, "gpu.sm")
            link = LinkSpec(_NVLINK_GB[sm // 10] * 10**9)
            seen: set[str] = set()
            for element in gpu.children:
                if not self.expect(element, "nvlink"):
                    continue
                target = self.attribute(element, "target")
                count = whole(
                    self.source,
                    self.attribute(element, "count"),
                    element.line,
                    "nvlink.count",
                    minimum=1,
                    maximum=MOST_PARALLEL,
                )
                if target in seen:
                    raise self.source.error(
                        f"duplicate edge to {target}", element.line, "nvlink.target"
                    )
                seen.add(target)
                kind = self.attribute(element, "tclass")
                if kind.startswith("0x0680"):
                    if target not in switches:
                        switches[target] = self.builder.switch(f"nvswitch {target}")
                    self.builder.cable(node, switches[target], link, "nvlink", count)
                elif kind.startswith("0x0302"):
                    if target not in self.gpus:
                        raise self.source.error(
                            f"no GPU at {target}", element.line, "nvlink.target"
                        )
                    other = self.gpus[target][0]
                    pairs[node, other] = (count, element)
                    self.builder.link(node, other, link, "nvlink", count)
                else:
                    raise self.source.error(
                        f"unknown link type {kind!r}", element.line, "nvlink.tclass"
                    )
        for (a, b), (count, element) in pairs.items():
            if pairs.get((b, a), (0, element))[0] != count:
                raise self.source.error(
                    f"{count} links, but {pairs.get((b, a), (0, element))[0]} the other way",
                    element.line,
                    "nvlink.count",
                )
