"""A schedule as transfers between ranks: what a runtime without our switches can execute.

A switch is no process. A chunk's way through switches becomes one transfer from the NPU that sent
it to the NPU that receives it; what a switch multicasts becomes one transfer to each receiver, and
what a switch adds up becomes one transfer of each addend. Every transfer knows which others it must
wait for, so that it can be played in any order that keeps those.

A rank has a cell for each chunk that it touches, in which a sum is gathered. Where copied partial
sums make it keep several sums of one chunk apart, each has a further cell, and additions between a
rank's own cells are transfers from the rank to itself.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from nestopt.collective.model.schedule import REDUCE, SHARE
from nestopt.core.errors import CheckError, InputError
from nestopt.interop.cover import disjoint_cover

if TYPE_CHECKING:
    from nestopt.collective.model.instance import CollectiveInstance
    from nestopt.collective.model.schedule import Schedule

__all__ = ["MOST_SENDS", "Program", "Transfer", "program_of"]

MOST_SENDS = 2_000_000


@dataclass(frozen=True, slots=True)
class Transfer:
    """One message from a rank's cell to another rank's, or one local operation of a rank.

    Attributes
    ----------
    index : int
        Place in `Program.transfers`, which is the order of arrival.
    cell, into : int
        Cell that is read at the source, and written at the destination: the chunk's number, or
        that of a further cell (see `Program.chunk`).
    src, dst : int
        Ranks; equal for a local operation.
    start_ps, arrival_ps : int
        Start of the first hop and end of the last, picoseconds.
    sends : tuple of int
        The first and, if it is another, the last of the schedule's sends on the way; of a local
        operation the send that it is for, or none.
    adds : bool
        Whether the message is added to what the cell holds; it replaces it otherwise.
    needs : int
        The transfer that wrote last into the source's cell before this one is sent; -1: none.
    after : int
        The transfer that wrote last into the destination's cell before this one; -1: none.
    readers : tuple of int
        Transfers that read the destination's cell since then and before this one arrives.
    """

    index: int
    cell: int
    into: int
    src: int
    dst: int
    start_ps: int
    arrival_ps: int
    sends: tuple[int, ...]
    adds: bool
    needs: int
    after: int
    readers: tuple[int, ...]

    @property
    def local(self) -> bool:
        """Whether nothing leaves the rank."""
        return self.src == self.dst


@dataclass(frozen=True, slots=True)
class Program:
    """The transfers of a schedule, in the order of their arrival.

    Attributes
    ----------
    npus : tuple of int
        Node of the topology of each rank, ascending.
    transfers : tuple of Transfer
    links : tuple of int
        The first link of each transfer, -1 of a local one; those of one link are sent in the order
        of `by_start`.
    num_chunks : int
        Cells below this number are the chunks'.
    further : tuple of int
        The chunk of each further cell.
    """

    npus: tuple[int, ...]
    transfers: tuple[Transfer, ...]
    links: tuple[int, ...]
    num_chunks: int
    further: tuple[int, ...]

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return len(self.npus)

    def chunk(self, cell: int) -> int:
        """The chunk of a cell."""
        return cell if cell < self.num_chunks else self.further[cell - self.num_chunks]

    def by_start(self) -> list[Transfer]:
        """The transfers in the order in which they are sent."""
        return sorted(self.transfers, key=lambda t: (t.start_ps, not t.local, t.sends, t.index))


@dataclass(slots=True)
class _Cell:
    """What the replay knows of a cell: contributions (a bit a node), its writes, its history.

    The history holds `_Sent` for what was sent from it and `_Message` for what was written to it.
    """

    holds: int = 0
    writes: int = 0
    history: list[_Sent | _Message] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class _Sent:
    """A cell that was read: where, by which send, what it held, after how many writes."""

    node: int
    cell: int
    send: int
    holds: int
    writes: int
    reached: list[_Message] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class _Message:
    """A transfer before its dependencies are known; `late` orders those of one moment."""

    sent: _Sent
    node: int
    into: int
    adds: bool
    start_ps: int
    arrival_ps: int
    late: bool
    sends: tuple[int, ...]
    index: int = -1
    needs: int = -1
    after: int = -1
    readers: tuple[int, ...] = ()


def program_of(
    instance: CollectiveInstance, schedule: Schedule, *, all_npus: bool = False
) -> Program:
    """The transfers of a schedule.

    The sends are replayed in their order, as they are: a wrong schedule becomes a program with the
    wrong result. Only what leaves a switch must have come to it.

    Parameters
    ----------
    instance : CollectiveInstance
    schedule : Schedule
    all_npus : bool
        Whether NPUs that take no part have a rank too.

    Raises
    ------
    InputError
        If there are more than `MOST_SENDS` sends.
    CheckError
        If a send names no chunk or link, or leaves a switch that does not hold its chunk.
    """
    if schedule.num_sends > MOST_SENDS:
        raise InputError(
            f"{schedule.num_sends} sends; at most {MOST_SENDS} can be run or exported",
            field="num_sends",
        )
    for name, limit in (
        ("chunk", instance.collective.num_chunks),
        ("link", instance.topology.num_links),
    ):
        values = getattr(schedule, name)
        bad = (values < 0) | (values >= limit)
        if bad.any():
            send = int(np.argmax(bad))
            raise CheckError(f"send {send}: no {name} {values[send]}; there are {limit}")
    return _Replay(instance, schedule).run(all_npus)


class _Replay:
    """The state of the replay: cells of NPUs, and what waits in switches."""

    def __init__(self, instance: CollectiveInstance, schedule: Schedule) -> None:
        topology, collective = instance.topology, instance.collective
        self.instance = instance
        self.chunk, self.link = schedule.chunk.tolist(), schedule.link.tolist()
        self.start, self.phase = schedule.start_ps.tolist(), schedule.phase.tolist()
        self.src, self.dst = topology.src.tolist(), topology.dst.tolist()
        self.switch = topology.is_switch.tolist()
        self.multicast, self.merges = topology.multicast.tolist(), topology.reduces.tolist()
        duration = np.zeros(schedule.num_sends, dtype=np.int64)
        size = collective.chunk_sizes[schedule.chunk]
        for each in np.unique(size).tolist():
            rows = size == each
            duration[rows] = instance.transfer_ps(each)[schedule.link[rows]]
        self.arrival = (schedule.start_ps + duration).tolist()
        self.cells: dict[tuple[int, int], _Cell] = {}
        self.further: list[int] = []
        self.copies: dict[tuple[int, int], deque[list[_Sent]]] = {}
        self.sums: dict[tuple[int, int], deque[list[_Sent]]] = {}
        self.payload: list[list[_Sent]] = [[] for _ in self.chunk]
        self.messages: list[_Message] = []
        self.shared = set(schedule.chunk[schedule.phase == SHARE].tolist())
        # of chunks whose partial sums are copied: the sets at each node, with who has them
        self.sets: dict[tuple[int, int], list[tuple[int, list[_Sent]]]] = {}
        self.content = self._contents(schedule)
        self._begin()

    def _begin(self) -> None:
        """The preconditions."""
        first = 0
        for part in self.instance.collective.parts:
            sources = part.sources().tolist()
            for local, source in enumerate(sources):
                chunk = first + local
                for node in part.npus.tolist() if source < 0 else (source,):
                    self.cells[node, chunk] = _Cell(1 << node)
                    if chunk in self.shared:
                        own = _Sent(node, chunk, -1, 1 << node, 0)
                        self.sets[node, chunk] = [(1 << node, [own])]
            first += part.num_chunks

    def _contents(self, schedule: Schedule) -> dict[int, int]:
        """What the sends of copied partial sums say is in them, as bits of nodes."""
        found: dict[int, int] = {}
        if schedule.content is None:
            return found
        part_of, parts = self.instance.collective.part_of, self.instance.collective.parts
        for send in np.flatnonzero(schedule.phase == SHARE).tolist():
            group = parts[int(part_of[self.chunk[send]])].npus
            positions = schedule.sets[int(schedule.content[send])]
            found[send] = sum(1 << int(node) for node in group[positions])
        return found

    def run(self, all_npus: bool) -> Program:
        order = np.argsort(np.array(self.arrival, dtype=np.int64), kind="stable").tolist()
        landed = 0
        for i in range(len(self.chunk)):
            while landed < len(order) and self.arrival[order[landed]] <= self.start[i]:
                self._arrive(order[landed])
                landed += 1
            self._depart(i)
        for k in order[landed:]:
            self._arrive(k)
        self._finish()
        self.messages.sort(key=lambda m: (m.arrival_ps, m.late))
        for index, message in enumerate(self.messages):
            message.index = index
        for cell in self.cells.values():
            _depend(cell)
        return self._program(all_npus)

    def _program(self, all_npus: bool) -> Program:
        members = {n for part in self.instance.collective.parts for n in part.npus.tolist()}
        members |= {end for m in self.messages for end in (m.sent.node, m.node)}
        npus = self.instance.topology.npus.tolist() if all_npus else sorted(members)
        rank = {node: index for index, node in enumerate(npus)}
        transfers = tuple(
            Transfer(
                m.index,
                m.sent.cell,
                m.into,
                rank[m.sent.node],
                rank[m.node],
                m.start_ps,
                m.arrival_ps,
                m.sends,
                m.adds,
                m.needs,
                m.after,
                m.readers,
            )
            for m in self.messages
        )
        links = tuple(-1 if t.local else self.link[t.sends[0]] for t in transfers)
        count = self.instance.collective.num_chunks
        return Program(tuple(npus), transfers, links, count, tuple(self.further))

    def _fresh(self, chunk: int) -> int:
        """A further cell for a chunk."""
        self.further.append(chunk)
        return self.instance.collective.num_chunks + len(self.further) - 1

    def _read(self, node: int, cell: int, send: int) -> _Sent:
        """Note that a send, or a local operation, reads a cell now."""
        state = self.cells.setdefault((node, cell), _Cell())
        sent = _Sent(node, cell, send, state.holds, state.writes)
        state.history.append(sent)
        return sent

    def _local(self, sent: _Sent, into: int, adds: bool, now: int, send: int) -> None:
        """An operation between two cells of a node, at the moment of a send or at the end."""
        sends = (send,) if send >= 0 else ()
        self._write(_Message(sent, sent.node, into, adds, now, now, True, sends))

    def _write(self, message: _Message) -> None:
        cell = self.cells.setdefault((message.node, message.into), _Cell())
        self.messages.append(message)
        message.sent.reached.append(message)
        cell.history.append(message)
        cell.writes += 1
        cell.holds = message.sent.holds | (cell.holds if message.adds else 0)

    def _depart(self, i: int) -> None:
        node, chunk = self.src[self.link[i]], self.chunk[i]
        if chunk in self.shared:
            self.payload[i] = self._depart_set(i, node, chunk)
        elif self.switch[node]:
            self.payload[i] = self._leave_switch(i, node, chunk)
        else:
            self.payload[i] = [self._read(node, chunk, i)]
            if self.phase[i] == REDUCE:
                self.cells[node, chunk].holds = 0  # moved on: what comes next replaces it

    def _leave_switch(self, i: int, node: int, chunk: int) -> list[_Sent]:
        copies, sums = self.copies.get((node, chunk)), self.sums.get((node, chunk))
        if self.phase[i] == REDUCE:
            if sums and self.merges[node]:
                together = [sent for each in sums for sent in each]
                sums.clear()
                return together
            if sums:
                return sums.popleft()
        elif copies:
            return copies[0] if self.multicast[node] else copies.popleft()
        elif sums and self.merges[node]:
            return [sent for each in sums for sent in each]
        raise self._nothing(i)

    def _nothing(self, i: int) -> CheckError:
        link = self.instance.topology.link_name(self.link[i])
        return CheckError(
            f"send {i} of chunk {self.chunk[i]} on {link} at {self.start[i]} ps leaves a switch "
            "that holds nothing of it"
        )

    def _depart_set(self, i: int, node: int, chunk: int) -> list[_Sent]:
        """A send of a chunk whose partial sums are copied: the sum of disjoint sets."""
        held = self.sets.get((node, chunk), [])
        moves = self.phase[i] == REDUCE
        if moves:
            used = list(range(len(held) if self.merges[node] else min(len(held), 1)))
        else:
            wanted = self.content.get(i, self._whole(chunk))
            sets = [bits for bits, _ in held]
            if not self.merges[node]:
                used = [sets.index(wanted)] if wanted in sets else []
            else:
                used = disjoint_cover(wanted, sets)
        parts = [sent for index in used for sent in held[index][1]]
        if moves or not self.multicast[node]:
            gone = set(used)
            self.sets[node, chunk] = [each for k, each in enumerate(held) if k not in gone]
        if self.switch[node]:
            if not parts:
                raise self._nothing(i)
            return parts
        if not parts:
            return [self._read(node, chunk, i)]  # wrong: sends what is there
        cell = parts[0].cell if len(parts) == 1 else self._fresh(chunk)
        for number, part in enumerate(parts if len(parts) > 1 else ()):
            read = self._read(node, part.cell, i)
            self._local(read, cell, number > 0, self.start[i], i)
        return [self._read(node, cell, i)]

    def _whole(self, chunk: int) -> int:
        part, _ = self.instance.collective.locate(chunk)
        return sum(1 << node for node in part.npus.tolist())

    def _arrive(self, k: int) -> None:
        node, chunk = self.dst[self.link[k]], self.chunk[k]
        if chunk in self.shared:
            self._arrive_set(k, node, chunk)
            return
        if self.switch[node]:
            waiting = self.sums if self.phase[k] == REDUCE else self.copies
            waiting.setdefault((node, chunk), deque()).append(self.payload[k])
            return
        cell = self.cells.setdefault((node, chunk), _Cell())
        brought = 0
        for sent in self.payload[k]:
            brought |= sent.holds
        if not cell.holds & ~brought:
            cell.holds = 0  # nothing would be lost: replaced, not added to
        # what the cell still holds of its own need not travel, so it comes first
        for sent in sorted(self.payload[k], key=lambda sent: sent.node != node):
            if sent.node != node:
                self._write(self._message(k, sent, node, chunk, cell.holds != 0))
            elif sent.writes == cell.writes:
                cell.holds |= sent.holds
            else:
                self._bring_back(k, sent, chunk)

    def _message(self, k: int, sent: _Sent, node: int, into: int, adds: bool) -> _Message:
        sends = (sent.send,) if sent.send == k else (sent.send, k)
        start = self.start[sent.send]
        return _Message(sent, node, into, adds, start, self.arrival[k], False, sends)

    def _bring_back(self, k: int, sent: _Sent, chunk: int) -> None:
        """A switch brings a node what it sent, after its cell changed: kept aside since then."""
        aside = self._fresh(chunk)
        holds = self.cells[sent.node, chunk].holds
        self._local(sent, aside, False, self.start[sent.send], sent.send)
        read = self._read(sent.node, aside, k)
        back = self._message(k, read, sent.node, chunk, holds != 0)
        back.start_ps, back.sends = back.arrival_ps, (k,)
        self._write(back)

    def _arrive_set(self, k: int, node: int, chunk: int) -> None:
        """An arrival of a chunk whose partial sums are copied: one more set, in its own cell."""
        brought = 0
        for sent in self.payload[k]:
            brought |= sent.holds
        held = self.sets.setdefault((node, chunk), [])
        if self.switch[node]:
            held.append((brought, self.payload[k]))
            return
        into = self._fresh(chunk)
        for number, sent in enumerate(self.payload[k]):
            if sent.node == node:
                read = self._read(node, sent.cell, k)
                back = _Message(
                    read, node, into, number > 0, self.arrival[k], self.arrival[k], False, (k,)
                )
                self._write(back)
            else:
                self._write(self._message(k, sent, node, into, number > 0))
        held.append((brought, [_Sent(node, into, k, brought, 1)]))

    def _finish(self) -> None:
        """Gather the sets of shared chunks where the whole sum must be."""
        end = max(self.arrival, default=0)
        for chunk in sorted(self.shared):
            whole = self._whole(chunk)
            for node in self.instance.collective.post(chunk).tolist():
                held = self.sets.get((node, chunk), [])
                used = disjoint_cover(whole, [bits for bits, _ in held])
                cells = [held[index][1][0].cell for index in used]
                if chunk in cells:
                    cells.remove(chunk)
                    keep = True
                else:
                    keep = False
                for number, cell in enumerate(cells):
                    adds = keep or number > 0
                    self._local(self._read(node, cell, -1), chunk, adds, end, -1)


def _depend(cell: _Cell) -> None:
    """Order what happened to a cell: writes after reads, reads after writes."""
    writer = -1
    readers: list[int] = []
    for event in cell.history:
        if isinstance(event, _Sent):
            for message in event.reached:
                message.needs = writer
                readers.append(message.index)
        else:
            event.after, event.readers = writer, tuple(r for r in readers if r != event.index)
            writer, readers = event.index, []
