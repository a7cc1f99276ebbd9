"""Export of a schedule as an MSCCL++ execution plan, for the executor of version 0.9.

Messages are puts over memory channels from the sender's buffer into a place of the receiver's
buffer that nothing else is written to, then a signal; so no memory is used twice and no message
waits for an earlier one to be consumed. Where a sum is gathered, each message has its own place in
scratch, and the receiver adds it to what it had into a new place. Every stream of messages between
two ranks has a threadblock and a channel at each end; the receiver's first signals that its buffers
are ready. Semaphores order threadblocks of one rank.

The plan is read back by `read_plan`, which plays it on symbols.

References
----------
microsoft/mscclpp 0.9.0: ``python/mscclpp/language`` (the writer), ``src/core/executor/
execution_plan.cc`` and ``execution_common.hpp`` (the reader, its fields and limits).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from nestopt.core.errors import CheckError, InputError
from nestopt.core.io import write_json
from nestopt.core.units import parse_bytes
from nestopt.interop.buffers import layout_of
from nestopt.interop.mscclpp_check import MOST_CHANNELS, MOST_OPERATIONS, check_plan
from nestopt.interop.program import program_of

if TYPE_CHECKING:
    from pathlib import Path

    from nestopt.collective.model.instance import CollectiveInstance
    from nestopt.collective.model.schedule import Schedule
    from nestopt.interop.buffers import Layout, Place
    from nestopt.interop.loading import Synthesized
    from nestopt.interop.program import Program, Transfer

__all__ = ["mscclpp_plan", "write"]

FORM = "an MSCCL++ plan"
_NAMES = {
    "all-gather": "allgather",
    "all-reduce": "allreduce",
    "reduce-scatter": "reducescatter",
    "all-to-all": "alltoall",
}
# messages of a threadblock: of 64 operations the others are waits, additions and semaphores
PIECE = 8
Operation = dict[str, Any]


def write(found: Synthesized, target: Path, settings: dict[str, str]) -> list[Path]:
    """Write a schedule's plan; settings ``min-bytes`` and ``max-bytes``."""
    sizes = {key: int(parse_bytes(text, f"--set {key}")) for key, text in settings.items()}
    plan = mscclpp_plan(
        found.instance,
        found.schedule,
        min_bytes=sizes.get("min-bytes", 0),
        max_bytes=sizes.get("max-bytes", 2**64 - 1),
    )
    write_json(target, plan)
    return [target]


def mscclpp_plan(
    instance: CollectiveInstance,
    schedule: Schedule,
    *,
    min_bytes: int = 0,
    max_bytes: int = 2**64 - 1,
) -> dict[str, Any]:
    """The plan of a schedule, as JSON.

    Parameters
    ----------
    instance : CollectiveInstance
    schedule : Schedule
    min_bytes, max_bytes : int
        Range of buffer sizes that the executor takes the plan for.

    Raises
    ------
    InputError
        If the format cannot say the schedule, with the reason.
    CheckError
        If the schedule is wrong.
    """
    if not 0 <= min_bytes <= max_bytes < 2**64:
        raise InputError(f"{min_bytes} to {max_bytes} bytes", field="min-bytes")
    program = program_of(instance, schedule)
    layout = layout_of(instance, program, FORM)
    writer = _Writer(program, layout)
    writer.lay_out()
    plan = {
        "name": instance.name,
        "collective": _NAMES[layout.part.pattern],
        "protocol": "Simple",
        "inplace": False,
        "reuse_resources": False,
        "gpus": [writer.gpu(rank) for rank in range(program.ranks)],
        "num_threads_per_block": 1024,
        "use_double_scratch_buffer": False,
        "buffer_alignment": 16,
        "min_message_size": min_bytes,
        "max_message_size": max_bytes,
    }
    check_plan(plan)
    return plan


@dataclass(slots=True)
class _Block:
    """A threadblock being written."""

    rank: int
    number: int
    operations: list[Operation] = field(default_factory=list)
    channel: int = -1
    buffers: list[int] = field(default_factory=list)
    releases: dict[int, list[int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Mark:
    """An operation after which something is where it must be: a threadblock and its operation."""

    block: _Block
    operation: int


class _Writer:
    """Lays out threadblocks in the order of the schedule's events."""

    def __init__(self, program: Program, layout: Layout) -> None:
        self.program, self.layout = program, layout
        self.blocks: list[list[_Block]] = [[] for _ in range(program.ranks)]
        self.channels: list[list[int]] = [[] for _ in range(program.ranks)]
        self.remote: list[list[tuple[int, str]]] = [[] for _ in range(program.ranks)]
        self.semaphores = [0] * program.ranks
        self.scratch = [0] * program.ranks
        # where a cell's present content is, and which operation put it there (None: the input)
        self.content: dict[tuple[int, int], tuple[Place, _Mark | None]] = {}
        self.landing: dict[int, Place] = {}
        self.ends: dict[int, tuple[_Block, _Block]] = {}
        self.last_write = _last_writes(program)
        self._connect_all()

    def _new(self, rank: int) -> _Block:
        block = _Block(rank, len(self.blocks[rank]))
        self.blocks[rank].append(block)
        return block

    def _connect_all(self) -> None:
        """A threadblock at each end of every piece of a stream with one order."""
        lanes: dict[tuple[int, int], list[int]] = {}
        filled: dict[tuple[int, int, int], tuple[int, tuple[_Block, _Block]]] = {}
        for t in self.program.by_start():
            if t.local:
                continue
            arrivals = lanes.setdefault((t.src, t.dst), [])
            lane = next((k for k, a in enumerate(arrivals) if a <= t.arrival_ps), len(arrivals))
            arrivals[lane : lane + 1] = [t.arrival_ps]
            count, ends = filled.get((t.src, t.dst, lane), (PIECE, None))
            if ends is None or count == PIECE:
                count, ends = 0, self._connect(t)
            filled[t.src, t.dst, lane] = (count + 1, ends)
            self.ends[t.index] = ends

    def _connect(self, t: Transfer) -> tuple[_Block, _Block]:
        """Two threadblocks and the channels between them; the k-th of two ranks belong together."""
        pair = (self._new(t.src), self._new(t.dst))
        for block, peer in zip(pair, (t.dst, t.src)):
            block.channel = len(self.channels[block.rank])
            self.channels[block.rank].append(peer)
        # the receiver says that its buffers may be written to; the sender waits for that
        pair[1].operations.append(_channel("rlxsignal"))
        pair[0].operations += [_channel("rlxwait"), {"name": "nop"}]
        return pair

    def lay_out(self) -> None:
        """Write every operation."""
        for rank in range(self.program.ranks):
            for source, target in self.layout.kept(rank):
                self._local(rank, "copy", [source], target, [])
        events = [(t.arrival_ps, 0, t.index, t.index) for t in self.program.transfers]
        events += [
            (t.start_ps, 1, t.sends[0], t.index) for t in self.program.transfers if not t.local
        ]
        for _, sends, _, index in sorted(events):
            t = self.program.transfers[index]
            if t.local:
                self._operate(t)
            elif sends:
                self._put(t)
            else:
                self._take(t)

    def _holds(self, rank: int, cell: int) -> tuple[Place, _Mark | None] | None:
        found = self.content.get((rank, cell))
        if found is None and cell < self.program.num_chunks:
            source = self.layout.source(rank, cell)
            return None if source is None else (source, None)
        return found

    def _place(self, rank: int, cell: int, index: int, *, final: bool) -> Place:
        """A place that nothing else is written to: the output for a cell's last content."""
        if final and cell < self.program.num_chunks and self.last_write[rank, cell] == index:
            target = self.layout.target(rank, cell)
            if target is not None:
                return target
        self.scratch[rank] += 1
        return "s", self.scratch[rank] - 1

    def _put(self, t: Transfer) -> None:
        held = self._holds(t.src, t.cell)
        if held is None:
            chunk = self.program.chunk(t.cell)
            raise CheckError(f"send {t.sends[0]} of chunk {chunk} starts before its source has it")
        landing = self._place(t.dst, t.into, t.index, final=not t.adds)
        self.landing[t.index] = landing
        block = self.ends[t.index][0]
        self._wait_for(block, [held[1]])
        remote = self._remote(block, t.dst, landing[0])
        block.operations.append(
            {
                "name": "put",
                "src_buff": [_chunk(held[0])],
                "dst_buff": [{"buffer_id": remote, "index": landing[1], "size": 1}],
                "channel_type": "memory",
            }
        )
        block.operations += [{"name": "nop"}, _channel("signal")]

    def _take(self, t: Transfer) -> None:
        block, landing = self.ends[t.index][1], self.landing[t.index]
        block.operations += [_channel("wait"), {"name": "nop"}]
        there = self._holds(t.dst, t.into)
        if t.adds and there is not None:
            self._wait_for(block, [there[1]])
            target = self._place(t.dst, t.into, t.index, final=True)
            block.operations += [_reduce(there[0], landing, target), {"name": "nop"}]
            landing = target
        mark = _Mark(block, len(block.operations) - 1)
        self.content[t.dst, t.into] = (landing, mark)

    def _operate(self, t: Transfer) -> None:
        held, there = self._holds(t.src, t.cell), self._holds(t.src, t.into)
        if held is None:
            raise CheckError(f"a sum of chunk {self.program.chunk(t.cell)} is of nothing")
        target = self._place(t.src, t.into, t.index, final=True)
        if t.adds and there is not None:
            sources, name, marks = [there[0], held[0]], "re", [there[1], held[1]]
        else:
            sources, name, marks = [held[0]], "copy", [held[1]]
        mark = self._local(t.src, name, sources, target, marks)
        self.content[t.src, t.into] = (target, mark)

    def _local(
        self, rank: int, name: str, sources: list[Place], target: Place, marks: list[Any]
    ) -> _Mark:
        """A copy or an addition in a threadblock without channels."""
        own = [block for block in self.blocks[rank] if block.channel < 0]
        block = own[-1] if own and len(own[-1].operations) < MOST_OPERATIONS // 2 else None
        block = self._new(rank) if block is None else block
        self._wait_for(block, marks)
        if name == "re":
            block.operations.append(_reduce(sources[0], sources[1], target))
        else:
            block.operations.append(
                {"name": "copy", "src_buff": [_chunk(sources[0])], "dst_buff": [_chunk(target)]}
            )
        block.operations.append({"name": "nop"})
        return _Mark(block, len(block.operations) - 1)

    def _wait_for(self, block: _Block, marks: list[_Mark | None]) -> None:
        """Acquire a semaphore for each operation of another threadblock."""
        needed = [mark for mark in marks if mark is not None and mark.block is not block]
        if not needed:
            return
        ids = []
        for mark in needed:
            number = self.semaphores[block.rank]
            self.semaphores[block.rank] += 1
            mark.block.releases.setdefault(mark.operation, []).append(number)
            ids.append(number)
        block.operations += [{"name": "sem_acquire", "semaphore_ids": ids}, {"name": "nop"}]

    def _remote(self, block: _Block, rank: int, buffer: str) -> int:
        """The number, within a threadblock, of another rank's buffer."""
        known = self.remote[block.rank]
        if (rank, buffer) not in known:
            known.append((rank, buffer))
        number = known.index((rank, buffer))
        if number not in block.buffers:
            block.buffers.append(number)
        return block.buffers.index(number)

    def gpu(self, rank: int) -> dict[str, Any]:
        """A rank's part of the plan."""
        channels = self.channels[rank]
        return {
            "id": rank,
            "input_chunks": self.layout.input_chunks,
            "output_chunks": self.layout.output_chunks,
            "scratch_chunks": self.scratch[rank],
            "threadblocks": [_rendered(block) for block in self.blocks[rank]],
            "channels": [{"channel_type": "memory", "connected_to": channels}] if channels else [],
            "remote_buffers": [
                {"rank": peer, "type": buffer, "access_channel_types": ["memory"]}
                for peer, buffer in self.remote[rank]
            ],
            "semaphores": [{"init_value": 0}] * self.semaphores[rank],
        }


def _rendered(block: _Block) -> dict[str, Any]:
    """A threadblock, the releases of its semaphores put in behind their operations."""
    operations: list[Operation] = []
    for index, operation in enumerate(block.operations):
        operations.append(operation)
        for first in range(0, len(block.releases.get(index, ())), 16):
            ids = block.releases[index][first : first + 16]
            operations.append({"name": "sem_release", "semaphore_ids": ids})
    if len(operations) > MOST_OPERATIONS:
        raise InputError(
            f"rank {block.rank}, threadblock {block.number}: {len(operations)} operations; the "
            f"executor takes {MOST_OPERATIONS}",
            field="schedule",
        )
    if len(block.buffers) > MOST_CHANNELS:
        raise InputError(f"rank {block.rank}: more than {MOST_CHANNELS} buffers", field="schedule")
    has = block.channel >= 0
    channels = [{"channel_type": "memory", "channel_ids": [block.channel]}] if has else []
    refs = {"access_channel_type": "memory", "remote_buffer_ids": block.buffers}
    return {
        "id": block.number,
        "ops": operations,
        "channels": channels,
        "remote_buffer_refs": [refs] if block.buffers else [],
    }


def _chunk(place: Place) -> dict[str, Any]:
    return {"type": place[0], "index": place[1], "size": 1}


def _channel(name: str) -> Operation:
    return {"name": name, "channel_ids": [0], "channel_type": "memory"}


def _reduce(first: Place, second: Place, target: Place) -> Operation:
    return {
        "name": "re",
        "src_buff": [_chunk(first), _chunk(second)],
        "dst_buff": [_chunk(target)],
        "reduce_op": "sum",
    }


def _last_writes(program: Program) -> dict[tuple[int, int], int]:
    """The transfer that writes last into each cell of each rank."""
    return {(t.dst, t.into): t.index for t in program.transfers}
