"""How good a ranking of 4D decompositions is: the method ``rank4d`` of a placement study.

A communication model (setting ``mode``: published, corrected or full) ranks all decompositions
(Gx, Gy, Gz, Gdata); the full model, with compute, latency, memory and overlap, judges what comes
first. The objective is the judged iteration time of the first decomposition that fits the memory,
the bound the best judged time of all that fit, so the gap is the price of the ranking. Both speak
of decompositions without a pipeline: they are no bounds on the placement problem.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nestopt.core.errors import InputError, unknown_name
from nestopt.core.pricing import FIRST_SET
from nestopt.fourd.models import dense_model

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nestopt.fourd.rank import Ranked

__all__ = ["METHOD", "MODES", "SETTINGS", "judge", "parse_settings"]

METHOD = "rank4d"
"""Its name among the methods of placement."""
MODES = ("full", "corrected", "published")
SETTINGS = ("mode", "batch")
TRIED = 10


def parse_settings(settings: dict[str, str]) -> tuple[str, int | None]:
    """Mode and global batch (None: the default of `nestopt.fourd.rank.rank_table`).

    Raises
    ------
    UsageError, InputError
        If a key or value is wrong.
    """
    for key in settings:
        if key not in SETTINGS:
            raise unknown_name("setting of rank4d", key, SETTINGS)
    mode = settings.get("mode", MODES[0])
    if mode not in MODES:
        raise unknown_name("mode", mode, MODES)
    if "batch" not in settings:
        return mode, None
    if not settings["batch"].isdigit() or int(settings["batch"]) < 1:
        raise InputError(f"{settings['batch']!r}; expected a positive integer", field="set.batch")
    return mode, int(settings["batch"])


def judge(names: dict[str, str], settings: dict[str, str]) -> dict[str, Any]:
    """``objective``, ``bound`` (seconds, None if nothing fits) and ``stats`` of a ranking.

    Raises
    ------
    UsageError, InputError
        If a name is unknown or the job divides into no decomposition.
    """
    from nestopt.fourd.rank import rank_table
    from nestopt.placement.pricing.parameters import current_set

    mode, batch = parse_settings(settings)
    model = dense_model(names["workload"])
    # rankings of the first parameter set were judged product by product
    first = current_set().name == FIRST_SET
    judging = "layers" if first else "full"
    mode = judging if mode == "full" else mode
    full = rank_table(model, names["cluster"], batch=batch, mode=judging, simulate_rows=1)
    judged = {row.grid: row for row in full.rows if row.fits}
    table = rank_table(model, names["cluster"], batch=batch, mode=mode, simulate_rows=0)
    ranking = [row for row in table.rows if row.grid in judged]
    stats: dict[str, Any] = {
        "decompositions": len(table.rows),
        "fit": len(judged),
        "first_fits": table.rows[0].grid in judged,
        "batch": table.batch,
    }
    if not ranking:
        return {"objective": None, "bound": None, "stats": stats}
    times = [judged[row.grid].iteration for row in ranking]
    stats |= {
        "grid": _name(ranking[0]),
        "best_grid": _name(full.rows[0]),
        f"best_of_{TRIED}": min(times[:TRIED]),
        "place_of_best": times.index(min(times)) + 1,
        "rank_correlation": _spearman(times),
        **({"simulated_best": full.simulated[0]} if full.simulated else {}),
    }
    return {"objective": times[0], "bound": min(times), "stats": stats}


def _name(row: Ranked) -> str:
    grid = row.grid
    return f"{grid.x}x{grid.y}x{grid.z}x{grid.data}"


def _spearman(times: Sequence[float]) -> float | None:
    """Spearman's correlation of the places 0, 1, ... with the judged times."""
    if len(times) < 2:
        return None
    import numpy as np

    places = np.argsort(np.argsort(times, kind="stable"))
    return float(np.corrcoef(np.arange(len(times)), places)[0, 1])
