"""Colours, markers and files of the pictures of studies: the same input gives the same bytes.

Needs matplotlib (extra ``studies``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nestopt.core.errors import NestoptError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

    from matplotlib.axes import Axes

    from nestopt.study.statistics import Profile

__all__ = [
    "COLUMN",
    "PAGE",
    "draw_profile",
    "line_styles",
    "log_scale",
    "plain",
    "style",
    "written",
]

COLUMN, PAGE = 3.3, 7.0
"""Widths in inches of a column and of a page."""

# Okabe and Ito's colours, in an order in which neighbours differ in grey as well
_COLOURS = (
    "#0072B2", "#E69F00", "#000000", "#CC79A7", "#009E73", "#56B4E9", "#D55E00", "#8C8C8C",
)  # fmt: skip
_MARKERS = "osD^vP*X"
_DASHES = ("-", (0, (5, 1.5)), (0, (1, 1.2)), (0, (5, 1.5, 1, 1.5)))

_FINE = (1.0, 1.2, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)

_RULES: dict[str, Any] = {
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.labelsize": 8,
    "axes.linewidth": 0.6,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 8,
    "figure.constrained_layout.use": True,
    "figure.dpi": 100,
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.4,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "lines.linewidth": 1.2,
    "lines.markersize": 4,
    "pdf.fonttype": 42,
    "ps.fonttype": 42,
    "savefig.dpi": 300,
    "svg.hashsalt": "nestopt",
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
}


def style() -> AbstractContextManager[None]:
    """The context in which a figure is built and saved; settings of the user do not enter.

    Raises
    ------
    NestoptError
        If matplotlib is not installed.
    """
    try:
        import matplotlib as mpl
    except ModuleNotFoundError as error:
        raise NestoptError("pictures need matplotlib: pip install 'nestopt[plot]'") from error
    return _context(mpl)


def _context(mpl: Any) -> AbstractContextManager[None]:
    from contextlib import contextmanager

    @contextmanager
    def entered() -> Iterator[None]:
        with mpl.rc_context():
            mpl.rcdefaults()
            mpl.rcParams.update(_RULES)
            yield

    return entered()


def line_styles(names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Colour, marker and dashes of each name, by its place; no two of the first 32 are the same."""
    count = len(_COLOURS)
    return {
        name: {
            "color": _COLOURS[i % count],
            "marker": _MARKERS[(i + i // count) % count],
            "linestyle": _DASHES[(i + i // count) % len(_DASHES)],
        }
        for i, name in enumerate(names)
    }


def log_scale(axes: Axes, which: str) -> None:
    """Make the ``x`` or ``y`` axis logarithmic, with numbers in full at few ticks.

    To be called when all data are drawn.
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis = axes.xaxis if which == "x" else axes.yaxis
    (axes.set_xscale if which == "x" else axes.set_yscale)("log")
    low, high = axes.get_xlim() if which == "x" else axes.get_ylim()
    subs = (1.0,) if high / low > 200 else (1.0, 2.0, 5.0) if high / low > 8 else _FINE
    axis.set_major_locator(LogLocator(subs=subs, numticks=12))
    axis.set_major_formatter(FuncFormatter(lambda value, _: written(value)))
    axis.set_minor_formatter(NullFormatter())


def written(value: float) -> str:
    """A tick's number: 0.01, 5, 20,000, and powers of ten beyond a million."""
    if value >= 1e6 or value < 1e-3:
        return f"{value:.0e}".replace("e+0", "e").replace("e-0", "e-")
    return f"{value:,.0f}" if value >= 1 and value == round(value) else f"{value:g}"


def draw_profile(axes: Axes, profile: Profile, looks: dict[str, dict[str, Any]]) -> None:
    """Draw a performance profile; `looks` names its columns, in their order."""
    import numpy as np

    end = max(1.2, 1.2 * float(profile.taus[-1]))
    for shares, (name, look) in zip(profile.shares.T, looks.items()):
        axes.step(
            np.append(profile.taus, end),
            np.append(shares, shares[-1]),
            where="post",
            label=plain(name),
            color=look["color"],
            linestyle=look["linestyle"],
        )
    axes.set_xlim(1, end)
    axes.set_ylim(0, 1.03)
    if end > 2:
        log_scale(axes, "x")


def plain(text: object) -> str:
    """A label that shows as it is: no formula between dollars, not hidden by an underscore."""
    shown = str(text).replace("$", r"\$")
    return f" {shown}" if shown.startswith("_") else shown
