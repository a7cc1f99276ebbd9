"""Help about settings, made from the tables (`nestopt.core.settings`)."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING

from nestopt.collective.settings import SETTINGS as COLLECTIVE
from nestopt.instances.recipe_keys import RECIPE_KEYS
from nestopt.placement.settings import SETTINGS as PLACEMENT

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nestopt.core.settings import Setting

__all__ = ["epilog", "rows_text"]

_LEFT = 26
_WIDTH = 79


def rows_text(rows: Iterable[Setting], indent: int = 2, width: int = _WIDTH) -> list[str]:
    """Two columns: an example of each setting, and its meaning, form and default."""
    lines: list[str] = []
    left = indent + _LEFT
    for row in rows:
        default = f"default: {row.default}" if row.default else "must be given"
        text = f"{row.meaning} ({row.form}; {default})"
        if row.words:
            text += f" One of {', '.join(row.words)}."
        head = " " * indent + row.example
        parts = wrap(text, width - left)
        if len(head) >= left:
            lines.append(head)
            head = ""
        lines += [f"{head if i == 0 else '':<{left}}{part}" for i, part in enumerate(parts)]
    return lines


def epilog() -> str:
    """The settings of all instances, plan spaces, methods and names, for ``solve --help``."""
    parts = [
        ("Placement, --set KEY=VALUE:", PLACEMENT.values()),
        ("Collectives, --set KEY=VALUE:", COLLECTIVE.values()),
        ("--workload NAME,KEY=VALUE,...:", RECIPE_KEYS["workload"]),
        ("--cluster NAME+PART...:", RECIPE_KEYS["cluster"]),
        ("--collective PATTERN:KEY=VALUE,...:", RECIPE_KEYS["collective"]),
        ("--topology FAMILY:SIZE,KEY=VALUE,...+PART...:", RECIPE_KEYS["topology"]),
    ]
    return "\n\n".join(
        "\b\n" + "\n".join([title, *rows_text(rows, width=_WIDTH - 3)]) for title, rows in parts
    )
