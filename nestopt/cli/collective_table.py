"""The part of ``nestopt generate`` that makes tables of collectives."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from nestopt.cli.inputs import parse_limit
from nestopt.cli.output import note
from nestopt.core.errors import UsageError
from nestopt.core.units import parse_bytes
from nestopt.placement.model.models import parse_count
from nestopt.placement.problem import cluster_of

if TYPE_CHECKING:
    from nestopt.placement.model.collective_table import Layout
    from nestopt.placement.pricing.tables import Comparison

__all__ = ["make_table"]

_CLOSE = 1e-3


def make_table(
    spec: str, sizes: str | None, members: str | None, time_limit: str | None, seed: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The table of a cluster's name or file as JSON, and notes about it."""
    from nestopt.placement.pricing import tables

    wanted = [parse_bytes(text, "--sizes") for text in (sizes or "64KiB,1MiB,64MiB").split(",")]
    if min(wanted) <= 0:
        raise UsageError(f"--sizes {sizes}: expected more than zero bytes")
    groups = [parse_count(text, "--members") for text in (members or "2,4,8,16").split(",")]
    if min(groups) < 2:
        raise UsageError(f"--members {members}: expected groups of at least 2")

    def progress(done: int, count: int, layout: Layout) -> None:
        note(f"{done} of {count} layouts; next {_named(layout)}")

    table, compared = tables.make_table(
        cluster_of(spec), wanted, groups, seed=seed, time_limit=parse_limit(time_limit),
        progress=progress,
    )  # fmt: skip
    return table.to_json(), _notes(len(table.rows), compared)


def _named(layout: Layout) -> str:
    shared = f", {':'.join(map(str, layout.sharing))} at once" if layout.sharing else ""
    return f"{'x'.join(map(str, layout.counts))}{shared}"


def _notes(rows: int, compared: list[Comparison]) -> dict[str, Any]:
    """How the schedules' lines compare with the formulas at the sizes they were made for."""
    ratios = [c.line / c.formulas for c in compared]
    kinds = Counter(
        "faster" if r < 1 - _CLOSE else "slower" if r > 1 + _CLOSE else "equal" for r in ratios
    )
    notes: dict[str, Any] = {
        "layouts": len({c.layout for c in compared}),
        "schedules": len(compared),
        "rows": rows,
        **{f"{kind} than formulas" if kind != "equal" else "as formulas": kinds[kind]
           for kind in ("faster", "equal", "slower")},
    }  # fmt: skip
    if compared:
        best = min(compared, key=lambda c: c.line / c.formulas)
        notes["best"] = (
            f"{best.pattern} {_named(best.layout)}, {best.size:.3g} bytes: "
            f"{best.line * 1e6:.4g} us, formulas {best.formulas * 1e6:.4g} us"
        )
    return notes
