"""Pictures as files: PDF, PNG or SVG by the ending, the same bytes for the same figure."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nestopt.core.errors import UsageError
from nestopt.core.io import write_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.figure import Figure

__all__ = ["picture_bytes", "write_picture"]

# nothing of when or by which version it was drawn
_METADATA: dict[str, dict[str, str | None]] = {
    "pdf": {"CreationDate": None, "Producer": "nestopt", "Creator": "nestopt"},
    "png": {"Software": "nestopt"},
    "svg": {"Date": None, "Creator": "nestopt"},
}
_STYLE: Any = {"svg.hashsalt": "nestopt", "pdf.fonttype": 42, "font.size": 8.0}


def picture_bytes(figure: Figure, ending: str, **keys: Any) -> bytes:
    """The file of a figure (``pdf``, ``png`` or ``svg``); `keys` go to ``savefig``."""
    whole = BytesIO()
    figure.savefig(whole, format=ending, metadata=_METADATA[ending], **keys)
    return whole.getvalue()


def write_picture(target: str | Path, draw: Callable[[], Figure]) -> None:
    """Draw a figure and write it, whole or not at all.

    Parameters
    ----------
    target : str or Path
        Ends in .pdf, .png or .svg.
    draw : callable
        Makes the figure, in the style of the pictures of solutions.

    Raises
    ------
    UsageError
        If the ending is another one; nothing is drawn then.
    """
    import matplotlib as mpl

    ending = Path(target).suffix.lower()[1:]
    if ending not in _METADATA:
        raise UsageError(f"{target}: expected a name that ends in .pdf, .png or .svg")
    with mpl.rc_context(_STYLE):
        data = picture_bytes(draw(), ending, dpi=200)
    write_bytes(target, data)
