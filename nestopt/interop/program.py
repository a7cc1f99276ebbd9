"""A schedule as transfers between ranks: what a runtime without our switches can execute.

A switch is no process. A chunk's way through switches becomes one transfer from the NPU that sent
it to the NPU that receives it; what a switch multicasts becomes one transfer to each receiver, and
what a switch adds up becomes one transfer of each addend. Every transfer knows which others it must
wait for, so that it can be played in any order that keeps those.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from nestopt.collective.model.schedule import REDUCE
from nestopt.core.errors import CheckError, InputError

if TYPE_CHECKING:
    from nestopt.collective.model.instance import CollectiveInstance
    from nestopt.collective.model.schedule import Schedule

__all__ = ["MOST_SENDS", "Program", "Transfer", "program_of"]

MOST_SENDS = 2_000_000


@dataclass(frozen=True, slots=True)
class Transfer:
    """One message from a rank's cell of a chunk to another rank's cell of the same chunk.

    Every rank has one cell for each chunk that it touches.

    Attributes
    ----------
    index : int
        Place in `Program.transfers`, which is the order of arrival.
    chunk : int
    src, dst : int
        Ranks; equal only where a switch brings back a sum that contains the sender's own part.
    start_ps, arrival_ps : int
        Start of the first hop and end of the last, picoseconds.
    sends : tuple of int
        The first and, if it is another, the last of the schedule's sends on the way.
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
    chunk: int
    src: int
    dst: int
    start_ps: int
    arrival_ps: int
    sends: tuple[int, ...]
    adds: bool
    needs: int
    after: int
    readers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Program:
    """The transfers of a schedule, in the order of their arrival.

    Attributes
    ----------
    npus : tuple of int
        Node of the topology of each rank, ascending.
    transfers : tuple of Transfer
    links : tuple of int
        The first link of each transfer; those of one link are sent in the order of `by_start`.
    """

    npus: tuple[int, ...]
    transfers: tuple[Transfer, ...]
    links: tuple[int, ...]

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return len(self.npus)

    def by_start(self) -> list[Transfer]:
        """The transfers in the order in which they are sent."""
        return sorted(self.transfers, key=lambda t: (t.start_ps, t.sends[0], t.index))


@dataclass(slots=True)
class _Cell:
    """What the replay knows of a cell: contributions (a bit a node), its writes, its history.

    The history holds `_Sent` for what was sent from it and an integer for what was written to it.
    """

    holds: int = 0
    writes: int = 0
    history: list[_Sent | int] = field(default_factory=list)


@dataclass(slots=True)
class _Sent:
    """A send that left an NPU: what its cell held, after how many writes; where it came to."""

    node: int
    send: int
    holds: int
    writes: int
    reached: list[int] = field(default_factory=list)


@dataclass(slots=True)
class _Message:
    """A transfer before its dependencies are known."""

    sent: _Sent
    last: int
    node: int
    adds: bool
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
    if schedule.shares:
        raise CheckError(
            "the schedule copies partial sums, which programs have no operation for; "
            "solve with --set sums=moved"
        )
    return _Replay(instance, schedule).run(all_npus)


class _Replay:
    """The state of the replay: cells of NPUs, and what waits in switches."""

    def __init__(self, instance: CollectiveInstance, schedule: Schedule) -> None:
        topology, collective = instance.topology, instance.collective
        self.instance, self.schedule = instance, schedule
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
        self.copies: dict[tuple[int, int], deque[list[_Sent]]] = {}
        self.sums: dict[tuple[int, int], deque[list[_Sent]]] = {}
        self.payload: list[list[_Sent]] = [[] for _ in self.chunk]
        self.messages: list[_Message] = []
        first = 0
        for part in collective.parts:
            sources = part.sources().tolist()
            for local, source in enumerate(sources):
                for node in part.npus.tolist() if source < 0 else (source,):
                    self.cells[node, first + local] = _Cell(1 << node)
            first += part.num_chunks

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
        for cell in self.cells.values():
            self._depend(cell)
        return self._program(all_npus)

    def _depend(self, cell: _Cell) -> None:
        """Order what happened to a cell: writes after reads, reads after writes."""
        writer = -1
        readers: list[int] = []
        for event in cell.history:
            if isinstance(event, _Sent):
                for index in event.reached:
                    self.messages[index].needs = writer
                readers += event.reached
            else:
                message = self.messages[event]
                message.after, message.readers = writer, tuple(readers)
                writer, readers = event, []

    def _program(self, all_npus: bool) -> Program:
        members = {n for part in self.instance.collective.parts for n in part.npus.tolist()}
        members |= {end for m in self.messages for end in (m.sent.node, m.node)}
        npus = self.instance.topology.npus.tolist() if all_npus else sorted(members)
        rank = {node: index for index, node in enumerate(npus)}
        transfers = tuple(
            Transfer(
                index,
                self.chunk[m.last],
                rank[m.sent.node],
                rank[m.node],
                self.start[m.sent.send],
                self.arrival[m.last],
                (m.sent.send,) if m.sent.send == m.last else (m.sent.send, m.last),
                m.adds,
                m.needs,
                m.after,
                m.readers,
            )
            for index, m in enumerate(self.messages)
        )
        return Program(tuple(npus), transfers, tuple(self.link[t.sends[0]] for t in transfers))

    def _depart(self, i: int) -> None:
        node, chunk = self.src[self.link[i]], self.chunk[i]
        if self.switch[node]:
            self.payload[i] = self._leave_switch(i, node, chunk)
            return
        cell = self.cells.setdefault((node, chunk), _Cell())
        sent = _Sent(node, i, cell.holds, cell.writes)
        cell.history.append(sent)
        self.payload[i] = [sent]
        if self.phase[i] == REDUCE:
            cell.holds = 0  # moved on: what comes next replaces it

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
        link = self.instance.topology.link_name(self.link[i])
        raise CheckError(
            f"send {i} of chunk {chunk} on {link} at {self.start[i]} ps leaves a switch that "
            "holds nothing of it"
        )

    def _arrive(self, k: int) -> None:
        node, chunk = self.dst[self.link[k]], self.chunk[k]
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
            if sent.node != node or sent.writes != cell.writes:
                index = len(self.messages)
                self.messages.append(_Message(sent, k, node, cell.holds != 0))
                sent.reached.append(index)
                cell.history.append(index)
                cell.writes += 1
            cell.holds |= sent.holds
