"""Colours of every picture, readable in grey and by the colour-blind."""

from __future__ import annotations

__all__ = ["BACKWARD", "FORWARD", "OKABE_ITO", "SYNC", "distinct", "ink", "paler", "ramp"]

OKABE_ITO = (
    "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999",
)  # fmt: skip
"""Eight colours that stay apart (Okabe and Ito, 2008)."""

FORWARD, BACKWARD, SYNC = "#56B4E9", "#E69F00", "#009E73"
"""Tasks of a pipeline."""


def ink(colour: tuple[float, float, float]) -> str:
    """Black or white, whichever reads better on a colour (red, green, blue from 0 to 1)."""
    red, green, blue = colour
    return "black" if 0.299 * red + 0.587 * green + 0.114 * blue > 0.5 else "white"


_VIRIDIS = (
    "#440154", "#482878", "#3e4989", "#31688e", "#26828e", "#1f9e89", "#35b779", "#6ece58",
    "#b5de2b", "#fde725",
)  # fmt: skip


def _parts(colour: str) -> list[int]:
    return [int(colour[i : i + 2], 16) for i in (1, 3, 5)]


def _mixed(first: str, second: str, share: float) -> str:
    mixed = (round(a + (b - a) * share) for a, b in zip(_parts(first), _parts(second)))
    return "#" + "".join(f"{part:02x}" for part in mixed)


def distinct(count: int) -> list[str]:
    """Colours for `count` things in order, ``#rrggbb``: eight that stay apart, or dark to light."""
    if count <= len(OKABE_ITO):
        return list(OKABE_ITO[:count])
    return ramp(count)


def ramp(count: int) -> list[str]:
    """At least two colours from dark to light, ``#rrggbb``."""
    last = len(_VIRIDIS) - 1
    found = []
    for index in range(count):
        at = index * last / (count - 1)
        low = min(int(at), last - 1)
        found.append(_mixed(_VIRIDIS[low], _VIRIDIS[low + 1], at - low))
    return found


def paler(colour: str, share: float) -> str:
    """A colour mixed with white; 0 leaves it, 1 is white."""
    return _mixed(colour, "#ffffff", share)
