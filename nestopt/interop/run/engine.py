"""One rank's share of a program, played over any transport that sends and receives arrays.

All receptions are posted first. A message is sent as soon as what it carries has been written and
the messages before it on the same link have been sent; what arrives is written as soon as its cell
has been read by those who must read it before. Sums are therefore always added in the same order.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from nestopt.core.errors import NestoptError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from nestopt.interop.program import Program, Transfer

__all__ = ["RankPlan", "Transport", "execute"]


class Transport(Protocol):
    """Nonblocking messages between ranks."""

    def send(self, array: NDArray[Any], rank: int, tag: int) -> Any:
        """Start to send; returns a request."""

    def receive(self, array: NDArray[Any], rank: int, tag: int) -> Any:
        """Start to receive; returns a request."""

    def some(self, requests: Sequence[Any]) -> list[int]:
        """Wait until at least one request is complete; the indices of those that are."""


class RankPlan:
    """What one rank does, with tags and dependencies worked out once.

    Parameters
    ----------
    program : Program
    rank : int
    most_tag : int
        The largest tag of the transport.

    Raises
    ------
    NestoptError
        If two ranks exchange more messages than there are tags.
    """

    def __init__(self, program: Program, rank: int, most_tag: int) -> None:
        self.rank = rank
        self.sends: list[Transfer] = []
        self.receives = [t for t in program.transfers if t.dst == rank]
        self.tags: dict[int, int] = {}
        counts: dict[tuple[int, int], int] = {}
        self.before: dict[int, int] = {}  # the transfer before each on its link; -1: none
        self.follows: dict[int, int] = {}  # the cell of the one behind it
        last: dict[int, int] = {}
        for t in program.by_start():
            if t.local:
                if t.src == rank:
                    self.sends.append(t)
                continue
            tag = counts[t.src, t.dst] = counts.get((t.src, t.dst), -1) + 1
            if tag > most_tag:
                raise NestoptError(
                    f"ranks {t.src} and {t.dst} exchange more than {most_tag + 1} messages, the "
                    "number of tags of this MPI"
                )
            if rank not in (t.src, t.dst):
                continue
            self.tags[t.index] = tag
            if t.src == rank:
                self.sends.append(t)
                link = program.links[t.index]
                self.before[t.index] = last.get(link, -1)
                if link in last:
                    self.follows[last[link]] = t.cell
                last[link] = t.index


def execute(plan: RankPlan, cells: dict[int, NDArray[Any]], transport: Transport) -> None:
    """Play a rank's share; `cells` are changed in place.

    Parameters
    ----------
    plan : RankPlan
    cells : dict
        The rank's cells by chunk.
    transport : Transport

    Raises
    ------
    NestoptError
        If something is left that can never start.
    """
    _Run(plan, cells, transport).play()


class _Run:
    """The state of one execution on one rank."""

    def __init__(
        self, plan: RankPlan, cells: dict[int, NDArray[Any]], transport: Transport
    ) -> None:
        self.plan, self.cells, self.transport = plan, cells, transport
        self.written: set[int] = {-1}  # transfers whose message is in the cell
        self.issued: set[int] = {-1}
        self.read: set[int] = set()  # transfers whose message has left its cell
        self.landed: dict[int, NDArray[Any]] = {}
        self.requests: list[Any] = []
        self.meaning: list[tuple[bool, Transfer, NDArray[Any]]] = []
        self.unsent: dict[int, deque[Transfer]] = {}
        self.waiting: dict[int, deque[Transfer]] = {}
        for t in plan.sends:
            self.unsent.setdefault(t.cell, deque()).append(t)
        for t in plan.receives:
            self.waiting.setdefault(t.into, deque()).append(t)

    def play(self) -> None:
        for t in self.plan.receives:
            if not t.local:
                landing = np.empty_like(self.cells[t.into])
                request = self.transport.receive(landing, t.src, self.plan.tags[t.index])
                self._remember(request, False, t, landing)
        left = set(self.unsent) | set(self.waiting)
        self._advance(left)
        while self.requests:
            touched: set[int] = set()
            done = self.transport.some(self.requests)
            for index in done:
                sent, t, array = self.meaning[index]
                touched.add(t.cell if sent else t.into)
                if sent:
                    self.read.add(t.index)
                else:
                    self.landed[t.index] = array
            gone = set(done)
            self.requests = [r for i, r in enumerate(self.requests) if i not in gone]
            self.meaning = [m for i, m in enumerate(self.meaning) if i not in gone]
            self._advance(touched)
        stuck = sum(map(len, self.unsent.values())) + sum(map(len, self.waiting.values()))
        if stuck:
            raise NestoptError(f"rank {self.plan.rank}: {stuck} transfers can never start")

    def _remember(self, request: Any, sent: bool, t: Transfer, array: NDArray[Any]) -> None:
        self.requests.append(request)
        self.meaning.append((sent, t, array))

    def _advance(self, cells: set[int]) -> None:
        """Do what can be done on these cells, and on those that this frees."""
        while cells:
            cell = cells.pop()
            while True:
                written = self._write_next(cell)
                sent = self._send_next(cell)
                if sent is not None and sent.index in self.plan.follows:
                    cells.add(self.plan.follows[sent.index])
                for t in (written, sent):
                    if t is not None and t.local:
                        cells |= {t.cell, t.into}
                if written is None and sent is None:
                    break

    def _write_next(self, cell: int) -> Transfer | None:
        queue = self.waiting.get(cell)
        if not queue:
            return None
        t = queue[0]
        ready = t.index in self.landed and t.after in self.written
        if not ready or not all(reader in self.read for reader in t.readers):
            return None
        queue.popleft()
        held, message = self.cells[cell], self.landed.pop(t.index)
        if t.adds:
            np.add(held, message, out=held)
        else:
            held[...] = message
        self.written.add(t.index)
        return t

    def _send_next(self, cell: int) -> Transfer | None:
        queue = self.unsent.get(cell)
        if not queue:
            return None
        t = queue[0]
        held = self.cells[cell]
        if t.needs not in self.written:
            return None
        if t.local:
            self.landed[t.index] = held.copy()
            self.read.add(t.index)
        elif self.plan.before[t.index] in self.issued:
            self.issued.add(t.index)
            request = self.transport.send(held, t.dst, self.plan.tags[t.index])
            self._remember(request, True, t, held)
        else:
            return None
        queue.popleft()
        return t
