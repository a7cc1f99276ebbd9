"""An MSCCL++ execution plan as its executor reads it, played on symbols.

Only what `mscclpp_plan` writes is understood: puts, signals and waits over memory channels, copies,
sums, semaphores. A threadblock's operations run in order; a signal is one count more on the channel
of the peer that belongs to it (the k-th of two ranks belong together), a wait one less. Each place
may be written once, and must have been written before it is read.
"""

from __future__ import annotations

from typing import Any

from nestopt.core.errors import CheckError

__all__ = ["MOST_CHANNELS", "MOST_OPERATIONS", "check_plan"]

MOST_OPERATIONS, MOST_CHANNELS = 64, 16  # of a threadblock (execution_common.hpp)
Place = tuple[int, str, int]


def check_plan(plan: dict[str, Any]) -> None:
    """Play a plan, in two orders of its threadblocks, and compare its outputs with the collective.

    Raises
    ------
    CheckError
        If operations wait for each other, a place is read before it is written or written twice,
        or an output is not as the collective wants it.
    """
    for backwards in (False, True):
        _Play(plan).run(backwards=backwards)


class _Play:
    """One execution, threadblock by threadblock as far as each can go."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.plan, self.gpus = plan, plan["gpus"]
        self.values: dict[Place, tuple[tuple[int, int], ...]] = {}
        self.counts: dict[tuple[int, int], int] = {}
        self.semaphores = {
            (g["id"], k): s["init_value"] for g in self.gpus for k, s in enumerate(g["semaphores"])
        }
        self.pair: dict[tuple[int, int], tuple[int, int]] = {}
        ordinals: dict[tuple[int, int, int], tuple[int, int]] = {}
        for g in self.gpus:
            seen: dict[int, int] = {}
            for channels in g["channels"]:
                for number, peer in enumerate(channels["connected_to"]):
                    seen[peer] = seen.get(peer, -1) + 1
                    ordinals[g["id"], peer, seen[peer]] = (g["id"], number)
            for index in range(g["input_chunks"]):
                self.values[g["id"], "i", index] = ((g["id"], index),)
        for (rank, peer, k), end in ordinals.items():
            if (peer, rank, k) not in ordinals:
                raise CheckError(f"gpu {rank}: a channel to {peer} without its other end")
            self.pair[end] = ordinals[peer, rank, k]

    def run(self, *, backwards: bool) -> None:
        """Play all operations, the last threadblocks first if so asked; look at the outputs."""
        todo = [(g, tb, 0) for g in self.gpus for tb in g["threadblocks"]]
        todo = todo[::-1] if backwards else todo
        for g, tb, _ in todo:
            if len(tb["ops"]) > MOST_OPERATIONS:
                raise CheckError(f"gpu {g['id']}, threadblock {tb['id']}: too many operations")
        while todo:
            left, moved = [], False
            for g, tb, at in todo:
                start = at
                while at < len(tb["ops"]) and self._step(g, tb, tb["ops"][at]):
                    at += 1
                moved |= at > start
                if at < len(tb["ops"]):
                    left.append((g, tb, at))
            if left and not moved:
                g, tb, at = left[0]
                raise CheckError(
                    f"deadlock: gpu {g['id']}, threadblock {tb['id']}, operation {at} "
                    f"({tb['ops'][at]['name']})"
                )
            todo = left
        self._outputs()

    def _step(self, g: dict[str, Any], tb: dict[str, Any], op: dict[str, Any]) -> bool:
        name, rank = op["name"], g["id"]
        if name in ("signal", "rlxsignal", "wait", "rlxwait"):
            own = (rank, tb["channels"][0]["channel_ids"][op["channel_ids"][0]])
            if name.endswith("signal"):
                other = self.pair[own]
                self.counts[other] = self.counts.get(other, 0) + 1
                return True
            if self.counts.get(own, 0) < 1:
                return False
            self.counts[own] -= 1
        elif name == "sem_acquire":
            ids = [(rank, k) for k in op["semaphore_ids"]]
            if any(self.semaphores[each] < 1 for each in ids):
                return False
            for each in ids:
                self.semaphores[each] -= 1
        elif name == "sem_release":
            for k in op["semaphore_ids"]:
                self.semaphores[rank, k] += 1
        elif name in ("put", "copy", "re"):
            value: tuple[tuple[int, int], ...] = ()
            for source in op["src_buff"]:
                place = (rank, source["type"], source["index"])
                if place not in self.values:
                    raise CheckError(f"gpu {rank}: {name} reads {place[1]}[{place[2]}] too early")
                value += self.values[place]
            self._write(self._target(g, tb, op["dst_buff"][0]), value)
        elif name != "nop":
            raise CheckError(f"gpu {rank}: operation {name!r} is not understood")
        return True

    def _target(self, g: dict[str, Any], tb: dict[str, Any], buffer: dict[str, Any]) -> Place:
        if "type" in buffer:
            return g["id"], buffer["type"], buffer["index"]
        number = tb["remote_buffer_refs"][0]["remote_buffer_ids"][buffer["buffer_id"]]
        remote = g["remote_buffers"][number]
        return remote["rank"], remote["type"], buffer["index"]

    def _write(self, place: Place, value: tuple[tuple[int, int], ...]) -> None:
        rank, buffer, index = place
        sizes = {"o": "output_chunks", "s": "scratch_chunks"}
        if buffer not in sizes or not 0 <= index < self.gpus[rank][sizes[buffer]]:
            raise CheckError(f"gpu {rank}: no place {buffer}[{index}] to write to")
        if place in self.values:
            raise CheckError(f"gpu {rank}: {buffer}[{index}] is written twice")
        self.values[place] = tuple(sorted(value))

    def _outputs(self) -> None:
        n, kind = len(self.gpus), self.plan["collective"]
        for g in self.gpus:
            r, inputs, outputs = g["id"], g["input_chunks"], g["output_chunks"]
            for index in range(outputs):
                owner, local = divmod(index, outputs // n) if outputs >= n else (0, 0)
                right = {
                    "allgather": [(owner, local)],
                    "alltoall": [(owner, r * (inputs // n) + local)],
                    "allreduce": [(other, index) for other in range(n)],
                    "reducescatter": [(other, r * outputs + index) for other in range(n)],
                }[kind]
                found = self.values.get((r, "o", index))
                if found != tuple(right):
                    raise CheckError(f"gpu {r}: output {index} is the sum of {found}, not {right}")
