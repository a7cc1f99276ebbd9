"""AxoNN's models and the effective bandwidths measured on its machines, from the data file."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from nestopt.core.errors import InputError, unknown_name
from nestopt.core.registry import transformers
from nestopt.placement.model.transformer import Transformer

if TYPE_CHECKING:
    from nestopt.placement.model.cluster import Cluster

__all__ = [
    "Machine",
    "dense_model",
    "machine_names",
    "machine_of",
    "measured",
    "model_names",
    "named_model",
]


@cache
def _data() -> Any:
    return json.loads(files("nestopt").joinpath("data", "axonn.json").read_text(encoding="utf-8"))


@dataclass(frozen=True, slots=True)
class Machine:
    """What a group's bandwidth and latency follow from.

    Attributes
    ----------
    name : str
    devices_per_node : int
    internode : float
        Bytes/s that all devices of a node send out of it together.
    intranode : dict
        (product of preceding sizes, group size) to bytes/s per device inside a node.
    port : float
        Bytes/s per device inside a node where `intranode` has no entry.
    intranode_latency, internode_latency : float
        Seconds of a message.
    """

    name: str
    devices_per_node: int
    internode: float
    intranode: dict[tuple[int, int], float]
    port: float
    intranode_latency: float = 0.0
    internode_latency: float = 0.0

    def within_node(self, preceding: int, group: int) -> bool:
        """Whether groups of this stride and size stay inside a node."""
        return self.devices_per_node % (preceding * group) == 0

    def bandwidth(self, preceding: int, group: int) -> float:
        """Effective bytes/s of a device in a ring of `group` ranks of stride `preceding`.

        Inside a node it is the measured figure; a ring that leaves its node shares the node's
        ``internode`` with the rings of the preceding groups:
        ``internode / min(devices_per_node, preceding)``.

        References
        ----------
        arXiv 2305.13525, section on modelling effective bandwidths, equation 7.
        """
        if group == 1:
            return math.inf
        if self.within_node(preceding, group):
            return self.intranode.get((preceding, group), self.port)
        return self.internode / min(self.devices_per_node, preceding)


def machine_names() -> list[str]:
    """Machines whose bandwidths were measured by AxoNN."""
    return sorted(_data()["machines"])


def measured(name: str) -> Machine:
    """AxoNN's machine of a name, without latencies.

    Raises
    ------
    UsageError
        If AxoNN published no bandwidths of it.
    """
    rows = _data()["machines"]
    if name not in rows:
        raise unknown_name("machine with AxoNN's bandwidths", name, rows)
    row = rows[name]
    table = {(p, g): rate * 1e9 for p, g, rate in row["intranode_GBps"]}
    return Machine(
        name, row["devices_per_node"], row["internode_GBps"] * 1e9, table, max(table.values())
    )


def machine_of(cluster: Cluster) -> Machine:
    """The machine of a cluster: measured bandwidths if AxoNN has them, else the cluster's own.

    The cluster's innermost groups are read as nodes unless the measured machine says otherwise;
    latencies are the cluster's.
    """
    family = cluster.name.split(",")[0].rpartition("-")[0]
    latencies = [float(row[0]) for row in cluster.latency]
    if family in machine_names():
        base = measured(family)
        return Machine(
            base.name,
            base.devices_per_node,
            base.internode,
            base.intranode,
            base.port,
            latencies[0],
            latencies[-1],
        )
    port, outside = float(cluster.port[0, 0]), float(cluster.port[-1, 0])
    size = int(cluster.sizes[0][0])
    uplink = min(float(cluster.uplink[0, 0]), outside * size)
    return Machine(cluster.name, size, uplink, {}, port, latencies[0], latencies[-1])


def model_names() -> list[str]:
    """Names of AxoNN's models."""
    return list(_data()["models"])


def named_model(name: str) -> tuple[Transformer, int]:
    """A model of AxoNN's, ``axonn-80b``, and the least Gx Gy Gz that its launcher allows.

    Raises
    ------
    UsageError
        If there is no such model.
    """
    rows = _data()["models"]
    if name not in rows:
        raise unknown_name("model of AxoNN's", name, rows)
    row = rows[name]
    model = Transformer(
        row["layers"],
        row["hidden"],
        row["heads"],
        _data()["sequence"],
        _data()["vocabulary"],
        flash=True,
    )
    return model, row["min_tensor"]


def dense_model(name: str) -> str | tuple[str, Transformer]:
    """A model of AxoNN's by its name, any other transformer of the catalogue with its name.

    Raises
    ------
    UsageError
        If there is no such transformer.
    InputError
        If it has experts.
    """
    if name in model_names():
        return name
    known = transformers()
    if name not in known:
        raise unknown_name("transformer", name, (*model_names(), *known))
    if known[name].experts:
        raise InputError("has experts; a 4D decomposition is of a dense transformer", field=name)
    return name, known[name]
