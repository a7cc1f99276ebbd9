"""Readers (and some writers) of the topology files that the field uses.

Every reader keeps its format's own units, which its module documents, and asks for what the format
does not say as a setting instead of guessing it.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from nestopt.core.errors import InputError, UsageError, unknown_name
from nestopt.core.io import write_text
from nestopt.instances.readers.base import Reading, Source

if TYPE_CHECKING:
    from pathlib import Path

    from nestopt.instances.network import Network

__all__ = ["FORMATS", "Format", "Reading", "read", "write"]


@dataclass(frozen=True, slots=True)
class Format:
    """One row of the table of formats.

    Attributes
    ----------
    reader : str
        ``module:function``, imported when used.
    summary : str
    settings : tuple of str
        The keys it understands.
    writer : str
        Function of the same module; empty if the format is only read.
    """

    reader: str
    summary: str
    settings: tuple[str, ...] = ()
    writer: str = ""


_HOSTS = ("gpus", "nvlink", "nic", "uplink", "alpha")
FORMATS: dict[str, Format] = {
    "nvidia-smi": Format(
        "nvidia_smi:read_nvidia_smi",
        "nvidia-smi topo -m",
        ("gpu", "nvlink", "links", "nvswitch", "bundles", "pcie", "leave-out"),
    ),
    "nccl": Format("nccl:read_nccl", "NCCL topology XML", ("smp", "nvlink", "xgmi", "bundles")),
    "astra-sim": Format("astra_sim:read_astra_sim", "ASTRA-sim network YAML"),
    "simai": Format("ns3:read_ns3", "SimAI topology text", (), "write_ns3"),
    "ns3": Format("ns3:read_ns3", "ns-3 topology text", (), "write_ns3"),
    "taccl": Format("matrices:read_taccl", "TACCL JSON", ("size", "nodes", "topo")),
    "sccl": Format(
        "matrices:read_sccl", "SCCL / MSCCL topology JSON", ("link", "alpha"), "write_sccl"
    ),
    "teccl": Format(
        "matrices:read_teccl", "TE-CCL-style matrices (CSV)", ("alpha", "switches"), "write_teccl"
    ),
    "slurm": Format(
        "hosts:read_slurm", "SLURM topology.conf or topology.yaml", ("topology", *_HOSTS)
    ),
    "topograph": Format("hosts:read_topograph", "topograph JSON or YAML model", _HOSTS),
    "graphml": Format("graphml:read_graphml", "GraphML", ("unit", "parallel"), "write_graphml"),
}


def _format(name: str) -> Format:
    if name not in FORMATS:
        raise unknown_name("format", name, FORMATS)
    return FORMATS[name]


def read(
    format_name: str,
    path: str | Path,
    settings: dict[str, str] | None = None,
    *,
    strict: bool = False,
) -> Reading:
    """Read a topology file.

    Parameters
    ----------
    format_name : str
        A key of `FORMATS`.
    path : path
    settings : dict, optional
        What the format does not say, as text (``{"gpus": "8", "nic": "50GB/s"}``).
    strict : bool
        Make an error of the first complaint.

    Raises
    ------
    UsageError
        If the format is unknown (with a suggestion).
    InputError
        If the file is malformed (naming file, line and field) or a setting is missing or wrong.
    """
    module, _, function = _format(format_name).reader.partition(":")
    source = Source.open(path, settings or {})
    reading: Reading = getattr(import_module(f"{__name__}.{module}"), function)(source)
    if strict and reading.complaints:
        raise InputError(reading.complaints[0])
    return reading


def write(format_name: str, network: Network, path: Path) -> list[Path]:
    """Write a network; the paths written (TE-CCL: ``F.csv`` and ``F.alpha.csv``).

    Raises
    ------
    UsageError
        If the format is unknown or only read.
    InputError
        If the format cannot express the network.
    """
    row = _format(format_name)
    if not row.writer:
        raise UsageError(f"{format_name} files are only read")
    module = row.reader.partition(":")[0]
    text = getattr(import_module(f"{__name__}.{module}"), row.writer)(network)
    if isinstance(text, str):
        write_text(path, text)
        return [path]
    paths = [path, path.with_suffix(f".alpha{path.suffix}")]
    for each, content in zip(paths, text):
        write_text(each, content)
    return paths
