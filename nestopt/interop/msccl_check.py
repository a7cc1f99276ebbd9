"""An independent verifier of MSCCL XML algorithms, by what is in the file alone.

It plays the file on symbols. A cell of a buffer holds a set of contributions (which chunk of whose
input), and which of them it holds more than once. Checked are

1. what the runtimes' parsers demand (limits of MSCCL; RCCL's are the same or wider);
2. that on every connection (source, destination, channel) the k-th receive takes what the k-th send
   brings, of the same count;
3. that no threadblocks wait for each other, with a bounded number of messages in flight;
4. that every access to a cell is ordered after the write that it must see, whatever the timing:
   two steps are ordered by a threadblock's program, by a dependency that is signalled, or by a
   message (happens-before);
5. that every output cell ends with each contribution that it must hold, exactly once.

Points 4 and 5 together hold for every execution: if there is no race, all executions give the
result of the one that is played.

References
----------
Cowan et al., MSCCLang: Microsoft Collective Communication Language, ASPLOS 2023 (the program
model). Lamport, Time, clocks, and the ordering of events in a distributed system, 1978.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from nestopt.core.errors import CheckError, InputError
from nestopt.interop.msccl_limits import COLLECTIVES, READS, RECEIVES, SENDS, WRITES, check_limits

if TYPE_CHECKING:
    from nestopt.interop.msccl_file import Algorithm, Step

__all__ = ["IN_FLIGHT", "MOST_STEPS", "check_algorithm"]

IN_FLIGHT = 2  # messages that a connection buffers; NCCL's eight slots hold at least two
MOST_STEPS = 60_000
Value = tuple[int, int]  # contributions, and those held more than once: bits
Cell = tuple[int, str, int]


def check_algorithm(algorithm: Algorithm, *, in_flight: int = IN_FLIGHT) -> list[str]:
    """Verify an algorithm; one line for each thing verified.

    Parameters
    ----------
    algorithm : Algorithm
    in_flight : int
        Messages that a connection buffers before its sender waits.

    Raises
    ------
    CheckError
        At the first fault, naming gpu, threadblock and step.
    InputError
        If there are more than `MOST_STEPS` steps.
    """
    lines = check_limits(algorithm)
    count = sum(len(block.steps) for gpu in algorithm.gpus for block in gpu.blocks)
    if count > MOST_STEPS:
        raise InputError(f"{count} steps; at most {MOST_STEPS} are verified")
    modes = [inplace for inplace in (False, True) if _meant(algorithm, inplace)]
    if not modes:
        raise CheckError("algo: neither in place nor out of place, so it is never used")
    for inplace in modes:
        play = _Play(algorithm, inplace, in_flight)
        play.run()
        how = "in place" if inplace else "out of place"
        lines += [f"{line} ({how})" for line in play.verdict()]
    return lines


def _meant(algorithm: Algorithm, inplace: bool) -> bool:
    return algorithm.inplace if inplace else algorithm.outofplace


@dataclass(slots=True)
class _Op:
    """A step that does something, with all that it waits for (its own and its nops')."""

    gpu: int
    block: int
    step: Step
    number: int
    place: int
    waits: list[tuple[int, int]] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"gpu {self.gpu}, tb {self.block}, step {self.step.s} ({self.step.type})"


class _Play:
    """One execution on symbols, with the ancestors of every step."""

    def __init__(self, algorithm: Algorithm, inplace: bool, in_flight: int) -> None:
        self.algorithm, self.inplace, self.in_flight = algorithm, inplace, in_flight
        self.chunks = max((gpu.i_chunks for gpu in algorithm.gpus), default=0)
        self.values: dict[Cell, Value] = {}
        self.writer: dict[Cell, _Op | None] = {}
        self.readers: dict[Cell, list[_Op]] = {}
        self.ancestors: list[int] = []
        self.races = 0
        self.first_race = ""
        self.queues: dict[tuple[int, int, int], deque[tuple[list[Value], _Op]]] = {}
        self.done: dict[tuple[int, int], int] = {}  # last step of a threadblock that is over
        self.op_at: dict[tuple[int, int, int], _Op] = {}
        self.programs: dict[tuple[int, int], list[_Op]] = {}
        self.accesses = 0
        for gpu in algorithm.gpus:
            for block in gpu.blocks:
                self.programs[gpu.id, block.id] = self._operations(gpu.id, block.id, block.steps)
            for index in range(gpu.i_chunks):
                cell = self._cell(gpu.id, "i", index)
                self.values[cell] = (1 << (gpu.id * self.chunks + index), 0)
        self.total = len(self.op_at)

    def _operations(self, gpu: int, block: int, steps: tuple[Step, ...]) -> list[_Op]:
        found: list[_Op] = []
        waits: list[tuple[int, int]] = []
        for step in steps:
            if step.depid >= 0:
                waits.append((step.depid, step.deps))
            if step.type == "nop":
                continue
            op = _Op(gpu, block, step, len(self.ancestors), len(found), waits)
            self.ancestors.append(0)
            self.op_at[gpu, block, step.s] = op
            found.append(op)
            waits = []
        return found

    def _cell(self, gpu: int, buffer: str, index: int) -> Cell:
        """The cell of a buffer; in place, output and input share theirs."""
        if self.inplace and buffer != "s":
            kind = COLLECTIVES[self.algorithm.coll]
            sizes = self.algorithm.gpus[gpu]
            if kind == "all-gather" and buffer == "i":
                return gpu, "o", gpu * sizes.i_chunks + index
            if kind == "reduce-scatter" and buffer == "o":
                return gpu, "i", gpu * sizes.o_chunks + index
            if kind not in ("all-gather", "reduce-scatter"):
                return gpu, "i", index
        return gpu, buffer, index

    def run(self) -> None:
        """Play every step, or say who waits for whom."""
        place = dict.fromkeys(self.programs, 0)
        active = deque(self.programs)
        idle: dict[int, set[tuple[int, int]]] = {gpu.id: set() for gpu in self.algorithm.gpus}
        left = self.total
        while active:
            key = active.popleft()
            program, start = self.programs[key], place[key]
            while place[key] < len(program) and self._ready(program[place[key]]):
                self._execute(program[place[key]])
                place[key] += 1
            left -= place[key] - start
            if place[key] > start:
                # others of the gpu may wait for these steps, and its peers for their messages
                block = self.algorithm.gpus[key[0]].blocks[key[1]]
                for gpu in {key[0], block.send, block.recv} - {-1}:
                    active.extend(idle[gpu])
                    idle[gpu].clear()
            if place[key] < len(program):
                idle[key[0]].add(key)
        if left:
            waiting = [
                self.programs[key][at] for key, at in place.items() if at < len(self.programs[key])
            ]
            raise CheckError(self._stuck(waiting))
        self._leftovers()

    def _ready(self, op: _Op) -> bool:
        for block, step in op.waits:
            if self.done.get((op.gpu, block), -1) < step:
                return False
        block_ = self._block(op)
        if op.step.type in RECEIVES and not self.queues.get((block_.recv, op.gpu, block_.chan)):
            return False
        if op.step.type in SENDS:
            queue = self.queues.get((op.gpu, block_.send, block_.chan), ())
            return len(queue) < self.in_flight
        return True

    def _block(self, op: _Op) -> Any:
        return self.algorithm.gpus[op.gpu].blocks[op.block]

    def _execute(self, op: _Op) -> None:
        step, block = op.step, self._block(op)
        before = 0
        own = self.programs[op.gpu, op.block]
        if op.place:
            before |= self._with(own[op.place - 1])
        for other, number in op.waits:
            before |= self._with(self.op_at[op.gpu, other, number])
        message: list[Value] = []
        if step.type in RECEIVES:
            message, sender = self.queues[block.recv, op.gpu, block.chan].popleft()
            before |= self._with(sender)
            if len(message) != step.cnt:
                raise CheckError(
                    f"{op.name} receives {step.cnt} chunks where {sender.name} sends {len(message)}"
                )
        self.ancestors[op.number] = before
        result = self._compute(op, message)
        if step.type in SENDS:
            key = (op.gpu, block.send, block.chan)
            self.queues.setdefault(key, deque()).append((result, op))
        self.done[op.gpu, op.block] = step.s

    def _with(self, op: _Op) -> int:
        return self.ancestors[op.number] | (1 << op.number)

    def _compute(self, op: _Op, message: list[Value]) -> list[Value]:
        """What a step writes, and sends on: its values chunk by chunk."""
        step = op.step
        result: list[Value] = []
        places = [(step.srcbuf, step.srcoff), (step.dstbuf, step.dstoff)]
        if step.type == "cpy" and len({self._cell(op.gpu, *place) for place in places}) == 1:
            return result  # onto itself: changes nothing, whoever reads meanwhile
        for k in range(step.cnt):
            value = message[k] if message else None
            if step.type in READS:
                held = self._read(op, step.srcbuf, step.srcoff + k)
                value = held if value is None else _sum(value, held)
            if step.type == "re":
                assert value is not None
                value = _sum(value, self._read(op, step.dstbuf, step.dstoff + k))
            assert value is not None
            if step.type in WRITES:
                self._write(op, step.dstbuf, step.dstoff + k, value)
            result.append(value)
        return result

    def _read(self, op: _Op, buffer: str, index: int) -> Value:
        cell = self._cell(op.gpu, buffer, index)
        if cell not in self.values:
            raise CheckError(f"{op.name} reads {buffer}[{index}], to which nothing was written")
        self.accesses += 1
        self._ordered(op, self.writer.get(cell), cell)
        self.readers.setdefault(cell, []).append(op)
        return self.values[cell]

    def _write(self, op: _Op, buffer: str, index: int, value: Value) -> None:
        cell = self._cell(op.gpu, buffer, index)
        self.accesses += 1
        self._ordered(op, self.writer.get(cell), cell)
        for reader in self.readers.pop(cell, ()):
            self._ordered(op, reader, cell)
        self.writer[cell] = op
        self.values[cell] = value

    def _ordered(self, op: _Op, earlier: _Op | None, cell: Cell) -> None:
        if earlier is None or earlier is op or self.ancestors[op.number] >> earlier.number & 1:
            return
        self.races += 1
        if not self.first_race:
            self.first_race = (
                f"{op.name} and {earlier.name} access {cell[1]}[{cell[2]}] of gpu {cell[0]} in no "
                "order"
            )

    def _stuck(self, waiting: list[_Op]) -> str:
        reasons = []
        for op in waiting[:3]:
            block = self._block(op)
            dependency = [w for w in op.waits if self.done.get((op.gpu, w[0]), -1) < w[1]]
            if dependency:
                reasons.append(
                    f"{op.name} waits for step {dependency[0][1]} of tb {dependency[0][0]}"
                )
            elif op.step.type in RECEIVES and not self.queues.get((block.recv, op.gpu, block.chan)):
                reasons.append(
                    f"{op.name} waits for a message of gpu {block.recv} on channel {block.chan}"
                )
            else:
                reasons.append(
                    f"{op.name} waits for gpu {block.send} to receive on channel {block.chan} "
                    f"({self.in_flight} messages are in flight)"
                )
        return f"deadlock of {len(waiting)} threadblocks: {'; '.join(reasons)}"

    def _leftovers(self) -> None:
        for (src, dst, chan), queue in self.queues.items():
            if queue:
                raise CheckError(
                    f"{len(queue)} messages of gpu {src} to gpu {dst} on channel {chan} are never "
                    f"received, the first of {queue[0][1].name}"
                )

    def verdict(self) -> list[str]:
        """Races and the result."""
        if self.races:
            raise CheckError(f"{self.races} unordered pairs of accesses: {self.first_race}")
        lines = [
            f"every receive has its send; no deadlock with {self.in_flight} messages in flight",
            f"{self.accesses} accesses to cells, none in a race",
        ]
        return [*lines, self._result()]

    def _result(self) -> str:
        algorithm = self.algorithm
        kind, n = COLLECTIVES[algorithm.coll], algorithm.ngpus
        if kind == "custom":
            return "a custom collective: its result is not known"
        if kind in ("broadcast", "reduce"):
            return self._rooted(kind)
        checked = 0
        for gpu in algorithm.gpus:
            for index in range(gpu.o_chunks):
                self._expect(gpu.id, index, _contributions(kind, n, gpu, index, self.chunks))
                checked += 1
        return f"all {checked} output chunks hold every contribution exactly once"

    def _rooted(self, kind: str) -> str:
        """Broadcast and Reduce, whose root the file does not name: any that fits."""
        fault = None
        for root in self.algorithm.gpus:
            try:
                everyone = self.algorithm.gpus
                ends, starts = (everyone, (root,)) if kind == "broadcast" else ((root,), everyone)
                for gpu in ends:
                    for index in range(gpu.o_chunks):
                        bits = sum(1 << (g.id * self.chunks + index) for g in starts)
                        self._expect(gpu.id, index, bits)
                return f"a {kind} with root {root.id}"
            except CheckError as error:
                fault = fault or error
        raise CheckError(f"no root makes this a {kind}: {fault}")

    def _expect(self, gpu: int, index: int, bits: int) -> None:
        value = self.values.get(self._cell(gpu, "o", index))
        if value == (bits, 0):
            return
        where = f"output chunk {index} of gpu {gpu}"
        if value is None:
            raise CheckError(f"{where} is never written")
        for what, wrong in (
            ("lacks", bits & ~value[0]),
            ("holds what does not belong there,", value[0] & ~bits),
            ("counts more than once", value[1]),
        ):
            if wrong:
                first = (wrong & -wrong).bit_length() - 1
                origin = divmod(first, self.chunks)
                raise CheckError(f"{where} {what} chunk {origin[1]} of gpu {origin[0]}'s input")


def _sum(a: Value, b: Value) -> Value:
    return a[0] | b[0], a[1] | b[1] | (a[0] & b[0])


def _contributions(kind: str, n: int, gpu: Any, index: int, chunks: int) -> int:
    """What an output chunk must hold, as bits."""
    if kind == "all-gather":
        owner, local = divmod(index, gpu.o_chunks // n)
        return 1 << (owner * chunks + local)
    if kind == "all-to-all":
        owner, local = divmod(index, gpu.o_chunks // n)
        return 1 << (owner * chunks + gpu.id * (gpu.i_chunks // n) + local)
    offset = gpu.id * gpu.o_chunks if kind == "reduce-scatter" else 0
    return sum(1 << (g * chunks + offset + index) for g in range(n))
