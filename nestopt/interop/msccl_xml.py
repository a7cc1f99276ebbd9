"""Export of a schedule as an MSCCL XML algorithm, for the runtimes of MSCCL, RCCL and NCCL forks.

Every stream of messages between two ranks whose sends and arrivals are in one order has a
threadblock at each end and a channel of its own; so no threadblock waits for anything but what the
schedule's order makes it wait for. Accesses to a cell are ordered by dependencies, of which those
that others imply are left out; sends of one link are ordered as in the schedule. The text is read
back and verified (`msccl_check`) before it is returned.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from nestopt.core.errors import CheckError, InputError
from nestopt.core.io import write_text
from nestopt.core.units import parse_bytes
from nestopt.interop.buffers import layout_of
from nestopt.interop.msccl_check import check_algorithm
from nestopt.interop.msccl_file import parse_algorithm
from nestopt.interop.msccl_limits import (
    MOST_BLOCKS,
    MOST_CHANNELS,
    MOST_COUNT,
    MOST_PER_CHANNEL,
    MOST_STEPS_OF_BLOCK,
    PROTOCOLS,
)
from nestopt.interop.program import program_of

if TYPE_CHECKING:
    from pathlib import Path

    from nestopt.collective.model.instance import CollectiveInstance
    from nestopt.collective.model.schedule import Schedule
    from nestopt.interop.buffers import Layout, Place
    from nestopt.interop.loading import Synthesized
    from nestopt.interop.program import Program, Transfer

__all__ = ["XmlOptions", "msccl_xml", "write"]

FORM = "MSCCL XML"
_NAMES = {
    "all-gather": "allgather",
    "all-reduce": "allreduce",
    "reduce-scatter": "reduce_scatter",
    "all-to-all": "alltoall",
}


@dataclass(frozen=True, slots=True)
class XmlOptions:
    """What the schedule does not say.

    Attributes
    ----------
    proto : str
        ``LL``, ``LL128`` or ``Simple``.
    inplace : str
        ``no``, ``yes`` or ``both`` (which RCCL can say and MSCCL's own runtime cannot).
    runtime : str
        ``msccl`` or ``rccl``: they name the Reduce-Scatter differently.
    min_bytes, max_bytes : int
        Range of buffer sizes for which the runtime takes this algorithm.
    """

    proto: str = "Simple"
    inplace: str = "no"
    runtime: str = "msccl"
    min_bytes: int = 0
    max_bytes: int = 2**27

    def __post_init__(self) -> None:
        for name, known in (
            ("proto", PROTOCOLS),
            ("inplace", ("no", "yes", "both")),
            ("runtime", ("msccl", "rccl")),
        ):
            if getattr(self, name) not in known:
                raise InputError(
                    f"{getattr(self, name)!r}; expected {', '.join(known)}", field=name
                )
        if not 0 <= self.min_bytes <= self.max_bytes:
            raise InputError(f"{self.min_bytes} to {self.max_bytes} bytes", field="min-bytes")
        if self.runtime == "msccl" and self.inplace == "both":
            raise InputError("'both'; MSCCL's own runtime takes yes or no", field="inplace")


def msccl_xml(
    instance: CollectiveInstance, schedule: Schedule, options: XmlOptions | None = None
) -> str:
    """The XML text of a schedule.

    Parameters
    ----------
    instance : CollectiveInstance
    schedule : Schedule
    options : XmlOptions, optional

    Raises
    ------
    InputError
        If the format cannot say the schedule, with the reason.
    CheckError
        If the schedule is wrong: the verifier's fault.
    """
    options = XmlOptions() if options is None else options
    program = program_of(instance, schedule)
    layout = layout_of(instance, program, FORM)
    if options.inplace != "no" and layout.part.pattern == "all-to-all":
        raise InputError(
            "an All-to-All in place would overwrite what is still sent", field="inplace"
        )
    # in place, an All-Gather's own chunks are in the output already
    copies = not (options.inplace == "yes" and layout.part.pattern == "all-gather")
    piece = MOST_STEPS_OF_BLOCK
    while True:
        writer = _Writer(program, layout, piece, copies=copies)
        writer.lay_out()
        longest = max((len(b.steps) for blocks in writer.blocks for b in blocks), default=0)
        if longest <= MOST_STEPS_OF_BLOCK:
            break
        # dependencies take steps too: shorter pieces, on more channels
        piece = piece * 3 // 4
    text = _render(writer, layout, options, instance.name)
    check_algorithm(parse_algorithm(text))
    return text


def write(found: Synthesized, target: Path, settings: dict[str, str]) -> list[Path]:
    """Write a schedule; `settings` are the fields of `XmlOptions` as text."""
    fields: dict[str, Any] = {}
    for key, text in settings.items():
        name = key.replace("-", "_")
        fields[name] = int(parse_bytes(text, f"--set {key}")) if key.endswith("bytes") else text
    write_text(target, msccl_xml(found.instance, found.schedule, XmlOptions(**fields)))
    return [target]


@dataclass(slots=True)
class _Block:
    """A threadblock being written; `known` is what its last step is sure to come after."""

    send: int = -1
    recv: int = -1
    chan: int = 0
    number: int = -1
    steps: list[dict[str, str | int]] = field(default_factory=list)
    known: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Mark:
    """A step that others may wait for, and all that it comes after."""

    block: _Block
    step: dict[str, str | int]
    known: dict[int, int]


class _Writer:
    """Lays out threadblocks in the order of the schedule's events.

    Parameters
    ----------
    program : Program
    layout : Layout
    piece : int
        Most messages of a threadblock.
    copies : bool
        Whether what never travels is copied from input to output.
    """

    def __init__(self, program: Program, layout: Layout, piece: int, *, copies: bool) -> None:
        self.program, self.layout = program, layout
        self.blocks: list[list[_Block]] = [[] for _ in range(program.ranks)]
        self.scratch: list[dict[int, int]] = [{} for _ in range(program.ranks)]
        self.written: set[tuple[int, int]] = set()
        self.sent: dict[int, _Mark] = {}
        self.got: dict[int, _Mark] = {}
        self.origin: dict[int, Place] = {}
        self.local: dict[int, _Block] = {}
        self.last_on_link: dict[int, _Mark] = {}
        self.ends: dict[int, tuple[_Block, _Block]] = {}
        self.taken: set[tuple[int, int, int]] = set()
        self.on_channel: dict[tuple[int, int], int] = {}
        for rank in range(program.ranks if copies else 0):
            self._keep(rank)
        self._connect_all(piece)

    def _keep(self, rank: int) -> None:
        """Local copies of what never travels, in threadblocks without connections."""
        pairs = self.layout.kept(rank)
        for first in range(0, len(pairs), MOST_COUNT):
            run = pairs[first : first + MOST_COUNT]
            if first % (MOST_COUNT * MOST_STEPS_OF_BLOCK) == 0:
                self._new_block(rank, _Block())
            self._add(self.blocks[rank][-1], "cpy", run[0][0], run[0][1], len(run), [])

    def _new_block(self, rank: int, block: _Block) -> None:
        block.number = len(self.blocks[rank])
        if block.number == MOST_BLOCKS:
            raise InputError(
                f"rank {rank} needs more than {MOST_BLOCKS} threadblocks; {FORM} allows no more",
                field="schedule",
            )
        self.blocks[rank].append(block)

    def _connect_all(self, piece: int) -> None:
        """Two threadblocks for every piece of a stream with one order of sends and arrivals."""
        lanes: dict[tuple[int, int], list[int]] = {}
        filled: dict[tuple[int, int, int], tuple[int, tuple[_Block, _Block]]] = {}
        for t in self.program.by_start():
            if t.local:
                continue
            arrivals = lanes.setdefault((t.src, t.dst), [])
            lane = next((k for k, a in enumerate(arrivals) if a <= t.arrival_ps), len(arrivals))
            arrivals[lane : lane + 1] = [t.arrival_ps]
            count, ends = filled.get((t.src, t.dst, lane), (piece, None))
            if ends is None or count == piece:
                count, ends = 0, self._connect(t)
            filled[t.src, t.dst, lane] = (count + 1, ends)
            self.ends[t.index] = ends

    def _connect(self, t: Transfer) -> tuple[_Block, _Block]:
        """A pair of threadblocks on the first channel that has room at both ends."""
        for chan in range(MOST_CHANNELS):
            full = max(self.on_channel.get((rank, chan), 0) for rank in (t.src, t.dst))
            if (t.src, t.dst, chan) in self.taken or full >= MOST_PER_CHANNEL:
                continue
            self.taken.add((t.src, t.dst, chan))
            ends = (_Block(send=t.dst, chan=chan), _Block(recv=t.src, chan=chan))
            for rank, block in zip((t.src, t.dst), ends):
                self.on_channel[rank, chan] = self.on_channel.get((rank, chan), 0) + 1
                self._new_block(rank, block)
            return ends
        raise InputError(
            f"ranks {t.src} and {t.dst} need more than {MOST_CHANNELS} channels; {FORM} allows "
            f"{MOST_STEPS_OF_BLOCK} steps on each",
            field="schedule",
        )

    def lay_out(self) -> None:
        """Write every step."""
        # at one moment: what is written, in the transfers' order, then what is sent
        events = [(t.arrival_ps, 0, t.index, t.index) for t in self.program.transfers]
        events += [
            (t.start_ps, 1, t.sends[0], t.index) for t in self.program.transfers if not t.local
        ]
        for _, sends, _, index in sorted(events):
            t = self.program.transfers[index]
            if t.local:
                self._operate(t)
            elif sends:
                self._send(t)
            else:
                self._receive(t)

    def _cell(self, rank: int, cell: int) -> Place | None:
        """Where what a rank's cell holds is now."""
        if (rank, cell) in self.written:
            return self._home(rank, cell)
        return self.layout.source(rank, cell) if cell < self.program.num_chunks else None

    def _home(self, rank: int, cell: int) -> Place:
        """Where a rank writes a cell: its place in the output, or a place in scratch."""
        if cell < self.program.num_chunks:
            target = self.layout.target(rank, cell)
            if target is not None:
                return target
        slots = self.scratch[rank]
        return "s", slots.setdefault(cell, len(slots))

    def _operate(self, t: Transfer) -> None:
        """An addition or a copy within a rank, in a threadblock without connections."""
        source, held = self._cell(t.src, t.cell), self._cell(t.src, t.into)
        home = self._home(t.src, t.into)
        if source is None:
            raise CheckError(f"a sum of chunk {self.program.chunk(t.cell)} is of nothing")
        waits = [self.got[i] for i in (t.needs, t.after) if i in self.got]
        waits += [self.sent[reader] for reader in t.readers]
        block = self._local_block(t.src, len(waits) + 2)
        if t.adds and held is not None:
            if held != home:
                self._add(block, "cpy", held, home, 1, waits)
            mark = self._add(block, "re", source, home, 1, waits)
        else:
            mark = self._add(block, "cpy", source, home, 1, waits)
        self.written.add((t.src, t.into))
        self.got[t.index] = self.sent[t.index] = mark

    def _local_block(self, rank: int, steps: int) -> _Block:
        """The rank's threadblock for local operations with room for some more steps."""
        block = self.local.get(rank)
        if block is None or len(block.steps) + steps > MOST_STEPS_OF_BLOCK:
            block = self.local[rank] = _Block()
            self._new_block(rank, block)
        return block

    def _send(self, t: Transfer) -> None:
        source = self._cell(t.src, t.cell)
        if source is None:
            chunk = self.program.chunk(t.cell)
            raise CheckError(f"send {t.sends[0]} of chunk {chunk} starts before its source has it")
        link = self.program.links[t.index]
        waits = [mark for mark in (self.got.get(t.needs), self.last_on_link.get(link)) if mark]
        # the far end's place is for readers of the file; the runtimes do not look at it
        home = self._home(t.dst, t.into)
        mark = self._add(self.ends[t.index][0], "s", source, home, 1, waits)
        self.origin[t.index] = source
        self.sent[t.index] = self.last_on_link[link] = mark

    def _receive(self, t: Transfer) -> None:
        waits = [self.sent[reader] for reader in t.readers]
        if t.after in self.got:
            waits.append(self.got[t.after])
        held, home = self._cell(t.dst, t.into), self._home(t.dst, t.into)
        kind = "rrc" if t.adds and held is not None else "r"
        source = held if kind == "rrc" and held is not None else self.origin[t.index]
        self.got[t.index] = self._add(self.ends[t.index][1], kind, source, home, 1, waits)
        self.written.add((t.dst, t.into))

    def _add(
        self,
        block: _Block,
        kind: str,
        source: Place,
        target: Place,
        count: int,
        waits: list[_Mark],
    ) -> _Mark:
        """Append a step, with a nop for each dependency but its last."""
        needed: dict[int, _Mark] = {}
        for mark in waits:
            number = mark.block.number
            place = int(mark.step["s"])
            if mark.block is block or block.known.get(number, -1) >= place:
                continue
            if number not in needed or int(needed[number].step["s"]) < place:
                needed[number] = mark
        marks = [
            mark
            for number, mark in needed.items()
            if not any(
                other is not mark and other.known.get(number, -1) >= int(mark.step["s"])
                for other in needed.values()
            )
        ]
        for mark in marks[:-1]:
            self._append(block, "nop", source, target, 0, mark)
        step = self._append(block, kind, source, target, count, marks[-1] if marks else None)
        for mark in marks:
            for number, place in (*mark.known.items(), (mark.block.number, int(mark.step["s"]))):
                block.known[number] = max(block.known.get(number, -1), place)
        return _Mark(block, step, dict(block.known))

    def _append(
        self,
        block: _Block,
        kind: str,
        source: Place,
        target: Place,
        count: int,
        mark: _Mark | None,
    ) -> dict[str, str | int]:
        if mark is not None:
            mark.step["hasdep"] = 1
        step: dict[str, str | int] = {
            "s": len(block.steps),
            "type": kind,
            "srcbuf": source[0],
            "srcoff": source[1],
            "dstbuf": target[0],
            "dstoff": target[1],
            "cnt": count,
            "depid": -1 if mark is None else mark.block.number,
            "deps": -1 if mark is None else mark.step["s"],
            "hasdep": 0,
        }
        block.steps.append(step)
        return step


def _render(writer: _Writer, layout: Layout, options: XmlOptions, name: str) -> str:
    """The file's text."""
    coll = _NAMES[layout.part.pattern]
    if options.runtime == "rccl":
        coll = coll.replace("_", "")
    channels = 1 + max((b.chan for blocks in writer.blocks for b in blocks), default=0)
    root = ElementTree.Element(
        "algo",
        {
            "name": name,
            "proto": options.proto,
            "nchannels": str(channels),
            "nchunksperloop": str(layout.ranks * layout.chunks),
            "ngpus": str(layout.ranks),
            "coll": coll,
            "inplace": "0" if options.inplace == "no" else "1",
            "outofplace": "0" if options.inplace == "yes" else "1",
            "minBytes": str(options.min_bytes),
            "maxBytes": str(options.max_bytes),
        },
    )
    for rank, blocks in enumerate(writer.blocks):
        sizes = {
            "id": str(rank),
            "i_chunks": str(layout.input_chunks),
            "o_chunks": str(layout.output_chunks),
            "s_chunks": str(len(writer.scratch[rank])),
        }
        gpu = ElementTree.SubElement(root, "gpu", sizes)
        for block in blocks:
            ends = {"send": str(block.send), "recv": str(block.recv), "chan": str(block.chan)}
            tb = ElementTree.SubElement(gpu, "tb", {"id": str(block.number)} | ends)
            for step in block.steps:
                fields = {key: str(value) for key, value in step.items()}
                ElementTree.SubElement(tb, "step", fields)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode") + "\n"
