"""Collective patterns as chunk tables with preconditions and postconditions.

A collective is a tuple of parts (tenants); each part is one pattern over one group of NPUs. A
chunk of a part starts at one NPU or, in a reduction, at every NPU of the group (each holds a
contribution), and ends at one NPU or at every NPU of the group. That is all that is stored, so
that an All-Gather over 40,000 NPUs is four numbers and a range.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from nestopt.core.errors import InputError, unknown_name
from nestopt.core.units import parse_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

MOST_CHUNKS = 2**31 - 1
"""Chunks are numbered in 32 bits."""

__all__ = ["PATTERNS", "ROOTED", "SCHEMA", "Collective", "Part"]

SCHEMA = "nestopt.collective/1"
PATTERNS = (
    "all-gather",
    "reduce-scatter",
    "all-reduce",
    "broadcast",
    "reduce",
    "scatter",
    "gather",
    "all-to-all",
)
ROOTED = ("broadcast", "reduce", "scatter", "gather")
_REDUCTIONS = ("reduce-scatter", "all-reduce", "reduce")


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """One pattern over one group of NPUs.

    Chunks are numbered with the chunk of an NPU (or pair) varying fastest. With n = len(npus) and
    k = chunks_per_npu there are n*k chunks (All-Gather, Reduce-Scatter, All-Reduce), k (Broadcast,
    Reduce), (n-1)*k (Scatter, Gather: none for the root itself) or n*(n-1)*k (All-to-All, pairs in
    order of source, then destination).

    Attributes
    ----------
    pattern : str
        One of `PATTERNS`.
    npus : int32[n]
        Nodes of the group, ascending.
    chunk_size : int
        Bytes of every chunk.
    chunks_per_npu : int
    root : int or None
        A node of the group; of the rooted patterns only.
    chunks : int or None
        All-Reduce only: the number of chunks of the whole buffer, where it is no multiple of n (1
        sends the buffer as one message). None: n*k. A multiple n*k is kept as k.
    """

    pattern: str
    npus: NDArray[np.int32]
    chunk_size: int
    chunks_per_npu: int = 1
    root: int | None = None
    chunks: int | None = None

    def __post_init__(self) -> None:
        if self.pattern not in PATTERNS:
            raise unknown_name("collective", self.pattern, PATTERNS)
        try:
            npus = np.array(self.npus, dtype=np.int64)
        except OverflowError as error:
            raise InputError("holds a number that is no node", field="npus") from error
        if npus.ndim != 1 or npus.size == 0:
            raise InputError("a group needs at least one NPU", field="npus")
        npus.sort()
        twice = np.flatnonzero(npus[1:] == npus[:-1])
        if twice.size:
            raise InputError(f"duplicate NPU {npus[twice[0]]}", field="npus")
        if npus[0] < 0 or npus[-1] > np.iinfo(np.int32).max:
            raise InputError(f"{npus[0] if npus[0] < 0 else npus[-1]} is no node", field="npus")
        group = npus.astype(np.int32)
        group.setflags(write=False)
        object.__setattr__(self, "npus", group)
        for name in ("chunk_size", "chunks_per_npu"):
            value = getattr(self, name)
            if isinstance(value, bool) or int(value) != value or value < 1:
                raise InputError(f"{value!r} is not a positive whole number", field=name)
            if value > 2**62:
                raise InputError(f"{value!r} is more than 2**62", field=name)
            object.__setattr__(self, name, int(value))
        if self.chunks is not None:
            self._count_chunks(self.chunks)
        if self.pattern in ROOTED:
            root = int(group[0]) if self.root is None else int(self.root)
            if root not in group:
                raise InputError(f"{root} is not in the group", field="root")
            object.__setattr__(self, "root", root)
        elif self.root is not None:
            raise InputError(f"{self.pattern} has no root (got {self.root})", field="root")
        if self.num_chunks > MOST_CHUNKS:
            raise InputError(
                f"{self.num_chunks} chunks; at most {MOST_CHUNKS}", field="chunks_per_npu"
            )

    def _count_chunks(self, chunks: int) -> None:
        if self.pattern != "all-reduce":
            raise InputError(f"{self.pattern} has no number of chunks of its own", field="chunks")
        if isinstance(chunks, bool) or int(chunks) != chunks or chunks < 1:
            raise InputError(f"{chunks!r} is not a positive whole number", field="chunks")
        if self.chunks_per_npu != 1:
            raise InputError("chunks and chunks_per_npu exclude each other", field="chunks")
        each, beyond = divmod(int(chunks), len(self.npus))
        object.__setattr__(self, "chunks", int(chunks) if beyond else None)
        object.__setattr__(self, "chunks_per_npu", 1 if beyond else each)

    def _key(self) -> tuple[Any, ...]:
        counts = self.chunk_size, self.chunks_per_npu, self.chunks
        return self.pattern, self.npus.tobytes(), *counts, self.root

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, Part) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        root = "" if self.root is None else f", root {self.root}"
        return (
            f"<{self.pattern}: {len(self.npus)} NPUs{root}, {self.num_chunks} chunks of "
            f"{self.chunk_size} bytes>"
        )

    @property
    def reduction(self) -> bool:
        """Whether chunks are sums of one contribution of every NPU of the group."""
        return self.pattern in _REDUCTIONS

    @property
    def num_chunks(self) -> int:
        """Number of chunks."""
        n = len(self.npus)
        if self.chunks is not None:
            return self.chunks
        if self.pattern in ("broadcast", "reduce"):
            n = 1
        elif self.pattern in ("scatter", "gather"):
            n = n - 1
        elif self.pattern == "all-to-all":
            n = n * (n - 1)
        return n * self.chunks_per_npu

    def sources(self) -> NDArray[np.int32]:
        """Node where each chunk starts, int32[num_chunks]; -1: every NPU of the group."""
        others = self.npus[self.npus != self.root] if self.root is not None else self.npus
        if self.reduction:
            return np.full(self.num_chunks, -1, dtype=np.int32)
        if self.pattern in ("broadcast", "scatter"):
            return np.full(self.num_chunks, self.root, dtype=np.int32)
        if self.pattern == "all-to-all":
            return np.repeat(self.npus, (len(self.npus) - 1) * self.chunks_per_npu)
        return np.repeat(others, self.chunks_per_npu)

    def destinations(self) -> NDArray[np.int32]:
        """Node where each chunk must end, int32[num_chunks]; -1: every NPU of the group."""
        if self.pattern in ("all-gather", "all-reduce", "broadcast"):
            return np.full(self.num_chunks, -1, dtype=np.int32)
        if self.pattern in ("reduce", "gather"):
            return np.full(self.num_chunks, self.root, dtype=np.int32)
        if self.pattern == "scatter":
            return np.repeat(self.npus[self.npus != self.root], self.chunks_per_npu)
        if self.pattern == "all-to-all":
            n = len(self.npus)
            column = np.arange(n - 1)[None, :] + (
                np.arange(n - 1)[None, :] >= np.arange(n)[:, None]
            )
            return np.repeat(self.npus[column.reshape(-1)], self.chunks_per_npu)
        return np.repeat(self.npus, self.chunks_per_npu)


@dataclass(frozen=True, slots=True)
class Collective:
    """One collective or several at once; the chunks of the parts are numbered one after another.

    Attributes
    ----------
    name : str
    parts : tuple of Part
    """

    name: str
    parts: tuple[Part, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", tuple(self.parts))
        if not self.parts:
            raise InputError("a collective needs at least one part", field="parts")

    @classmethod
    def of(
        cls,
        pattern: str,
        npus: Iterable[int] | int,
        *,
        chunk_size: int | str = 10**6,
        chunks_per_npu: int = 1,
        root: int | None = None,
        chunks: int | None = None,
        name: str | None = None,
    ) -> Collective:
        """A pattern over a group; an integer `npus` is the group 0, ..., npus - 1.

        `chunk_size` is whole bytes, or text with a unit ("16 MiB").
        """
        if isinstance(chunk_size, str):
            size = parse_bytes(chunk_size, "chunk_size")
            if size != int(size) or size < 1:
                raise InputError(
                    f"{chunk_size!r}; expected a positive whole number of bytes", field="chunk_size"
                )
            chunk_size = int(size)
        group: Any = np.arange(npus) if isinstance(npus, int) else np.asarray(list(npus))
        part = Part(pattern, group, chunk_size, chunks_per_npu, root, chunks)
        return cls(name or pattern, (part,))

    @classmethod
    def together(cls, *collectives: Collective, name: str | None = None) -> Collective:
        """Several collectives at once, on the same network (multi-tenant)."""
        parts = tuple(part for each in collectives for part in each.parts)
        return cls(name or " + ".join(each.name for each in collectives), parts)

    @property
    def pattern(self) -> str:
        """The pattern; ``"mixed"`` if the parts differ."""
        patterns = {part.pattern for part in self.parts}
        return patterns.pop() if len(patterns) == 1 else "mixed"

    @property
    def num_chunks(self) -> int:
        """Number of chunks of all parts."""
        return sum(part.num_chunks for part in self.parts)

    @property
    def chunk_size(self) -> int:
        """Bytes of a chunk, where all parts have the same.

        Raises
        ------
        InputError
            If they do not; see `chunk_sizes`.
        """
        sizes = {part.chunk_size for part in self.parts}
        if len(sizes) > 1:
            raise InputError(f"chunks of different sizes: {sorted(sizes)}", field="chunk_size")
        return sizes.pop()

    @property
    def has_reduction(self) -> bool:
        """Whether any part is a reduction."""
        return any(part.reduction for part in self.parts)

    @property
    def part_of(self) -> NDArray[np.int32]:
        """Part of each chunk, int32[num_chunks]."""
        counts = [part.num_chunks for part in self.parts]
        return np.repeat(np.arange(len(counts), dtype=np.int32), counts)

    @property
    def chunk_sizes(self) -> NDArray[np.int64]:
        """Bytes of each chunk, int64[num_chunks]."""
        return np.array([part.chunk_size for part in self.parts], dtype=np.int64)[self.part_of]

    @property
    def reduction(self) -> NDArray[np.bool_]:
        """Whether each chunk is a sum of contributions, bool[num_chunks]."""
        return np.array([part.reduction for part in self.parts], dtype=np.bool_)[self.part_of]

    @property
    def source(self) -> NDArray[np.int32]:
        """Where each chunk starts, int32[num_chunks]; -1: every NPU of its group."""
        return np.concatenate([part.sources() for part in self.parts])

    @property
    def destination(self) -> NDArray[np.int32]:
        """Where each chunk must end, int32[num_chunks]; -1: every NPU of its group."""
        return np.concatenate([part.destinations() for part in self.parts])

    def locate(self, chunk: int) -> tuple[Part, int]:
        """The part of a chunk and the chunk's number in it."""
        first = 0
        for part in self.parts:
            if 0 <= chunk - first < part.num_chunks:
                return part, chunk - first
            first += part.num_chunks
        raise InputError(f"no chunk {chunk}; there are {self.num_chunks}", field="chunk")

    def pre(self, chunk: int) -> NDArray[np.int32]:
        """NPUs that hold the chunk (in a reduction: a contribution to it) at time 0."""
        part, local = self.locate(chunk)
        source = part.sources()[local]
        return part.npus if source < 0 else np.array([source], dtype=np.int32)

    def post(self, chunk: int) -> NDArray[np.int32]:
        """NPUs that must hold the chunk (in a reduction: the whole sum) at the end."""
        part, local = self.locate(chunk)
        destination = part.destinations()[local]
        return part.npus if destination < 0 else np.array([destination], dtype=np.int32)

    def to_json(self) -> dict[str, Any]:
        """The versioned JSON object."""
        parts = []
        for part in self.parts:
            npus: Any = part.npus.tolist()
            if len(npus) > 1 and npus == list(range(npus[0], npus[-1] + 1)):
                npus = {"first": npus[0], "count": len(npus)}
            row = {"pattern": part.pattern, "npus": npus, "chunk_size": part.chunk_size}
            row["chunks_per_npu"] = part.chunks_per_npu
            if part.root is not None:
                row["root"] = part.root
            if part.chunks is not None:
                row["chunks"] = part.chunks
            parts.append(row)
        return {"schema": SCHEMA, "name": self.name, "parts": parts}

    @classmethod
    def from_json(cls, data: dict[str, Any], *, file: str | None = None) -> Collective:
        """Inverse of `to_json`; sizes may be text with a unit ("25 MB").

        Raises
        ------
        InputError
            Naming the file, the field, the value found and what was expected.
        """
        from nestopt.collective.model.files import collective_from_json

        return collective_from_json(data, file=file)
