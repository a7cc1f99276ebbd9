"""Schedules in files: JSON where they are small, a directory of memory-mapped arrays where not.

A directory holds ``meta.json`` and one ``.npy`` file a column: either the columns of a `Schedule`
or, for equal steps, the four arrays of a `StepSchedule` (2 to 4 bytes a send and one byte a node
and step). It is written beside its place and renamed, so that it is whole or absent.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from nestopt.collective.model.schedule import SCHEMA, Schedule
from nestopt.collective.model.steps import StepSchedule
from nestopt.core.errors import InputError, naming
from nestopt.core.io import read_json, write_json

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "INLINE_SENDS",
    "STORE_SCHEMA",
    "AnySchedule",
    "load_solution",
    "open_store",
    "write_store",
]

STORE_SCHEMA = "nestopt.schedule-store/1"
INLINE_SENDS = 2_000_000
AnySchedule: TypeAlias = Schedule | StepSchedule
_SENDS = {"chunk": "i", "link": "i", "start_ps": "i", "phase": "u"}
_REFERENCE = ("schema", "makespan_ps", "num_sends", "encoding", "store")
_SHARES = {"content": "i", "set_ptr": "i", "set_ranks": "i"}
_STEPS = {"order": "iu", "mask": "u", "initial": "i", "received": "i"}


def write_store(path: str | Path, schedule: AnySchedule) -> dict[str, Any]:
    """Write a schedule as a directory of arrays; returns the JSON object that refers to it.

    Raises
    ------
    InputError
        If the directory cannot be written, or exists and is no schedule store.
    """
    target = Path(path)
    if target.exists() and not (target / "meta.json").is_file():
        raise InputError("exists and is not a schedule store", file=str(target))
    try:
        work = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", file=str(target)) from error
    try:
        meta: dict[str, Any] = {
            "schema": STORE_SCHEMA,
            "makespan_ps": schedule.makespan_ps,
            "num_sends": schedule.num_sends,
        }
        if isinstance(schedule, StepSchedule):
            meta |= {"kind": "steps", "step_ps": schedule.step_ps, "steps": schedule.num_steps}
            for name in ("order", "initial", "received"):
                np.save(work / f"{name}.npy", getattr(schedule, name))
            _save_blocks(work / "mask.npy", schedule.masks, len(schedule.order))
        else:
            meta["kind"] = "sends"
            for name in _SENDS:
                np.save(work / f"{name}.npy", getattr(schedule, name))
            if schedule.content is not None:
                meta["sets"] = len(schedule.sets)
                ends = np.cumsum([0, *(len(ranks) for ranks in schedule.sets)])
                ranks = [np.empty(0, np.int32), *schedule.sets]
                np.save(work / "content.npy", schedule.content)
                np.save(work / "set_ptr.npy", ends.astype(np.int64))
                np.save(work / "set_ranks.npy", np.concatenate(ranks))
        write_json(work / "meta.json", meta)
        os.chmod(work, 0o755)
        if target.exists():
            shutil.rmtree(target)
        os.replace(work, target)
    except OSError as error:
        shutil.rmtree(work, ignore_errors=True)
        raise InputError(f"cannot be written: {error.strerror}", file=str(target)) from error
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise
    return {
        "schema": SCHEMA,
        "makespan_ps": schedule.makespan_ps,
        "num_sends": schedule.num_sends,
        "encoding": "store",
        "store": str(path),
    }


def _save_blocks(path: Path, blocks: tuple[NDArray[Any], ...], width: int) -> None:
    dtype = blocks[0].dtype if blocks else np.dtype(np.uint8)
    shape = (sum(len(block) for block in blocks), width)
    with path.open("wb") as stream:
        header = {"descr": dtype.str, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(stream, header)
        for block in blocks:
            np.ascontiguousarray(block).tofile(stream)


def open_store(path: str | Path) -> AnySchedule:
    """The schedule in a directory, its arrays memory-mapped and read-only.

    Raises
    ------
    InputError
        If it is no schedule store, or its files do not fit together.
    """
    place = Path(path)
    meta = read_json(place / "meta.json")
    where = str(place / "meta.json")
    if not isinstance(meta, dict) or meta.get("schema") != STORE_SCHEMA:
        raise InputError(f"expected {STORE_SCHEMA!r}", file=where, field="schema")
    kind = meta.get("kind")
    if kind not in ("steps", "sends"):
        raise InputError(f"{kind!r}; expected 'steps' or 'sends'", file=where, field="kind")
    needed = ("makespan_ps", "num_sends") + (("step_ps", "steps") if kind == "steps" else ())
    for name in needed:
        if isinstance(meta.get(name), bool) or not isinstance(meta.get(name), int):
            raise InputError(f"{meta.get(name)!r} is no whole number", file=where, field=name)
    arrays = {}
    wanted = _STEPS if kind == "steps" else _SENDS | (_SHARES if "sets" in meta else {})
    for name, kinds in wanted.items():
        file = place / f"{name}.npy"
        try:
            array = np.load(file, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError, OverflowError, MemoryError) as error:
            raise InputError(f"cannot be read: {error}", file=str(file)) from error
        if array.dtype.kind not in kinds:
            raise InputError(f"holds {array.dtype}; expected integers", file=str(file))
        arrays[name] = array
    if kind == "sends":
        sets: tuple[NDArray[Any], ...] = ()
        if "sets" in meta:
            sets = _sets(arrays.pop("set_ptr"), arrays.pop("set_ranks"), place)
        lengths = {name: array.shape for name, array in arrays.items()}
        if set(lengths.values()) != {(meta["num_sends"],)}:
            raise InputError(f"columns of shapes {lengths}", file=str(place))
        if sets:
            with naming(str(place)):
                return Schedule.of(makespan_ps=meta["makespan_ps"], sets=sets, **arrays)
        return Schedule(makespan_ps=meta["makespan_ps"], **arrays)
    nodes = len(arrays["order"])
    expected = {"mask": (meta["steps"], nodes), "initial": (nodes,), "received": (nodes,)}
    for name, shape in expected.items():
        if arrays[name].shape != shape:
            message = f"shape {arrays[name].shape}; expected {shape}"
            raise InputError(message, file=str(place / f"{name}.npy"))
    steps = StepSchedule(
        meta["step_ps"],
        arrays["order"],
        arrays["initial"],
        arrays["received"],
        (arrays["mask"],),
    )
    for name in ("makespan_ps", "num_sends"):
        if getattr(steps, name) != meta[name]:
            message = f"{meta[name]}, but its arrays say {getattr(steps, name)}"
            raise InputError(message, file=where, field=name)
    return steps


def _sets(ptr: NDArray[Any], ranks: NDArray[Any], place: Path) -> tuple[NDArray[Any], ...]:
    """The sets of contributions of a store."""
    grows = ptr.ndim == 1 and len(ptr) > 0 and ptr[0] == 0 and bool((np.diff(ptr) >= 0).all())
    if not grows or ranks.ndim != 1 or ptr[-1] != len(ranks):
        raise InputError("does not divide set_ranks.npy into sets", file=str(place / "set_ptr.npy"))
    return tuple(np.asarray(ranks[a:b]) for a, b in zip(ptr[:-1].tolist(), ptr[1:].tolist()))


def load_solution(solution: dict[str, Any], *, directory: Path | None = None) -> AnySchedule:
    """The schedule of a result: inline JSON, or a store found relative to `directory`.

    Raises
    ------
    InputError
        If it is damaged or missing.
    """
    if not isinstance(solution, dict) or solution.get("encoding") != "store":
        return Schedule.from_json(solution)
    for key in solution:
        if key not in _REFERENCE:
            raise InputError(f"is unknown; expected {', '.join(_REFERENCE)}", field=key)
    if not isinstance(solution.get("store"), str) or "\0" in solution["store"]:
        raise InputError(f"{solution.get('store')!r}; expected a directory", field="store")
    place = Path(solution["store"])
    if directory is not None and not place.is_absolute() and (directory / place).exists():
        place = directory / place
    schedule = open_store(place)
    for name in ("makespan_ps", "num_sends"):
        if solution.get(name) != getattr(schedule, name):
            message = f"{solution.get(name)!r}, but the store has {getattr(schedule, name)}"
            raise InputError(message, field=name)
    return schedule
