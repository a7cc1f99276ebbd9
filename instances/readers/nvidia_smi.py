"""``nvidia-smi topo -m``: the matrix of how the GPUs of one machine are connected.

The matrix has link types, not bandwidths, so the NVLink generation is a setting: ``gpu=p100`` (20
GB/s a link, 4 links), ``v100`` (25, 6), ``a100`` (25, 12), ``h100``, ``h200``, ``gh200`` (25, 18),
``b200``, ``gb200``, ``b300``, ``gb300`` (50, 18), or one without NVLink (``l4``, ``l40s``, ``t4``);
or ``nvlink=RATE`` and ``links=N``. ``NVk`` is k links between a pair, except on NVSwitch systems,
where every pair shows the total of one GPU: a GPU whose row adds up to more links than it has is on
NVSwitches, if all GPUs that have NVLinks say the same, and then each of them has k links into one
switch.

A bundle of links stripes, so that a message uses all of it: one link of the sum. With
``bundles=separate`` its links stand side by side and a message uses one (not on an NVSwitch, which
spreads every message).

A GPU without NVLink among others that have it needs ``pcie=RATE``, which joins all GPUs to a host
switch with that bandwidth, or ``leave-out=3:5``, which leaves GPUs out by number. Latencies are 0.
The header's underline codes, which ``nvidia-smi`` prints even into a pipe, are removed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nestopt.instances.network import NetworkBuilder
from nestopt.instances.readers.base import bundle, whole
from nestopt.instances.spec import LinkSpec

if TYPE_CHECKING:
    from nestopt.instances.readers.base import Reading, Source

__all__ = ["GENERATIONS", "read_nvidia_smi"]

GENERATIONS = {
    "p100": (20, 4),
    "v100": (25, 6),
    "a100": (25, 12),
    "h100": (25, 18),
    "h200": (25, 18),
    "gh200": (25, 18),
    "b200": (50, 18),
    "gb200": (50, 18),
    "b300": (50, 18),
    "gb300": (50, 18),
    "l4": (0, 0),
    "l40s": (0, 0),
    "t4": (0, 0),
}
"""NVLink bandwidth a link and direction (GB/s) and links a GPU."""

_UNDERLINE = re.compile(r"\x1b\[[0-9;]*m")
_DEVICE = re.compile(r"^(GPU\d+|NIC\d+|mlx\w+|ib\w+)$")
_NVLINK = re.compile(r"^NV(\d+)$")
_TYPES = ("X", "PIX", "PXB", "PHB", "NODE", "SYS", "SOC", "PSB")
_AFFINITY = re.compile(r"^(\d+([-,]\d+)*,?|N/A)$")


@dataclass(frozen=True, slots=True)
class _Matrix:
    gpus: list[str]
    lines: list[int]
    links: list[list[int]]


def read_nvidia_smi(source: Source) -> Reading:
    """Read the matrix.

    Settings: ``gpu`` or ``nvlink`` and ``links``, ``nvswitch``, ``bundles``, ``pcie``,
    ``leave-out``.
    """
    rate, most = _generation(source)
    matrix = _leave_out(source, _parse(source))
    mode = source.settings.choice("nvswitch", ("auto", "yes", "no"), "auto")
    stripe = source.settings.choice("bundles", ("stripe", "separate"), "stripe") == "stripe"
    switched = _on_nvswitch(source, matrix, most, mode)
    builder = NetworkBuilder()
    gpus = [builder.npu(name) for name in matrix.gpus]
    alone = [gpu for gpu, row in zip(gpus, matrix.links) if not any(row)]
    if switched:
        switch = builder.switch("nvswitch")
        link, _ = bundle(LinkSpec(rate), switched, stripe=True)
        for gpu in gpus:
            if gpu not in alone:
                builder.cable(gpu, switch, link, "nvlink")
    else:
        for a in range(len(gpus)):
            for b in range(a + 1, len(gpus)):
                count = matrix.links[a][b]
                if count:
                    link, number = bundle(LinkSpec(rate), count, stripe=stripe)
                    builder.cable(gpus[a], gpus[b], link, "nvlink", number)
    _pcie(source, builder, matrix, gpus, alone)
    builder.group("node", gpus)
    return source.reading(builder.build(source.name))


def _pcie(
    source: Source, builder: NetworkBuilder, matrix: _Matrix, gpus: list[int], alone: list[int]
) -> None:
    """The host switch, where its rate is stated; needed where a GPU has no NVLink."""
    if source.settings.option("pcie") is not None:
        host = builder.switch("host")
        link = LinkSpec(source.rate("pcie", "how fast PCIe is"))
        for gpu in gpus:
            builder.cable(gpu, host, link, "pcie")
    elif alone and len(gpus) > 1:
        names = [matrix.gpus[gpu] for gpu in alone]
        numbers = ":".join(name.removeprefix("GPU") for name in names)
        raise source.error(
            "has no NVLink and the format does not say how fast PCIe is; give the setting pcie "
            f"(pcie=64GB/s, say), or leave GPUs out with leave-out={numbers}",
            matrix.lines[alone[0]],
            names[0],
        )
    if alone and len(alone) < len(gpus):
        names = [matrix.gpus[gpu] for gpu in alone]
        source.complain(
            "has no NVLink while others have; it is reached by PCIe alone",
            matrix.lines[alone[0]],
            ", ".join(names),
        )


def _leave_out(source: Source, matrix: _Matrix) -> _Matrix:
    """The matrix without the GPUs of the setting ``leave-out``, numbers separated by colons."""
    text = source.settings.option("leave-out")
    if text is None:
        return matrix
    out = set()
    for part in text.split(":"):
        name = f"GPU{whole(source, part, None, 'setting leave-out')}"
        if name not in matrix.gpus:
            raise source.error(f"the matrix has no {name}", None, "setting leave-out")
        out.add(name)
    kept = [index for index, name in enumerate(matrix.gpus) if name not in out]
    return _Matrix(
        [matrix.gpus[a] for a in kept],
        [matrix.lines[a] for a in kept],
        [[matrix.links[a][b] for b in kept] for a in kept],
    )


def _generation(source: Source) -> tuple[int, int]:
    """Bytes/s of an NVLink and direction, and the links of a GPU."""
    settings = source.settings
    gpu, nvlink = settings.option("gpu"), settings.option("nvlink")
    if gpu is not None:
        settings.choice("gpu", sorted(GENERATIONS), gpu)
        rate, most = GENERATIONS[gpu]
        return rate * 10**9, most
    if nvlink is None:
        source.needed("gpu", f"how fast an NVLink is ({', '.join(GENERATIONS)}, or nvlink=RATE)")
    return source.rate("nvlink", "how fast an NVLink is"), settings.option_integer("links", 18)


def _parse(source: Source) -> _Matrix:
    header: list[str] = []
    found = _Matrix([], [], [])
    header_line = 0
    for number, raw in enumerate(source.text.splitlines(), start=1):
        line = _UNDERLINE.sub("", raw)
        if "\x1b" in line:
            raise source.error("holds terminal control codes", number, "header")
        if line != raw:
            source.complain("terminal colour codes were removed", number, "header")
        tokens = line.split()
        if not tokens:
            continue
        if not header:
            if not tokens[0].startswith("GPU"):
                raise source.error(f"{tokens[0]!r}; expected the header GPU0 GPU1 ...", number)
            header = [t for t in tokens if _DEVICE.match(t)]
            header_line = number
        elif tokens[0].startswith("GPU"):
            _row(source, header, tokens, number, found)
        elif not _DEVICE.match(tokens[0]):
            break
    gpus = [name for name in header if name.startswith("GPU")]
    if not header:
        raise source.error("has no header GPU0 GPU1 ...", 1)
    if found.gpus != gpus:
        missing = sorted(set(gpus) ^ set(found.gpus))
        raise source.error(
            f"header lists {', '.join(gpus)}; rows are {', '.join(found.gpus)}",
            header_line,
            missing[0] if missing else found.gpus[0],
        )
    for a, row in enumerate(found.links):
        for b, count in enumerate(row):
            if count != found.links[b][a]:
                raise source.error(
                    f"{count} links, but {found.links[b][a]} the other way",
                    found.lines[a],
                    f"{gpus[a]} to {gpus[b]}",
                )
    return found


def _row(source: Source, header: list[str], tokens: list[str], line: int, found: _Matrix) -> None:
    name, cells = tokens[0], tokens[1:]
    if name in found.gpus:
        raise source.error("has a second row", line, name)
    links = []
    for position, device in enumerate(header):
        cell = cells[position] if position < len(cells) else None
        if cell is None or _AFFINITY.match(cell):
            raise source.error(
                f"short row: {position} link types for {len(header)} devices", line, name
            )
        nvlink = _NVLINK.match(cell)
        if nvlink is None and cell not in _TYPES:
            raise source.error(f"unknown link type {cell!r}", line, f"{name} to {device}")
        if (cell == "X") != (device == name):
            raise source.error(f"{cell!r} off or on the diagonal", line, f"{name} to {device}")
        if device.startswith("GPU"):
            links.append(whole(source, nvlink[1], line, f"{name} to {device}") if nvlink else 0)
    found.gpus.append(name)
    found.lines.append(line)
    found.links.append(links)


def _on_nvswitch(source: Source, matrix: _Matrix, most: int, mode: str) -> int:
    """Links of every GPU into the NVSwitch; 0 where links go from GPU to GPU.

    GPUs without any NVLink are not on the switch and do not speak against one.
    """
    with_links = [a for a, row in enumerate(matrix.links) if any(row)]
    off = {matrix.links[a][b] for a in with_links for b in with_links if a != b}
    too_many = next((a for a, row in enumerate(matrix.links) if sum(row) > most), None)
    uniform = len(off) == 1 and 0 not in off
    if mode == "yes" or (mode == "auto" and too_many is not None and uniform):
        if not uniform:
            raise source.error("pairs differ, as they do not on an NVSwitch", matrix.lines[0])
        per_gpu = off.pop()
        if per_gpu > most:
            raise source.error(
                f"NV{per_gpu}, but a GPU has {most} links", matrix.lines[0], matrix.gpus[0]
            )
        return per_gpu
    if too_many is not None:
        total = sum(matrix.links[too_many])
        raise source.error(
            f"{total} links in the row, but a GPU has {most}; on NVSwitch systems the matrix shows "
            "each GPU's total per pair (nvswitch=yes)",
            matrix.lines[too_many],
            matrix.gpus[too_many],
        )
    return 0
