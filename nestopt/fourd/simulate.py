"""Event simulation of one iteration: a compute and a communication stream.

Every task is issued in program order to its stream, which runs tasks one after the other; a task
starts when its stream is free and what it needs is there. The same overlaps as in
`nestopt.fourd.overlap`, but nothing is assumed about which collectives get in each other's way.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nestopt.fourd.overlap import BlockTimes, LayerTimes, Overlap

__all__ = ["Event", "Timeline", "simulate"]


@dataclass(frozen=True, slots=True)
class Event:
    """One task that ran: stream (``compute`` or ``communication``), what, when (seconds)."""

    stream: str
    task: str
    start: float
    end: float


@dataclass(slots=True)
class Timeline:
    """Events in issue order, and when each stream is free."""

    events: list[Event] = field(default_factory=list)
    free: dict[str, float] = field(default_factory=lambda: {"compute": 0.0, "communication": 0.0})

    def run(self, stream: str, task: str, duration: float, ready: float) -> float:
        """Issue a task that may start at `ready`; when it ends (`ready` if it takes no time)."""
        if duration <= 0:
            return ready
        start = max(self.free[stream], ready)
        self.free[stream] = start + duration
        self.events.append(Event(stream, task, start, start + duration))
        return start + duration

    def compute(self, task: str, duration: float, ready: float) -> float:
        """Issue to the compute stream."""
        return self.run("compute", task, duration, ready)

    def communicate(self, task: str, duration: float, ready: float) -> float:
        """Issue to the communication stream."""
        return self.run("communication", task, duration, ready)

    @property
    def end(self) -> float:
        """When the last task ends."""
        return max((event.end for event in self.events), default=0.0)


class _Iteration:
    """State of the program that issues the tasks: when each part of the batch may go on."""

    def __init__(self, blocks: Sequence[BlockTimes], overlap: Overlap) -> None:
        self.blocks, self.overlap = blocks, overlap
        self.line = Timeline()
        parts = 2 if overlap.two_way else 1
        self.parts = range(parts)
        self.ready = [0.0] * parts
        self.weights: dict[tuple[int, int, str], float] = {}

    def play(self) -> Timeline:
        forward = [
            (b, i, layer)
            for b, block in enumerate(self.blocks)
            for i, layer in enumerate(block.layers)
        ]
        for position, (b, i, layer) in enumerate(forward):
            following = forward[position + 1] if position + 1 < len(forward) else None
            prefetch = None
            if following is not None:
                prefetch = (following[0], following[1], "forward", following[2].gather)
            self._forward(b, i, layer, "forward", layer.gather, prefetch)
        for b in reversed(range(len(self.blocks))):
            self._block_backward(b)
        if not self.overlap.data:
            for block in self.blocks:
                for layer in block.layers:
                    self._synchronize(layer, self.line.end)
        return self.line

    def _gather(self, b: int, i: int, phase: str, duration: float, ready: float) -> float:
        """When the weights are there; gathers them unless that was done before."""
        key = (b, i, phase)
        if key not in self.weights:
            name = f"AG {self.blocks[b].layers[i].name}"
            self.weights[key] = self.line.communicate(name, duration, ready)
        return self.weights[key]

    def _forward(
        self,
        b: int,
        i: int,
        layer: LayerTimes,
        phase: str,
        gather: float,
        prefetch: tuple[int, int, str, float] | None,
    ) -> None:
        line = self.line
        begin = max(self.ready[0], line.free["compute"])
        begin = max(begin, self._gather(b, i, phase, gather, begin))
        if self.overlap.all_gather and prefetch is not None:
            self._gather(*prefetch, begin)
        share = 1 / len(self.parts)
        for part in self.parts:
            done = line.compute(
                f"F {layer.name}", layer.forward * share, max(self.ready[part], begin)
            )
            self.ready[part] = line.communicate(f"AR {layer.name}", layer.reduce * share, done)

    def _block_backward(self, b: int) -> None:
        block = self.blocks[b]
        again = 0.0 if self.overlap.cache_weights else 1.0
        layers = block.layers
        if block.recompute:
            for i, layer in enumerate(layers):
                prefetch = None
                if i + 1 < len(layers):
                    prefetch = (b, i + 1, "again", again * layers[i + 1].gather_again)
                self._forward(b, i, layer, "again", again * layer.gather_again, prefetch)
        for i in reversed(range(len(layers))):
            self._backward(b, i, again)

    def _backward(self, b: int, i: int, again: float) -> None:
        line, overlap, layer = self.line, self.overlap, self.blocks[b].layers[i]
        begin = max(self.ready[0], line.free["compute"])
        if not self.blocks[b].recompute:
            begin = max(begin, self._gather(b, i, "again", again * layer.gather_again, begin))
        if overlap.all_gather:
            self._prefetch_backward(b, i, again, begin)
        share = 1 / len(self.parts)
        done = begin
        for part in self.parts:
            start = max(self.ready[part], begin)
            done = line.compute(f"dX {layer.name}", layer.input_gradient * share, start)
            after = layer.weight_gradient * share
            name, duration = f"AR' {layer.name}", layer.reduce_gradient * share
            if overlap.all_reduce:
                reduced = line.communicate(name, duration, done)
                done = line.compute(f"dW {layer.name}", after, done)
            elif overlap.two_way:
                done = line.compute(f"dW {layer.name}", after, done)
                reduced = line.communicate(name, duration, done)
            else:
                reduced = line.communicate(name, duration, done)
                done = line.compute(f"dW {layer.name}", after, reduced)
            self.ready[part] = max(reduced, done) if not overlap.two_way else reduced
        scattered = line.communicate(f"RS {layer.name}", layer.scatter, done)
        if not overlap.reduce_scatter:
            self.ready = [max(ready, scattered) for ready in self.ready]
        if overlap.data:
            self._synchronize(layer, scattered)

    def _prefetch_backward(self, b: int, i: int, again: float, begin: float) -> None:
        """Gather for what comes after this layer: a layer below, or the block below."""
        if i > 0:
            if not self.blocks[b].recompute:
                below = self.blocks[b].layers[i - 1]
                self._gather(b, i - 1, "again", again * below.gather_again, begin)
        elif b > 0:
            block = self.blocks[b - 1]
            first = 0 if block.recompute else len(block.layers) - 1
            self._gather(b - 1, first, "again", again * block.layers[first].gather_again, begin)

    def _synchronize(self, layer: LayerTimes, ready: float) -> None:
        self.line.communicate(f"data AR {layer.name}", layer.sync, ready)


def simulate(blocks: Sequence[BlockTimes], overlap: Overlap) -> Timeline:
    """Play one iteration.

    Parameters
    ----------
    blocks : sequence of BlockTimes
        In forward order.
    overlap : Overlap

    Returns
    -------
    Timeline
        Its `end` is the iteration time in seconds.
    """
    return _Iteration(blocks, overlap).play()
