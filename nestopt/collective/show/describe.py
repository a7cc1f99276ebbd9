"""Results of collectives for people, in 80 columns."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from nestopt.collective.model.of_result import instance_of
from nestopt.core.units import format_bytes, format_rate, format_seconds

if TYPE_CHECKING:
    from rich.console import Console

    from nestopt.collective.model.instance import CollectiveInstance
    from nestopt.core.result import Result

__all__ = ["describe"]

WIDTH = 80
FIRST_SENDS = 8
PICOSECOND = 1e-12


def describe(result: Result, console: Console) -> None:
    """Print a result: what was asked, makespan, bound, gap, and the first sends."""
    from rich.table import Table

    instance = instance_of(result)
    console.print(f"{instance.name}: {result.method}, {result.seconds:.2f} s", width=WIDTH)
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for row in _rows(instance, result):
        table.add_row(*row)
    console.print(table, width=WIDTH)
    first = _first_sends(instance, result)
    if first is not None:
        console.print(first, width=WIDTH)


def _rows(instance: CollectiveInstance, result: Result) -> list[tuple[str, str]]:
    topology, collective = instance.topology, instance.collective
    sizes = sorted({part.chunk_size for part in collective.parts})
    switches = int(topology.is_switch.sum())
    nodes = f"{topology.num_nodes - switches} NPUs"
    if switches:
        nodes += f", {switches} switches"
    chunks = f"{collective.num_chunks} chunks of " + " or ".join(format_bytes(s) for s in sizes)
    rows = [
        ("network", f"{nodes}, {topology.num_links} links, {instance.latency} latency"),
        ("collective", chunks),
    ]
    if instance.sums_matter:
        copied = instance.sums == "copied"
        rows.append(("space", "partial sums may be copied" if copied else "partial sums move only"))
    if result.objective is None:
        return [*rows, ("ended", result.termination.reason.value)]
    makespan = float(result.objective) * PICOSECOND
    rows.append(("makespan", f"{format_seconds(makespan)} ({result.objective} ps)"))
    if math.isfinite(result.bound) and result.bound > 0:
        kind = (result.witness or {}).get("name") or (result.witness or {}).get("kind")
        why = f", by {kind}" if kind else ""
        rows.append(("lower bound", f"{format_seconds(result.bound * PICOSECOND)}{why}"))
        gap = result.gap
        assert gap is not None
        told = "0 (proved optimal)" if gap == 0 else f"{100 * gap:.2f} % (gap to bound)"
        rows.append(("gap", told))
    volume = sum(part.chunk_size * part.num_chunks for part in collective.parts)
    if makespan > 0 and len(collective.parts) == 1:
        rows.append(("rate", f"{format_rate(volume / makespan)} (all chunks over the makespan)"))
    if result.solution_json is not None:
        rows.append(("sends", f"{result.solution_json.get('num_sends', '?')}"))
        if result.solution_json.get("encoding") == "store":
            rows.append(("stored in", str(result.solution_json["store"])))
    ended = result.termination
    limit = "" if ended.limit.value == "none" else f", limit: {ended.limit.value}"
    return [*rows, ("ended", ended.reason.value + limit)]


def _first_sends(instance: CollectiveInstance, result: Result) -> Any:
    """A table of the first sends of a schedule that lies in the result itself."""
    from rich.table import Table

    solution = result.solution_json
    if solution is None or solution.get("encoding") != "plain":
        return None
    sends, topology = solution["sends"], instance.topology
    total = len(sends["chunk"])
    table = Table(title=f"First {min(total, FIRST_SENDS)} of {total} sends", title_justify="left")
    for heading in ("start", "chunk", "link", "from", "to"):
        table.add_column(heading, justify="right" if heading in ("start", "chunk") else "left")
    for row in range(min(total, FIRST_SENDS)):
        link = sends["link"][row]
        table.add_row(
            format_seconds(sends["start_ps"][row] * PICOSECOND),
            str(sends["chunk"][row]),
            str(link),
            topology.node_name(int(topology.src[link])),
            topology.node_name(int(topology.dst[link])),
        )
    return table if np.size(sends["chunk"]) else None
