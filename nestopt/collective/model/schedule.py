"""A schedule of sends: which chunk crosses which link, from when.

A send of a reduction is one of three:

- phase `REDUCE` moves a partial sum: everything that its source has gathered so far and has not
  yet passed on; the source keeps nothing;
- phase `SHARE` copies a partial sum: the send says which contributions are in it (`content`), and
  the source keeps all that it has;
- phase `COPY` copies the finished sum.

A node keeps what it receives, set by set. It can send the sum of sets that are disjoint, so that
every contribution is in it once. Every send of a chunk that is no sum is a `COPY`.
"""

from __future__ import annotations

import base64
import zlib
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from nestopt.core.errors import InputError, naming
from nestopt.core.solution import Pictured, as_frame

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matplotlib.axes import Axes
    from numpy.typing import NDArray
    from pandas import DataFrame

    from nestopt.collective.model.instance import CollectiveInstance

__all__ = ["COPY", "REDUCE", "SCHEMA", "SHARE", "Schedule", "Send"]


SCHEMA = "nestopt.schedule/1"
COPY, REDUCE, SHARE = 0, 1, 2
READABLE_SENDS = 20_000
_FIELDS = ("makespan_ps", "num_sends", "encoding", "sends")
_COLUMNS = {"chunk": "<i4", "link": "<i4", "start_ps": "<i8", "phase": "|u1"}
_CONTENT = {"content": "<i4"}


class Send(NamedTuple):
    """One send of a schedule: a chunk crosses a link from `start_ps`, as a copy or as a sum."""

    chunk: int
    link: int
    start_ps: int
    phase: int


@dataclass(frozen=True, slots=True, eq=False)
class Schedule(Pictured):
    """Sends in order of their start (then of link, then of chunk).

    Iterate over them, print the `summary`, tabulate or draw them. Two schedules are equal if their
    sends and their makespan are.

    Attributes
    ----------
    chunk : int32[S]
    link : int32[S]
    start_ps : int64[S]
        Picoseconds from the start of the collective.
    makespan_ps : int
        When the last chunk has arrived.
    phase : uint8[S]
        `COPY`, `REDUCE` or `SHARE`.
    content : int32[S] or None
        Of every `SHARE` the index of its set in `sets`, of every other send -1; None if no send is
        a `SHARE`.
    sets : tuple of int32 arrays
        Sets of contributions: positions in the group of the chunk's part, ascending, at least one.
    instance : CollectiveInstance or None
        What the schedule is for, where that is known; names, ends of links and pictures need it.
    """

    views: ClassVar[str] = "nestopt.collective.show.tables"

    chunk: NDArray[np.int32]
    link: NDArray[np.int32]
    start_ps: NDArray[np.int64]
    makespan_ps: int
    phase: NDArray[np.uint8]
    content: NDArray[np.int32] | None = None
    sets: tuple[NDArray[np.int32], ...] = ()
    instance: CollectiveInstance | None = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Schedule):
            return NotImplemented
        same = self.makespan_ps == other.makespan_ps and all(
            np.array_equal(getattr(self, name), getattr(other, name)) for name in _COLUMNS
        )
        return same and self._contents() == other._contents()

    def _contents(self) -> list[bytes | None]:
        """The set of every send that states one, whatever its number."""
        sets = [ranks.tobytes() for ranks in self.sets]
        numbers = [] if self.content is None else self.content.tolist()
        return [None if number < 0 else sets[number] for number in numbers]

    def __hash__(self) -> int:
        return hash((self.makespan_ps, self.chunk.tobytes(), self.link.tobytes()))

    def __len__(self) -> int:
        return self.num_sends

    def __iter__(self) -> Iterator[Send]:
        for row in range(self.num_sends):
            yield Send(*(int(getattr(self, name)[row]) for name in _COLUMNS))

    def __repr__(self) -> str:
        return f"<Schedule: {self.num_sends} sends, makespan {self.makespan_ps} ps>"

    def summary(self) -> str:
        """The schedule for people: one line about the whole, then its first sends."""
        return str(import_module(self.views).summary(self))

    def to_frame(self) -> DataFrame:
        """One row a send: when, which chunk, which link, from where to where; needs pandas.

        Raises
        ------
        NestoptError
            If pandas is not installed.
        """
        return as_frame(import_module(self.views).columns(self))

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw when each link is occupied; needs matplotlib.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            New ones by default.

        Raises
        ------
        NestoptError
            If the schedule does not know its instance, or matplotlib is not installed.
        """
        axes: Axes = import_module(self.views).draw(self, ax)
        return axes

    @classmethod
    def of(
        cls,
        chunk: Any,
        link: Any,
        start_ps: Any,
        makespan_ps: int,
        phase: Any = None,
        content: Any = None,
        sets: Any = (),
    ) -> Schedule:
        """A schedule from sends in any order; `phase` is `COPY` where it is not given.

        Raises
        ------
        InputError
            If the columns do not fit together.
        """
        columns: list[NDArray[Any]] = [
            np.asarray(chunk, dtype=np.int32),
            np.asarray(link, dtype=np.int32),
            np.asarray(start_ps, dtype=np.int64),
            np.zeros(len(chunk), np.uint8) if phase is None else np.asarray(phase, dtype=np.uint8),
        ]
        if content is not None:
            columns.append(np.asarray(content, dtype=np.int32))
        if len({column.shape for column in columns}) != 1 or columns[0].ndim != 1:
            shapes = [column.shape for column in columns]
            raise InputError(f"columns of different lengths: {shapes}", field="schedule")
        if not _is_sorted(columns[2], columns[1], columns[0]):
            order = np.lexsort((columns[0], columns[1], columns[2]))
            columns = [column[order] for column in columns]
        for column in columns:
            column.setflags(write=False)
        first, second, third, phases, *more = columns
        kept = tuple(_set_of(ranks, index) for index, ranks in enumerate(sets))
        found = cls(first, second, third, int(makespan_ps), phases, more[0] if more else None, kept)
        _check_contents(found)
        return found

    def retimed(self, start_ps: Any, makespan_ps: int) -> Schedule:
        """The same sends, started at other times (given in the order of these sends)."""
        return Schedule.of(
            self.chunk, self.link, start_ps, makespan_ps, self.phase, self.content, self.sets
        )

    @property
    def shares(self) -> bool:
        """Whether any send copies a partial sum."""
        return self.content is not None

    @property
    def num_sends(self) -> int:
        """Number of sends."""
        return len(self.chunk)

    def to_json(self) -> dict[str, Any]:
        """The versioned JSON object: columns of numbers, or packed text beyond 20,000 sends.

        Packed columns are zlib-compressed little-endian bytes in base64; a column that is all zero
        is left out.
        """
        columns: dict[str, Any] = {}
        packed = self.num_sends > READABLE_SENDS
        for name, dtype in (_COLUMNS | (_CONTENT if self.shares else {})).items():
            values = getattr(self, name)
            if name == "phase" and not values.any():
                continue
            if packed:
                # differences of sorted starts, and links that repeat, compress far better
                raw = np.diff(values, prepend=0) if name == "start_ps" else values
                data = zlib.compress(np.ascontiguousarray(raw, dtype=dtype).tobytes(), 1)
                columns[name] = base64.b64encode(data).decode("ascii")
            else:
                columns[name] = values.tolist()
        written: dict[str, Any] = {
            "schema": SCHEMA,
            "makespan_ps": self.makespan_ps,
            "num_sends": self.num_sends,
            "encoding": "packed" if packed else "plain",
            "sends": columns,
        }
        if self.shares:
            # runs of neighbouring positions: [first, count], ...
            written["sets"] = [_runs(ranks) for ranks in self.sets]
        return written

    @classmethod
    def from_json(cls, data: dict[str, Any], *, file: str | None = None) -> Schedule:
        """Inverse of `to_json`.

        Raises
        ------
        InputError
            Naming the file, the field and what is wrong with it.
        """
        if not isinstance(data, dict) or data.get("schema") != SCHEMA:
            found = data.get("schema") if isinstance(data, dict) else data
            raise InputError(f"{found!r}; expected {SCHEMA!r}", file=file, field="schema")
        _refuse_unknown(data, ("schema", "sets", *_FIELDS), "", file)
        try:
            makespan, sends, count = (data[name] for name in ("makespan_ps", "sends", "num_sends"))
            for name, value in (("makespan_ps", makespan), ("num_sends", count)):
                if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                    raise InputError(
                        f"{value!r} is not a whole number from 0", file=file, field=name
                    )
            if data["encoding"] not in ("plain", "packed"):
                raise InputError(
                    f"{data['encoding']!r}; expected 'plain' or 'packed'",
                    file=file,
                    field="encoding",
                )
            if not isinstance(sends, dict):
                raise InputError(f"{sends!r:.80}; expected columns", file=file, field="sends")
            _refuse_unknown(sends, tuple(_COLUMNS | _CONTENT), "sends.", file)
            packed = data["encoding"] == "packed"
            columns: dict[str, NDArray[Any]] = {}
            named = _COLUMNS | (_CONTENT if "content" in sends else {})
            for name, dtype in named.items():
                if name == "phase" and name not in sends:
                    columns[name] = np.zeros(count, dtype=np.uint8)
                elif packed:
                    columns[name] = _unpacked(sends[name], count, dtype)
                    if name == "start_ps":
                        columns[name] = np.cumsum(columns[name], dtype=np.int64)
                else:
                    columns[name] = _whole(sends[name], name, np.iinfo(dtype))
                if len(columns[name]) != count:
                    message = f"{len(columns[name])} values for {count} sends"
                    raise InputError(message, file=file, field=f"sends.{name}")
            sets = [_from_runs(runs, index) for index, runs in enumerate(data.get("sets", ()))]
        except KeyError as error:
            raise InputError("is missing", file=file, field=str(error.args[0])) from error
        except InputError:
            raise
        except (ValueError, TypeError, OverflowError, MemoryError, zlib.error) as error:
            raise InputError(f"damaged: {error}", file=file, field="sends") from error
        with naming(file):
            return cls.of(
                columns["chunk"],
                columns["link"],
                columns["start_ps"],
                makespan,
                columns["phase"],
                columns.get("content"),
                sets,
            )


def _set_of(ranks: Any, index: int) -> NDArray[np.int32]:
    """A set of contributions, ascending and read-only."""
    found = np.unique(np.asarray(ranks, dtype=np.int32))
    if found.size == 0 or found.size != np.size(ranks) or found[0] < 0:
        shown = np.asarray(ranks).tolist()[:8]
        raise InputError(
            f"{shown}; expected different positions of at least one contribution",
            field=f"sets[{index}]",
        )
    found.setflags(write=False)
    return found


def _check_contents(schedule: Schedule) -> None:
    """Every `SHARE` has a set, and nothing else has one."""
    shares = schedule.phase == SHARE
    if schedule.content is None:
        if shares.any():
            send = int(np.argmax(shares))
            raise InputError("copies a partial sum, but says no set", field=f"sends.phase[{send}]")
        return
    low, high = np.where(shares, 0, -1), np.where(shares, len(schedule.sets) - 1, -1)
    bad = (schedule.content < low) | (schedule.content > high)
    if bad.any():
        send = int(np.argmax(bad))
        expected = f"0 to {len(schedule.sets) - 1}" if shares[send] else "-1 (no partial copy)"
        raise InputError(
            f"{schedule.content[send]}; expected {expected}", field=f"sends.content[{send}]"
        )


def _runs(ranks: NDArray[np.int32]) -> list[list[int]]:
    """Ascending numbers as runs [first, count]."""
    firsts = np.flatnonzero(np.diff(ranks, prepend=ranks[0] - 2) != 1)
    counts = np.diff(np.append(firsts, len(ranks)))
    return [[int(ranks[i]), int(count)] for i, count in zip(firsts, counts)]


def _from_runs(runs: Any, index: int) -> NDArray[np.int64]:
    """Inverse of `_runs`."""
    ranks: list[int] = []
    for run in runs:
        pair = list(run)
        if len(pair) != 2 or not all(type(x) is int and 0 <= x < 2**31 for x in pair):
            raise InputError(f"{run!r}; expected [first, count]", field=f"sets[{index}]")
        if len(ranks) + pair[1] > 2**24:
            raise InputError(f"{run!r}; a set has at most 2**24 members", field=f"sets[{index}]")
        ranks += range(pair[0], pair[0] + pair[1])
    return np.array(ranks, dtype=np.int64)


def _refuse_unknown(
    data: dict[str, Any], known: tuple[str, ...], where: str, file: str | None
) -> None:
    for key in data:
        if key not in known:
            raise InputError(
                f"is unknown; expected {', '.join(known)}", file=file, field=f"{where}{key}"
            )


def _unpacked(text: Any, count: int, dtype: str) -> NDArray[Any]:
    """The numbers of a packed column; no more bytes are unpacked than it may have."""
    whole = count * np.dtype(dtype).itemsize
    stream = zlib.decompressobj()
    raw = stream.decompress(base64.b64decode(text, validate=True), whole + 1)
    if len(raw) != whole or not stream.eof:
        raise ValueError(f"the column has not the {whole} bytes of {count} sends")
    return np.frombuffer(raw, dtype=dtype)


def _is_sorted(*keys: NDArray[Any]) -> bool:
    """Whether rows are in lexicographic order of `keys`, the first the most significant."""
    in_order = np.ones(max(len(keys[0]) - 1, 0), dtype=np.bool_)
    for key in reversed(keys):
        before, after = key[:-1], key[1:]
        in_order = (before < after) | ((before == after) & in_order)
    return bool(in_order.all())


def _whole(values: Any, name: str, limits: Any) -> NDArray[np.int64]:
    for index, value in enumerate(values):
        if isinstance(value, bool) or not isinstance(value, int):
            raise InputError(f"{value!r} is not a whole number", field=f"sends.{name}[{index}]")
        if not limits.min <= value <= limits.max:
            raise InputError(f"{value} is out of range", field=f"sends.{name}[{index}]")
    return np.array(values, dtype=np.int64)
