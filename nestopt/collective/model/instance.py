"""The collective instance: what a method for collectives solves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from nestopt.collective.model.collective import Collective
from nestopt.collective.model.topology import Topology
from nestopt.core.errors import InputError, naming

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["LATENCY_MODELS", "LATEST_PS", "SCHEMA", "SUM_MODELS", "CollectiveInstance"]

SCHEMA = "nestopt.instance/1"
LATENCY_MODELS = ("blocking", "pipelined")
LATEST_PS = 2**62 - 1
"""No time is later than this (53 days), so that the sum of two times stays within 64 bits."""
SUM_MODELS = ("copied", "moved")


@dataclass(frozen=True, slots=True)
class CollectiveInstance:
    """What a method for collectives solves; equal by value.

    Attributes
    ----------
    topology : Topology
    collective : Collective
        Its NPUs are nodes of the topology that are no switches.
    latency : str
        ``"blocking"``: a send occupies its link for latency + serialization and arrives then;
        ``"pipelined"``: it occupies the link for the serialization only and arrives one latency
        later.
    sums : str
        ``"copied"``: a node may send a partial sum and keep it, as the libraries do (one-shot and
        recursive doubling need it); ``"moved"``: a partial sum that is sent is gone. It matters to
        All-Reduce only: where a sum has one destination, a copy of a part of it gains nothing.
    """

    topology: Topology
    collective: Collective
    latency: str = "blocking"
    sums: str = "copied"

    def __post_init__(self) -> None:
        if self.latency not in LATENCY_MODELS:
            raise InputError(
                f"{self.latency!r}; expected 'blocking' or 'pipelined'", field="latency"
            )
        if self.sums not in SUM_MODELS:
            raise InputError(f"{self.sums!r}; expected 'copied' or 'moved'", field="sums")
        for index, part in enumerate(self.collective.parts):
            last = int(part.npus[-1])
            if last >= self.topology.num_nodes:
                raise InputError(
                    f"{last} is an unknown node; {self.topology.name} has "
                    f"{self.topology.num_nodes}",
                    field=f"parts[{index}].npus",
                )
            switch = part.npus[self.topology.is_switch[part.npus]]
            if switch.size:
                raise InputError(f"{switch[0]} is a switch", field=f"parts[{index}].npus")
        self._refuse_endless()

    def _refuse_endless(self) -> None:
        """Refuse an instance of which simple schedules would be too long for 64-bit times.

        The time is that of all chunks one after another over a way of the slowest links; the sums
        of an All-Reduce take it twice.
        """
        if not self.topology.num_links:
            return
        whole = sum(
            part.num_chunks
            * (2 if part.pattern == "all-reduce" else 1)
            * int(self.transfer_ps(part.chunk_size).max())
            for part in self.collective.parts
        )
        if whole * self.topology.num_nodes > LATEST_PS:
            whole *= _longest_way(self.topology)
        if whole > LATEST_PS:
            size = max(part.chunk_size for part in self.collective.parts)
            raise InputError(
                f"{self.collective.num_chunks} chunks of up to {size} bytes need {whole} ps one "
                "after another over the slowest links; times beyond 2**62 ps (53 days) cannot be "
                "represented",
                field="chunk_size",
            )

    @property
    def name(self) -> str:
        """The collective's and the topology's names; of an All-Reduce, what its sums may do."""
        both = f"{self.collective.name} on {self.topology.name}"
        return f"{both}, sums {self.sums}" if self.sums_matter else both

    @property
    def sums_matter(self) -> bool:
        """Whether the two models of sums differ: whether any part is an All-Reduce."""
        return any(p.pattern == "all-reduce" for p in self.collective.parts)

    @property
    def copies_sums(self) -> bool:
        """Whether partial sums may be copied, and it matters."""
        return self.sums == "copied" and self.sums_matter

    def occupancy_ps(self, size_bytes: int) -> NDArray[np.int64]:
        """How long a chunk occupies each link, int64[E], picoseconds."""
        serial = self.topology.duration_ps(size_bytes)
        return serial + self.topology.alpha_ps if self.latency == "blocking" else serial

    def transfer_ps(self, size_bytes: int) -> NDArray[np.int64]:
        """From the start of a send to its arrival, on each link, int64[E], picoseconds."""
        return self.topology.duration_ps(size_bytes) + self.topology.alpha_ps

    def to_json(self) -> dict[str, Any]:
        """The whole instance as versioned JSON.

        ``sums`` is written where sums may be copied; without it they move, as in older files.
        """
        data = {
            "schema": SCHEMA,
            "problem": "collective",
            "name": self.name,
            "topology": self.topology.to_json(),
            "collective": self.collective.to_json(),
            "latency": self.latency,
        }
        return data | {"sums": "copied"} if self.copies_sums else data

    @classmethod
    def from_json(cls, data: dict[str, Any], *, file: str | None = None) -> CollectiveInstance:
        """Inverse of `to_json`.

        Raises
        ------
        InputError
            Naming the file, the field, the value found and what was expected.
        """
        if not isinstance(data, dict) or data.get("schema") != SCHEMA:
            found = data.get("schema") if isinstance(data, dict) else data
            raise InputError(f"{found!r}; expected {SCHEMA!r}", file=file, field="schema")
        if data.get("problem") != "collective":
            raise InputError(
                f"{data.get('problem')!r}; expected 'collective'", file=file, field="problem"
            )
        for key in ("topology", "collective"):
            if key not in data:
                raise InputError("is missing", file=file, field=key)
        known = {"schema", "problem", "name", "topology", "collective", "latency", "sums"}
        extra = sorted(set(data) - known)
        if extra:
            raise InputError(
                "is unknown; expected name, topology, collective, latency, sums",
                file=file,
                field=extra[0],
            )
        if not isinstance(data.get("name", ""), str):
            raise InputError(f"{data['name']!r}; expected text", file=file, field="name")
        topology = Topology.from_json(data["topology"], file=file)
        collective = Collective.from_json(data["collective"], file=file)
        with naming(file):
            latency, sums = data.get("latency", "blocking"), data.get("sums", "moved")
            return cls(topology, collective, latency, sums)


def _longest_way(topology: Topology) -> int:
    """At most so many links are on a way with the fewest links between two nodes."""
    levels = 0
    for tails, heads in ((topology.src, topology.dst), (topology.dst, topology.src)):
        seen = np.zeros(topology.num_nodes, dtype=np.bool_)
        seen[topology.npus[:1]] = True
        while not seen[heads[seen[tails]]].all():
            seen[heads[seen[tails]]] = True
            levels += 1
    return max(1, min(levels, topology.num_nodes - 1))
