"""A schedule's run: the same on every backend, from inside any program.

>>> runner = ScheduleRunner(instance, schedule)        # under mpiexec
>>> row = runner.check("1MiB")                         # raises CheckError where data are wrong
>>> runner.play(cells)                                 # the user's own data, chunk by chunk
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from nestopt.core.errors import CheckError, InputError
from nestopt.interop.program import program_of
from nestopt.interop.run.data import check_dtype, compare, inputs, sizes_of
from nestopt.interop.run.engine import RankPlan
from nestopt.interop.run.mpi_backend import MpiBackend
from nestopt.interop.run.torch_backend import TorchBackend

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nestopt.collective.model.collective import Collective
    from nestopt.collective.model.instance import CollectiveInstance
    from nestopt.collective.model.schedule import Schedule
    from nestopt.interop.program import Program
    from nestopt.interop.run.data import Sizes

__all__ = ["BACKENDS", "Backend", "Row", "ScheduleRunner", "backend_of"]

BACKENDS = ("mpi", "gloo", "nccl")


class Backend(Protocol):
    """What a run needs of a communication library."""

    name: str
    rank: int
    size: int

    @property
    def library(self) -> str: ...

    @property
    def most_tag(self) -> int: ...

    def play(self, plan: RankPlan, program: Program, cells: dict[int, NDArray[Any]]) -> None: ...

    def barrier(self) -> None: ...

    def gather(self, value: Any) -> list[Any]: ...

    def abort(self) -> None: ...

    def prepare(self, collective: Collective, program: Program) -> None: ...

    def library_run(
        self,
        collective: Collective,
        program: Program,
        sizes: Sizes,
        own: dict[int, NDArray[Any]],
    ) -> tuple[dict[int, NDArray[Any]], float]: ...

    def tolerances(
        self,
        collective: Collective,
        program: Program,
        sizes: Sizes,
        own: dict[int, NDArray[Any]],
        dtype: str,
    ) -> dict[int, NDArray[Any]]: ...


def backend_of(name: str) -> Backend:
    """The backend of a name, over all processes that were started together.

    Raises
    ------
    InputError
        If there is no such backend.
    NestoptError
        If its package is missing, with how to install it.
    """
    if name == "mpi":
        return MpiBackend()
    if name in BACKENDS:
        return TorchBackend(name)
    raise InputError(f"{name!r}; expected one of {', '.join(BACKENDS)}", field="backend")


@dataclass(frozen=True, slots=True)
class Row:
    """One size of a run.

    Attributes
    ----------
    nbytes : int
        Bytes of the largest part's whole buffer on a rank.
    dtype : str
    elements : int
        Compared elements over all ranks; each was right.
    worst_error, allowed_error : float
        Largest error of a sum of floats, and the largest that is allowed; 0 for integers.
    schedule_s, library_s : float
        Median over the iterations of the slowest rank's seconds: the schedule, and the library's
        own collectives.
    iterations : int
    """

    nbytes: int
    dtype: str
    elements: int
    worst_error: float
    allowed_error: float
    schedule_s: float
    library_s: float
    iterations: int

    def to_json(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


class ScheduleRunner:
    """Executes a schedule on the ranks of a backend.

    Every rank makes one, with the same instance and schedule. Rank r plays the r-th NPU that takes
    part, or the r-th NPU of the topology where there are as many ranks as NPUs.

    Parameters
    ----------
    instance : CollectiveInstance
    schedule : Schedule
    backend : Backend, optional
        MPI's ``COMM_WORLD`` by default.

    Raises
    ------
    InputError
        If the number of ranks fits neither.
    CheckError
        If the schedule cannot be played at all.
    """

    def __init__(
        self,
        instance: CollectiveInstance,
        schedule: Schedule,
        backend: Backend | None = None,
    ) -> None:
        self.backend = backend_of("mpi") if backend is None else backend
        self.collective = instance.collective
        program = program_of(instance, schedule)
        if self.backend.size != program.ranks:
            program = program_of(instance, schedule, all_npus=True)
        if self.backend.size != program.ranks:
            taking = program_of(instance, schedule).ranks
            raise InputError(
                f"{self.backend.size} ranks; the schedule needs {taking}, one for each NPU that "
                f"takes part (or {program.ranks}, one for each NPU of {instance.topology.name})"
            )
        self.program = program
        self.plan = RankPlan(program, self.backend.rank, self.backend.most_tag)
        self.backend.prepare(self.collective, program)

    def play(self, cells: dict[int, NDArray[Any]]) -> None:
        """Execute the schedule on the caller's data.

        Parameters
        ----------
        cells : dict
            This rank's chunks by number; contiguous arrays of one type, of one length within a
            part. Those that come are written in place; a relayed chunk needs a cell too.

        Raises
        ------
        InputError
            If a chunk that this rank touches has no cell.
        """
        rank = self.backend.rank
        cells = dict(cells)
        for t in self.program.transfers:
            for end, cell in ((t.src, t.cell), (t.dst, t.into)):
                if end != rank or cell in cells:
                    continue
                chunk = self.program.chunk(cell)
                if chunk not in cells:
                    raise InputError(f"rank {rank} has no cell for chunk {chunk}", field="cells")
                cells[cell] = np.empty_like(cells[chunk])
        self.backend.play(self.plan, self.program, cells)

    def check(self, nbytes: int | None = None, dtype: str = "int64", iterations: int = 5) -> Row:
        """Run the schedule and the library's own collectives on the same data; compare and time.

        Parameters
        ----------
        nbytes : int or None
            Bytes of the largest whole buffer on a rank; None for the instance's own sizes.
        dtype : str
        iterations : int
            Timed runs, each checked; one more goes before them.

        Raises
        ------
        CheckError
            On every rank, if any element of any rank is wrong; names the first.
        """
        check_dtype(dtype)
        if iterations < 1:
            raise InputError(f"{iterations}; expected at least 1", field="iterations")
        sizes = sizes_of(self.collective, nbytes, dtype)
        rank, backend = self.backend.rank, self.backend
        own = inputs(self.collective, self.program, rank, sizes, dtype)
        allowed = backend.tolerances(self.collective, self.program, sizes, own, dtype)
        ours: list[float] = []
        theirs: list[float] = []
        worst, compared = 0.0, 0
        for turn in range(iterations + 1):
            cells = {chunk: values.copy() for chunk, values in own.items()}
            backend.barrier()
            begin = time.perf_counter()
            backend.play(self.plan, self.program, cells)
            spent = time.perf_counter() - begin
            backend.barrier()
            expected, library = backend.library_run(self.collective, self.program, sizes, own)
            fault, error = compare(rank, cells, expected, allowed)
            compared = sum(len(values) for values in expected.values())
            everyone = backend.gather((fault, error, spent, library, compared))
            for found, *_ in everyone:
                if found is not None:
                    raise CheckError(f"{sizes.nbytes} bytes of {dtype}: {self._place(found)}")
            worst = max(worst, *(row[1] for row in everyone))
            if turn:
                ours.append(max(row[2] for row in everyone))
                theirs.append(max(row[3] for row in everyone))
            compared = sum(row[4] for row in everyone)
        slack = max((float(a.max(initial=0.0)) for a in allowed.values()), default=0.0)
        return Row(
            sizes.nbytes,
            dtype,
            compared,
            worst,
            max(backend.gather(slack)),
            float(np.median(ours)),
            float(np.median(theirs)),
            iterations,
        )

    def _place(self, fault: Any) -> str:
        return f"{fault} (node {self.program.npus[fault.rank]} of the topology)"
