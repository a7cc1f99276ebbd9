"""Subgroups of NPUs for several jobs at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nestopt.core.errors import InputError, unknown_name
from nestopt.instances.spec import parse_spec

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["LAYOUTS", "tenant_groups"]

LAYOUTS = ("contiguous", "random", "strided", "overlapping")


def tenant_groups(
    npus: Sequence[int], recipe: str, rng: np.random.Generator
) -> tuple[tuple[int, ...], ...]:
    """Groups of NPUs, each ascending.

    Parameters
    ----------
    npus : sequence of int
        The NPUs to share out, in order.
    recipe : str
        ``LAYOUT:COUNT[,size=S]``: COUNT groups of S NPUs (default: all of them shared out evenly;
        the remainder stays unused). ``contiguous`` cuts the order into runs, ``strided`` deals it
        out in turn, ``random`` shuffles it first, ``overlapping`` draws each group by itself.

    Raises
    ------
    UsageError
        If there is no such layout.
    InputError
        If the groups do not fit.
    """
    spec = parse_spec(recipe)
    if spec.family not in LAYOUTS:
        raise unknown_name("tenant layout", spec.family, LAYOUTS)
    count = spec.integer(0, "the number of groups")
    size = spec.option_integer("size", max(1, len(npus) // count))
    spec.finish()
    disjoint = spec.family != "overlapping"
    need = count * size if disjoint else size
    if need > len(npus):
        raise InputError(
            f"{count} groups of {size} need {need} NPUs; there are {len(npus)}", field=recipe
        )
    order = list(npus)
    if spec.family == "overlapping":
        picks = [rng.permutation(len(order))[:size].tolist() for _ in range(count)]
    elif spec.family == "strided":
        picks = [list(range(i, count * size, count)) for i in range(count)]
    else:
        shuffled = rng.permutation(len(order)) if spec.family == "random" else np.arange(len(order))
        picks = [shuffled[i * size : (i + 1) * size].tolist() for i in range(count)]
    return tuple(tuple(sorted(order[i] for i in pick)) for pick in picks)
