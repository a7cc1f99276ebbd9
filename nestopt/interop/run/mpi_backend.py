"""The MPI transport and MPI's own collectives, by mpi4py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nestopt.core.errors import NestoptError
from nestopt.interop.run.blocks import filled, given_rows, kept_rows, reduced_by
from nestopt.interop.run.data import tolerance
from nestopt.interop.run.engine import execute

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from nestopt.collective.model.collective import Collective, Part
    from nestopt.interop.program import Program
    from nestopt.interop.run.data import Sizes
    from nestopt.interop.run.engine import RankPlan

__all__ = ["MpiBackend", "load_mpi"]


def load_mpi() -> Any:
    """The module ``mpi4py.MPI``.

    Raises
    ------
    NestoptError
        With how to install it.
    """
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise NestoptError(f"MPI is missing ({error}): pip install 'nestopt[mpi]'") from error
    return MPI


class MpiBackend:
    """A communicator as the runs see it: a transport, a clock, the library's collectives.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm, optional
        ``COMM_WORLD`` by default.
    """

    name = "mpi"

    def __init__(self, comm: Any = None) -> None:
        self.mpi = load_mpi()
        self.comm = self.mpi.COMM_WORLD if comm is None else comm
        self.rank: int = self.comm.Get_rank()
        self.size: int = self.comm.Get_size()
        self._groups: dict[tuple[int, ...], Any] = {}

    @property
    def library(self) -> str:
        """Name and version of the MPI library."""
        return " ".join(str(self.mpi.Get_library_version()).splitlines()[0].split())

    @property
    def most_tag(self) -> int:
        """The largest tag."""
        return int(self.comm.Get_attr(self.mpi.TAG_UB) or 32767)

    def send(self, array: NDArray[Any], rank: int, tag: int) -> Any:
        """Start to send."""
        return self.comm.Isend(array, dest=rank, tag=tag)

    def receive(self, array: NDArray[Any], rank: int, tag: int) -> Any:
        """Start to receive."""
        return self.comm.Irecv(array, source=rank, tag=tag)

    def some(self, requests: Sequence[Any]) -> list[int]:
        """Wait for at least one request."""
        return list(self.mpi.Request.Waitsome(requests) or ())

    def play(self, plan: RankPlan, program: Program, cells: dict[int, NDArray[Any]]) -> None:
        """Execute this rank's share of a program."""
        execute(plan, cells, self)

    def barrier(self) -> None:
        """Wait for all ranks."""
        self.comm.Barrier()

    def gather(self, value: Any) -> list[Any]:
        """A small object of every rank, on every rank."""
        return list(self.comm.allgather(value))

    def abort(self) -> None:
        """End all ranks."""
        self.comm.Abort(1)

    def prepare(self, collective: Collective, program: Program) -> None:
        """Make the communicators of the parts' groups; all ranks call it together."""
        rank_of = {node: rank for rank, node in enumerate(program.npus)}
        for part in collective.parts:
            ranks = tuple(rank_of[node] for node in part.npus.tolist())
            if ranks not in self._groups:
                inside = self.rank in ranks
                color = 0 if inside else self.mpi.UNDEFINED
                self._groups[ranks] = self.comm.Split(color, self.rank)

    def library_run(
        self,
        collective: Collective,
        program: Program,
        sizes: Sizes,
        own: dict[int, NDArray[Any]],
    ) -> tuple[dict[int, NDArray[Any]], float]:
        """What the library's own collectives give this rank, by chunk, and their seconds.

        Parameters
        ----------
        collective : Collective
        program : Program
        sizes : Sizes
        own : dict
            This rank's cells before the run.
        """
        node = program.npus[self.rank]
        rank_of = {each: rank for rank, each in enumerate(program.npus)}
        dtype = next(iter(own.values())).dtype if own else np.dtype(np.int64)
        found: dict[int, NDArray[Any]] = {}
        seconds = 0.0
        first = 0
        for part, elements in zip(collective.parts, sizes.elements):
            if node in part.npus:
                group = self._groups[tuple(rank_of[each] for each in part.npus.tolist())]
                kept = kept_rows(part, node)
                given = filled(given_rows(part, node), own, first, elements, dtype)
                out = np.zeros((kept.height, elements), dtype=dtype)
                begin = self.mpi.Wtime()
                self._call(group, part, node, given, out)
                seconds += self.mpi.Wtime() - begin
                found |= {first + c: out[row] for c, row in zip(kept.chunks, kept.rows)}
            first += part.num_chunks
        return found, seconds

    def _call(
        self, group: Any, part: Part, node: int, given: NDArray[Any], out: NDArray[Any]
    ) -> None:
        """The library's collective of a pattern."""
        pattern, total = part.pattern, self.mpi.SUM
        at_root = part.root == node
        root = -1 if part.root is None else part.npus.tolist().index(part.root)
        if pattern == "all-gather":
            group.Allgather(given, out)
        elif pattern == "all-reduce":
            group.Allreduce(given, out, op=total)
        elif pattern == "reduce-scatter":
            group.Reduce_scatter_block(given, out, op=total)
        elif pattern == "broadcast":
            if at_root:
                out[...] = given
            group.Bcast(out, root=root)
        elif pattern == "reduce":
            group.Reduce(given, out if at_root else None, op=total, root=root)
        elif pattern == "scatter":
            group.Scatter(given if at_root else None, out, root=root)
        elif pattern == "gather":
            group.Gather(given, out if at_root else None, root=root)
        else:
            group.Alltoall(given, out)

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
