"""Schedules and plans as tables: CSV, or Parquet by pyarrow.

A schedule has one row a send, with its link's ends and its times; a plan one row for every device
with the role that it has. Rows are written in blocks, so that large schedules need little memory.
"""

from __future__ import annotations

import csv
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nestopt.core.errors import InputError, NestoptError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from nestopt.interop.loading import Placed, Synthesized

__all__ = [
    "plan_csv",
    "plan_parquet",
    "plan_rows",
    "schedule_blocks",
    "schedule_csv",
    "schedule_parquet",
]

BLOCK = 100_000
PHASES = ("copy", "move", "share")
Block = dict[str, Any]


def schedule_blocks(found: Synthesized) -> Iterator[Block]:
    """Columns of consecutive sends: what, where, when.

    ``send``, ``chunk``, ``part`` (of the collective), ``pattern``, ``bytes``, ``link``, ``src`` and
    ``dst`` (nodes), ``src_name``, ``dst_name``, ``start_ps``, ``free_ps`` (when the link is free
    again), ``arrival_ps`` and ``phase``: ``copy``, ``move`` (of a partial sum) or ``share`` (a copy
    of one).
    """
    instance, schedule = found.instance, found.schedule
    topology, collective = instance.topology, instance.collective
    names = np.array([topology.node_name(v) for v in range(topology.num_nodes)])
    patterns = np.array([part.pattern for part in collective.parts])
    sizes, part_of = collective.chunk_sizes, collective.part_of
    times = {
        size: (instance.occupancy_ps(size), instance.transfer_ps(size))
        for size in np.unique(sizes).tolist()
    }
    for first in range(0, max(schedule.num_sends, 1), BLOCK):
        rows = slice(first, min(first + BLOCK, schedule.num_sends))
        chunk, link = schedule.chunk[rows], schedule.link[rows]
        start, size = schedule.start_ps[rows], sizes[schedule.chunk[rows]]
        free, arrival = start.copy(), start.copy()
        for each, (occupied, transfer) in times.items():
            mine = size == each
            free[mine] += occupied[link[mine]]
            arrival[mine] += transfer[link[mine]]
        yield {
            "send": np.arange(rows.start, rows.stop),
            "chunk": chunk,
            "part": part_of[chunk],
            "pattern": patterns[part_of[chunk]],
            "bytes": size,
            "link": link,
            "src": topology.src[link],
            "dst": topology.dst[link],
            "src_name": names[topology.src[link]],
            "dst_name": names[topology.dst[link]],
            "start_ps": start,
            "free_ps": free,
            "arrival_ps": arrival,
            "phase": np.array(PHASES)[schedule.phase[rows]],
        }


def plan_rows(placed: Placed) -> Block:
    """Columns of a plan: every device that has a role, and the role.

    ``device``, ``type``, ``stage``, ``replica``, ``rank`` (in its replica), ``tensor_x``,
    ``tensor_y``, ``tensor_z``, ``context``, ``expert``, ``zero``, ``recompute``, ``operators``.
    """
    plan, cluster = placed.plan, placed.cluster
    columns: dict[str, list[Any]] = {}
    for q, stage in enumerate(plan.stages):
        config = stage.config
        for replica, row in enumerate(stage.devices):
            for rank, device in enumerate(row):
                record = {
                    "device": int(device),
                    "type": cluster.types[int(cluster.type_of[int(device)])].name,
                    "stage": q,
                    "replica": replica,
                    "rank": rank,
                    "tensor_x": config.tensor[0],
                    "tensor_y": config.tensor[1],
                    "tensor_z": config.tensor[2],
                    "context": config.context,
                    "expert": config.expert,
                    "zero": config.zero,
                    "recompute": str(config.recompute),
                    "operators": len(stage.operators),
                }
                for key, value in record.items():
                    columns.setdefault(key, []).append(value)
    return {key: np.array(values) for key, values in columns.items()}


def schedule_csv(found: Synthesized, target: Path, settings: dict[str, str]) -> list[Path]:
    """Write a schedule as CSV."""
    return _whole(target, lambda path: _csv(schedule_blocks(found), path))


def schedule_parquet(found: Synthesized, target: Path, settings: dict[str, str]) -> list[Path]:
    """Write a schedule as Parquet."""
    _pyarrow()
    return _whole(target, lambda path: _parquet(schedule_blocks(found), path))


def plan_csv(placed: Placed, target: Path, settings: dict[str, str]) -> list[Path]:
    """Write a plan as CSV."""
    return _whole(target, lambda path: _csv(iter([plan_rows(placed)]), path))


def plan_parquet(placed: Placed, target: Path, settings: dict[str, str]) -> list[Path]:
    """Write a plan as Parquet."""
    _pyarrow()
    return _whole(target, lambda path: _parquet(iter([plan_rows(placed)]), path))


def _whole(target: Path, write: Callable[[Path], None]) -> list[Path]:
    """Write a file beside its place, then rename it."""
    try:
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", file=str(target)) from error
    os.close(handle)
    try:
        write(Path(name))
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(name, 0o666 & ~mask)
        os.replace(name, target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return [target]


def _csv(blocks: Iterator[Block], path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        for number, block in enumerate(blocks):
            if number == 0:
                writer.writerow(block)
            writer.writerows(zip(*(column.tolist() for column in block.values())))


def _pyarrow() -> Any:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise NestoptError("pyarrow is missing: pip install 'nestopt[parquet]'") from error
    return pa, pq


def _parquet(blocks: Iterator[Block], path: Path) -> None:
    pa, pq = _pyarrow()
    writer = None
    try:
        for block in blocks:
            table = pa.table({key: pa.array(column.tolist()) for key, column in block.items()})
            writer = pq.ParquetWriter(path, table.schema) if writer is None else writer
            writer.write_table(table)
    finally:
        if writer is not None:
            writer.close()
