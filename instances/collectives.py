"""The collectives by name: ``all-gather``, ``broadcast:root=3,chunks=4,size=256KB``, ...

How much data moves is said in one of two ways. ``buffer=64MiB`` is what benchmarks of collectives
call the size: the bytes that each NPU ends with (All-Gather, Broadcast, Gather's root) or begins
with (All-Reduce, Reduce-Scatter, All-to-All, Reduce, Scatter's root). It is cut into the pattern's
chunks, ``chunks`` of them an NPU (1), so that more chunks are smaller ones; a chunk is rounded up
to whole bytes. ``total`` is the same and refuses a size that does not divide. ``size`` (or
``chunk``, 1 MB) is the bytes of one chunk instead, so that more chunks are more data:
``all-gather:size=1MB,chunks=4`` on 8 NPUs gathers 32 MB.

``count`` (All-Reduce) is the number of chunks of the whole buffer instead of ``chunks``:
``all-reduce:buffer=64KiB,count=1`` sends the buffer as one message.

Further options: ``npus`` (the group: positions among the NPUs of the topology, ``0-7``, ``0-63/2``,
``0-3+8-11``, or ``half`` for every second; all by default) and, of the rooted patterns, ``root`` (a
position in the group, 0). Several collectives at once are separated by semicolons:
``all-gather:npus=0-7;all-to-all:npus=8-15``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nestopt.collective.model.collective import PATTERNS, ROOTED, Collective
from nestopt.core.errors import InputError, unknown_name
from nestopt.core.units import parse_bytes
from nestopt.instances.spec import Spec, parse_spec

if TYPE_CHECKING:
    from nestopt.collective.model.topology import Topology

__all__ = ["CollectiveSpec", "by_name"]

_RUN = re.compile(r"^(\d+)(?:-(\d+)(?:/(\d+))?)?$")


@dataclass(frozen=True, slots=True)
class _Job:
    """One collective of a name, before its group is known."""

    text: str
    pattern: str
    chunks: int
    count: int | None
    size: int | None
    total: int | None
    buffer: int | None
    npus: str | None
    root: int


@dataclass(frozen=True, slots=True)
class CollectiveSpec:
    """A named collective; `on` makes it one over the NPUs of a topology."""

    name: str
    jobs: tuple[_Job, ...]

    def on(self, topology: Topology) -> Collective:
        """The collective over a topology.

        Raises
        ------
        InputError
            If a group does not fit the topology, or a total does not divide into chunks.
        """
        made = [_over(job, topology.npus.tolist()) for job in self.jobs]
        return Collective.together(*made, name=self.name)


def by_name(name: str) -> CollectiveSpec:
    """The collective of a name.

    Raises
    ------
    UsageError
        If there is no such pattern (with a suggestion).
    InputError
        If a parameter is wrong.
    """
    return CollectiveSpec(name, tuple(_job(text.strip()) for text in name.split(";")))


def _job(text: str) -> _Job:
    spec = parse_spec(text)
    if spec.family not in PATTERNS:
        raise unknown_name("collective", spec.family, PATTERNS)
    rooted = spec.family in ROOTED
    if not rooted and spec.option("root") is not None:
        raise spec.error(f"{spec.family} has no root")
    given = [key for key in ("size", "chunk", "total", "buffer") if spec.option(key) is not None]
    if len(given) > 1:
        raise spec.error(f"{given[0]} and {given[1]} exclude each other")
    size = _bytes(spec, "size") or _bytes(spec, "chunk")
    job = _Job(
        text=text,
        pattern=spec.family,
        chunks=spec.option_integer("chunks", 1),
        count=None if spec.option("count") is None else spec.option_integer("count", 1),
        size=size,
        total=_bytes(spec, "total"),
        buffer=_bytes(spec, "buffer"),
        npus=spec.option("npus"),
        root=spec.option_integer("root", 0, minimum=0),
    )
    spec.finish()
    return job


def _bytes(spec: Spec, key: str) -> int | None:
    text = spec.option(key)
    if text is None:
        return None
    value = parse_bytes(text, f"{spec.text}: {key}")
    if value != int(value) or value < 1:
        raise spec.error(f"{key}={text!r}; expected a positive whole number of bytes")
    return int(value)


def _over(job: _Job, npus: list[int]) -> Collective:
    group = npus if job.npus is None else _group(job, npus)
    rooted = job.pattern in ROOTED
    if rooted and job.root >= len(group):
        raise InputError(f"root={job.root}; the group has {len(group)} NPUs", field=job.text)
    size = 10**6 if job.size is None else job.size
    if job.count is not None and (job.pattern != "all-reduce" or job.chunks != 1):
        wrong = "only all-reduce takes it" if job.chunks == 1 else "chunks excludes it"
        raise InputError(f"count={job.count}: {wrong}", field=job.text)
    pieces = job.count or job.chunks * (1 if job.pattern in ("broadcast", "reduce") else len(group))
    if job.buffer is not None:
        size = -(-job.buffer // pieces)
    if job.total is not None:
        if job.total % pieces:
            raise InputError(
                f"total={job.total} bytes do not divide into {pieces} chunks", field=job.text
            )
        size = job.total // pieces
    return Collective.of(
        job.pattern,
        group,
        chunk_size=size,
        chunks_per_npu=job.chunks,
        root=group[job.root] if rooted else None,
        chunks=job.count,
    )


def _group(job: _Job, npus: list[int]) -> list[int]:
    assert job.npus is not None
    if job.npus == "half":
        return npus[::2]
    positions: list[int] = []
    for run in job.npus.split("+"):
        match = _RUN.match(run)
        if match is None:
            raise InputError(
                f"npus={run!r}; expected positions such as 0-7, 0-63/2 or 0-3+8-11", field=job.text
            )
        first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
        if last < first or step < 1:
            raise InputError(f"npus={run!r} is empty", field=job.text)
        if last >= len(npus):
            raise InputError(
                f"npus={run!r}; the topology has {len(npus)} NPUs, 0 to {len(npus) - 1}",
                field=job.text,
            )
        positions += range(first, last + 1, step)
    return [npus[position] for position in positions]
