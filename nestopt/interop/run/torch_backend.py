"""The torch.distributed transport (gloo on CPUs, nccl on GPUs) and its own collectives.

A group of point-to-point operations is started at once and waited for before the next, which is
what NCCL needs: the transfers are cut into rounds so that no message of a round depends on another
of the same round.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from nestopt.core.errors import NestoptError
from nestopt.interop.run.blocks import filled, given_rows, kept_rows, reduced_by
from nestopt.interop.run.data import tolerance

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nestopt.collective.model.collective import Collective, Part
    from nestopt.interop.program import Program, Transfer
    from nestopt.interop.run.data import Sizes
    from nestopt.interop.run.engine import RankPlan

__all__ = ["TorchBackend", "rounds_of"]

RENDEZVOUS = "NESTOPT_RENDEZVOUS"


def rounds_of(program: Program) -> list[list[Transfer]]:
    """The transfers in rounds: what a message carries was written in an earlier round.

    A cell may be read and replaced in one round, since what arrives is written when the round's
    messages have all left. The order of a link is kept.
    """
    order = program.by_start()
    before: list[tuple[Transfer, int, tuple[int, ...]]] = []
    last: dict[int, int] = {}
    for t in order:
        link = program.links[t.index]
        previous = last.get(link, -1) if link >= 0 else t.needs
        equal = tuple(i for i in (previous, t.after, *t.readers) if i >= 0)
        # a local operation is done when the round's messages are written, in its turn
        before.append((t, -1 if t.local else t.needs, equal))
        last[link] = t.index
    level = [0] * len(order)
    # what arrives may raise a round after later ones were placed: repeat until nothing moves
    changed = True
    while changed:
        changed = False
        for t, needs, equal in before:
            depth = max((level[i] for i in equal), default=0)
            depth = max(depth, level[needs] + 1) if needs >= 0 else depth
            if depth > level[t.index]:
                level[t.index] = depth
                changed = True
    rounds: list[list[Transfer]] = [[] for _ in range(max(level, default=-1) + 1)]
    for t in program.transfers:
        rounds[level[t.index]].append(t)
    return [each for each in rounds if each]


class TorchBackend:
    """The default process group as the runs see it.

    Started by torchrun, or by `nestopt run`, which names a file for the rendezvous.

    Parameters
    ----------
    name : str
        ``"gloo"`` or ``"nccl"``.

    Raises
    ------
    NestoptError
        If torch, or what the backend needs, is missing.
    """

    def __init__(self, name: str) -> None:
        try:
            import torch
            import torch.distributed as dist
        except (ImportError, OSError) as error:
            raise NestoptError(
                f"torch is missing ({error}): pip install 'nestopt[torch]'"
            ) from error
        self.name, self.torch, self.dist = name, torch, dist
        available = dist.is_available() and (
            dist.is_nccl_available() if name == "nccl" else dist.is_gloo_available()
        )
        if not available:
            raise NestoptError(f"this torch was built without {name}")
        if name == "nccl" and not torch.cuda.is_available():
            raise NestoptError("nccl needs a GPU in every process, and torch sees none here")
        if not dist.is_initialized():
            place = os.environ.get(RENDEZVOUS)
            rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
            init = f"file://{place}" if place else "env://"
            dist.init_process_group(name, init_method=init, rank=rank, world_size=size)
        self.rank: int = dist.get_rank()
        self.size: int = dist.get_world_size()
        self.device = torch.device("cpu")
        if name == "nccl":
            count = torch.cuda.device_count()
            self.device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", self.rank % count)))
            torch.cuda.set_device(self.device)
        self._groups: dict[tuple[int, ...], Any] = {}
        self._rounds: tuple[Program, list[list[Transfer]]] | None = None

    @property
    def library(self) -> str:
        """Name and version."""
        return f"torch {self.torch.__version__}, {self.name}"

    @property
    def most_tag(self) -> int:
        """Messages of a pair need no tags: their order tells them apart."""
        return 2**31 - 1

    def play(self, plan: RankPlan, program: Program, cells: dict[int, NDArray[Any]]) -> None:
        """Execute this rank's share of a program, round by round."""
        if self._rounds is None or self._rounds[0] is not program:
            self._rounds = (program, rounds_of(program))
        held = {chunk: self._to_device(cell) for chunk, cell in cells.items()}
        for transfers in self._rounds[1]:
            self._play_round(transfers, held)
        self._settle()
        for chunk, tensor in held.items():
            cells[chunk][...] = tensor.cpu().numpy()

    def _play_round(self, transfers: list[Transfer], held: dict[int, Any]) -> None:
        operations, landed = [], {}
        for t in transfers:
            if t.local:
                continue
            if t.src == self.rank:
                operations.append(self.dist.P2POp(self.dist.isend, held[t.cell], t.dst))
            elif t.dst == self.rank:
                landed[t.index] = self.torch.empty_like(held[t.into])
                operations.append(self.dist.P2POp(self.dist.irecv, landed[t.index], t.src))
        if operations:
            for work in self.dist.batch_isend_irecv(operations):
                work.wait()
        for t in transfers:
            if t.dst != self.rank:
                continue
            message = held[t.cell] if t.local else landed[t.index]
            if t.adds:
                held[t.into].add_(message)
            else:
                held[t.into].copy_(message)

    def _to_device(self, array: NDArray[Any]) -> Any:
        return self.torch.from_numpy(np.ascontiguousarray(array)).to(self.device, copy=True)

    def _settle(self) -> None:
        if self.name == "nccl":
            self.torch.cuda.synchronize(self.device)

    def barrier(self) -> None:
        """Wait for all ranks."""
        self.dist.all_reduce(self.torch.zeros(1, device=self.device))
        self._settle()

    def gather(self, value: Any) -> list[Any]:
        """A small object of every rank, on every rank."""
        values = [None] * self.size
        self.dist.all_gather_object(values, value)
        return values

    def abort(self) -> None:
        """End this process at once; the launcher ends the others."""
        os._exit(1)

    def close(self) -> None:
        """Leave the process group."""
        self.dist.destroy_process_group()

    def prepare(self, collective: Collective, program: Program) -> None:
        """Make the process groups of the parts; all ranks call it together."""
        self.barrier()  # NCCL wants all ranks in its first call
        rank_of = {node: rank for rank, node in enumerate(program.npus)}
        for part in collective.parts:
            ranks = tuple(rank_of[node] for node in part.npus.tolist())
            if ranks not in self._groups:
                self._groups[ranks] = self.dist.new_group(list(ranks))

    def library_run(
        self,
        collective: Collective,
        program: Program,
        sizes: Sizes,
        own: dict[int, NDArray[Any]],
    ) -> tuple[dict[int, NDArray[Any]], float]:
        """What torch's own collectives give this rank, by chunk, and their seconds."""
        node = program.npus[self.rank]
        rank_of = {each: rank for rank, each in enumerate(program.npus)}
        dtype = next(iter(own.values())).dtype if own else np.dtype(np.int64)
        found: dict[int, NDArray[Any]] = {}
        seconds = 0.0
        first = 0
        for part, elements in zip(collective.parts, sizes.elements):
            if node in part.npus:
                ranks = tuple(rank_of[each] for each in part.npus.tolist())
                kept = kept_rows(part, node)
                buffer = filled(given_rows(part, node), own, first, elements, dtype)
                given = self._to_device(buffer)
                self._settle()
                begin = time.perf_counter()
                out = self._collective(part, ranks, node, given)
                self._settle()
                seconds += time.perf_counter() - begin
                values = out.cpu().numpy()
                found |= {first + c: values[row] for c, row in zip(kept.chunks, kept.rows)}
            first += part.num_chunks
        return found, seconds

    def _collective(self, part: Part, ranks: tuple[int, ...], node: int, given: Any) -> Any:
        """Call the library; its output with a row for every chunk and block that stays at home."""
        dist, group, k, n = self.dist, self._groups[ranks], part.chunks_per_npu, len(part.npus)
        root = -1 if part.root is None else ranks[part.npus.tolist().index(part.root)]
        elements = given.shape[1]
        at_root = part.root == node

        def empty(rows: int) -> Any:
            return self.torch.empty((rows, elements), dtype=given.dtype, device=self.device)

        if part.pattern == "all-gather":
            pieces = [empty(k) for _ in range(n)]
            dist.all_gather(pieces, given, group=group)
            return self.torch.cat(pieces)
        if part.pattern == "broadcast":
            out = given if at_root else empty(k)
            dist.broadcast(out, root, group=group)
            return out
        if part.pattern == "reduce":
            dist.reduce(given, root, group=group)
            return given
        if part.pattern == "all-reduce":
            dist.all_reduce(given, group=group)
            return given
        if part.pattern == "reduce-scatter":
            return self._reduce_scatter(part, node, given, group)
        if part.pattern == "scatter":
            out = empty(k)
            dist.scatter(out, list(given.chunk(n)) if at_root else None, root, group=group)
            return out
        if part.pattern == "gather":
            blocks = [empty(k) for _ in range(n)] if at_root else None
            dist.gather(given, blocks, root, group=group)
            return self.torch.cat(blocks) if blocks else given
        return self._all_to_all(ranks, given, group)

    def _reduce_scatter(self, part: Part, node: int, given: Any, group: Any) -> Any:
        position, k = part.npus.tolist().index(node), part.chunks_per_npu
        if self.name == "nccl":
            out = self.torch.empty_like(given[:k])
            self.dist.reduce_scatter_tensor(out, given, group=group)
            return out
        # gloo has no Reduce-Scatter of its own in every version: all of the sums, then a part
        self.dist.all_reduce(given, group=group)
        return given[position * k : (position + 1) * k]

    def _all_to_all(self, ranks: tuple[int, ...], given: Any, group: Any) -> Any:
        if self.name == "nccl":
            out = self.torch.empty_like(given)
            self.dist.all_to_all_single(out, given, group=group)
            return out
        # gloo has no All-to-All in every version: a scatter from every rank
        pieces = []
        for source in ranks:
            piece = self.torch.empty_like(given.chunk(len(ranks))[0])
            blocks = [each.contiguous() for each in given.chunk(len(ranks))]
            self.dist.scatter(piece, blocks if source == self.rank else None, source, group=group)
            pieces.append(piece)
        return self.torch.cat(pieces)

    def tolerances(
        self,
        collective: Collective,
        program: Program,
        sizes: Sizes,
        own: dict[int, NDArray[Any]],
        dtype: str,
    ) -> dict[int, NDArray[Any]]:
        """Allowed errors of the sums of floats of this rank, by chunk."""
        counts = reduced_by(collective)
        if not dtype.startswith("float") or not counts:
            return {}
        absolute = {chunk: np.abs(values) for chunk, values in own.items()}
        sums, _ = self.library_run(collective, program, sizes, absolute)
        return {
            chunk: tolerance(counts[chunk], values, dtype)
            for chunk, values in sums.items()
            if chunk in counts
        }
