"""What goes into a run and must come out: every rank's chunks, and the comparison.

The data are drawn anew by each rank, so nothing but the schedule moves them. Cells that a rank does
not fill itself start as poison (NaN, or the least integer), so that what never came is found.
Copies are compared bit by bit and sums of integers exactly. Two sums of n floats that were added in
different orders differ by at most (n - 1) eps sum |x|: each order errs by half of that (Higham,
Accuracy and Stability of Numerical Algorithms, section 4.2).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from nestopt.core.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nestopt.collective.model.collective import Collective, Part
    from nestopt.interop.program import Program

__all__ = ["DTYPES", "Fault", "Sizes", "compare", "inputs", "sizes_of"]

DTYPES = ("int64", "int32", "float32", "float64")


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large a run is.

    Attributes
    ----------
    nbytes : int
        Bytes of the largest part's whole buffer on a rank, as close to what was asked for as whole
        elements allow.
    elements : tuple of int
        Elements of a chunk of each part.
    """

    nbytes: int
    elements: tuple[int, ...]


def blocks(part: Part) -> int:
    """Chunks of a part's whole buffer on a rank, the ones that stay at home included."""
    n = 1 if part.pattern in ("broadcast", "reduce") else len(part.npus)
    return n * part.chunks_per_npu


def sizes_of(collective: Collective, nbytes: int | None, dtype: str) -> Sizes:
    """Elements of a chunk of every part, so that the largest buffer has `nbytes`.

    Parameters
    ----------
    collective : Collective
        Whose chunk sizes keep their ratios.
    nbytes : int or None
        Bytes; None for the sizes that the collective states.
    dtype : str
        One of `DTYPES`.
    """
    width = np.dtype(dtype).itemsize
    stated = [part.chunk_size * blocks(part) for part in collective.parts]
    scale = 1.0 if nbytes is None else nbytes / max(stated)
    elements = tuple(max(1, int(part.chunk_size * scale / width)) for part in collective.parts)
    actual = max(blocks(p) * e * width for p, e in zip(collective.parts, elements))
    return Sizes(actual, elements)


def drawn(part: int, node: int, shape: tuple[int, int], dtype: str) -> NDArray[Any]:
    """The data of a node in a part: the same whoever draws them.

    Integers stay small enough that no sum of 2**11 (int32) or 2**31 (int64) of them overflows.
    """
    rng = np.random.default_rng([part, node, shape[0]])
    if dtype.startswith("float"):
        return rng.standard_normal(shape).astype(dtype)
    half = 2**31 if dtype == "int64" else 2**19
    return rng.integers(-half, half, shape).astype(dtype)


def poison(dtype: str) -> Any:
    """What a cell holds that nothing was written to."""
    return np.nan if dtype.startswith("float") else np.iinfo(dtype).min


def inputs(
    collective: Collective, program: Program, rank: int, sizes: Sizes, dtype: str
) -> dict[int, NDArray[Any]]:
    """Every cell of a rank by chunk: its own data, or poison where none is its own.

    A rank has cells for the chunks that it starts with, must end with or relays, and the program's
    further cells.
    """
    node = program.npus[rank]
    touched = {t.cell for t in program.transfers if rank == t.src}
    touched |= {t.into for t in program.transfers if rank == t.dst}
    cells: dict[int, NDArray[Any]] = {}
    first = 0
    for index, (part, elements) in enumerate(zip(collective.parts, sizes.elements)):
        sources, targets = part.sources(), part.destinations()
        member = node in part.npus
        mine = (sources == node) | ((sources < 0) & member)
        wanted = (targets == node) | ((targets < 0) & member)
        own = np.flatnonzero(mine)
        values = drawn(index, node, (len(own), elements), dtype)
        for row, local in enumerate(own.tolist()):
            cells[first + local] = values[row]
        for local in range(part.num_chunks):
            chunk = first + local
            if chunk not in cells and (wanted[local] or chunk in touched):
                cells[chunk] = np.full(elements, poison(dtype), dtype=dtype)
        first += part.num_chunks
    for cell in touched:
        if cell >= program.num_chunks:
            part_of = int(collective.part_of[program.chunk(cell)])
            cells[cell] = np.full(sizes.elements[part_of], poison(dtype), dtype=dtype)
    return cells


@dataclass(frozen=True, slots=True)
class Fault:
    """The first element of a rank that is not as the library has it."""

    rank: int
    chunk: int
    element: int
    found: float
    expected: float
    allowed: float

    def __str__(self) -> str:
        slack = f" (allowed error {self.allowed:.3g})" if self.allowed else ""
        return (
            f"rank {self.rank}, chunk {self.chunk}, element {self.element}: {self.found!r} where "
            f"the library's own collective has {self.expected!r}{slack}"
        )


def compare(
    rank: int,
    found: dict[int, NDArray[Any]],
    expected: dict[int, NDArray[Any]],
    allowed: dict[int, NDArray[Any]],
) -> tuple[Fault | None, float]:
    """The first fault of a rank, and its largest error.

    Parameters
    ----------
    rank : int
    found, expected : dict
        Elements by chunk.
    allowed : dict
        Largest error of each element by chunk; chunks that it lacks must be equal.
    """
    worst = 0.0
    for chunk, right in expected.items():
        values = found[chunk]
        if chunk not in allowed:
            wrong = ~(values == right)
            slack: NDArray[Any] = np.zeros(len(right))
        else:
            slack = allowed[chunk]
            error = np.abs(values.astype(np.float64) - right.astype(np.float64))
            wrong = ~(error <= slack)
            worst = max(worst, float(error.max(initial=0.0)))
        if wrong.any():
            at = int(np.argmax(wrong))
            got, want = values[at].item(), right[at].item()
            return Fault(rank, chunk, at, got, want, float(slack[at])), worst
    return None, worst


def tolerance(count: int, absolute: NDArray[Any], dtype: str) -> NDArray[Any]:
    """By how much two sums of `count` floats may differ; `absolute` is the sum of |x|."""
    eps = float(np.finfo(dtype).eps)
    result: NDArray[Any] = (count - 1) * eps * 1.01 * absolute.astype(np.float64)
    return result


def check_dtype(dtype: str) -> None:
    """Refuse what is no type of elements.

    Raises
    ------
    InputError
        Naming the types there are.
    """
    if dtype not in DTYPES:
        raise InputError(f"{dtype!r}; expected one of {', '.join(DTYPES)}", field="dtype")
