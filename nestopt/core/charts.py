"""Pictures of characters: bars over time that read with and without colours."""

from __future__ import annotations

from io import StringIO
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.text import Text

__all__ = ["SYMBOLS", "axis", "for_encoding", "rendered", "shaded", "symbol"]

SYMBOLS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_STEPS = " ▁▂▃▄▅▆▇█"
_POORER = " .:-=+*#@"


def symbol(number: int) -> str:
    """One character for a number: a digit, then letters; ``+`` beyond 61."""
    return SYMBOLS[number] if number < len(SYMBOLS) else "+"


def shaded(shares: Iterable[float]) -> str:
    """A bar for each share from 0 to 1; any share above 0 can be seen."""
    last = len(_STEPS) - 1
    return "".join(
        _STEPS[0 if s <= 0 else max(1, min(last, round(s * last)))] for s in map(float, shares)
    )


def axis(end: str, width: int, start: str = "0") -> str:
    """What stands below a bar of `width` characters: its start and its end."""
    return start + end.rjust(max(0, width - len(start)))


def for_encoding(text: str, encoding: str | None) -> str:
    """The text, with other characters where the encoding lacks those that charts use."""
    encoding = encoding or "ascii"
    try:
        text.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        poorer = text.translate(str.maketrans(_STEPS + "→·…", _POORER + ">.~"))
        return poorer.encode("ascii", "replace").decode("ascii")
    return text


def rendered(lines: Sequence[Text | str], *, colour: bool = False) -> str:
    """Lines as plain text, or with the escape codes of colours."""
    if not colour:
        return "\n".join(str(line).rstrip() for line in lines)
    from rich.console import Console

    stream = StringIO()
    console = Console(
        file=stream, force_terminal=True, color_system="truecolor", width=400, highlight=False
    )
    for line in lines:
        console.print(line, soft_wrap=True, markup=False)
    return stream.getvalue().rstrip("\n")
