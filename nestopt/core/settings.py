"""One table of settings: key, form, default, meaning and example of each.

From a row come the check of a value, the suggestion for a wrong key, `nestopt methods` and the
command line's help. The rows of a problem stand in ``nestopt/PROBLEM/settings.py``, those of named
workloads, clusters, topologies and collectives in ``instances/recipe_keys.py``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from nestopt.core.errors import UsageError

__all__ = ["Setting", "as_text", "checked", "setting_of"]


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting.

    Attributes
    ----------
    key : str
    form : str
        What a value looks like, for people: ``"whole number"``, ``"file"``, ``"1,2,4 or all"``.
    default : str
        In words; empty if there is none and the setting must be given.
    meaning : str
        One sentence.
    example : str
        ``KEY=VALUE``.
    words : tuple of str
        The values allowed, where these are words.
    low : float or None
        The least value, where values are numbers; `whole` says that they are whole.
    whole : bool
    """

    key: str
    form: str
    default: str
    meaning: str
    example: str
    words: tuple[str, ...] = ()
    low: float | None = None
    whole: bool = True

    def check(self, text: str) -> None:
        """Refuse a value of another form.

        Raises
        ------
        UsageError
            Naming the key, the value and what was expected.
        """
        if self.words and text not in self.words:
            raise UsageError(f"--set {self.key}={text}: expected one of {', '.join(self.words)}")
        if self.low is None:
            return
        try:
            number = int(text) if self.whole else float(text)
        except ValueError:
            number = -math.inf
        if not self.low <= number < math.inf:
            raise UsageError(
                f"--set {self.key}={text}: expected a {self.form} of at least {self.low:g}"
            )

    def to_json(self) -> dict[str, str]:
        """The row for ``nestopt methods --json``."""
        return {
            "form": self.form,
            "default": self.default,
            "meaning": self.meaning,
            "example": self.example,
        }

    @property
    def line(self) -> str:
        """The row for people: meaning, form, default, example."""
        default = f"default: {self.default}" if self.default else "must be given"
        return f"{self.meaning} ({self.form}; {default}; {self.example})"


def setting_of(problem: str, key: str, method: str | None = None) -> Setting | None:
    """The row of a key; of the method's own where it has one, else of all that read it."""
    rows: dict[str, Setting] = import_module(f"nestopt.{problem}.settings").SETTINGS
    return rows.get(f"{method}.{key}") or rows.get(key)


def as_text(key: str, value: Any) -> str:
    """A value from Python as the text that a command line would hold.

    True is ``true``, a tuple or list is joined by commas, a number is its shortest text.

    Raises
    ------
    UsageError
        If the value is none of these.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return f"{value:g}" if isinstance(value, float) and value == int(value) else repr(value)
    if isinstance(value, Iterable) and not isinstance(value, (bytes, Mapping)):
        return ",".join(as_text(key, part) for part in value)
    raise UsageError(f"setting {key}: {value!r}; expected text, a number, True, False or a list")


def checked(problem: str, method: str, settings: Mapping[str, str]) -> None:
    """Check the values of a method's settings by their rows; keys without a row are passed over.

    Raises
    ------
    UsageError
        Naming the key, the value and what was expected.
    """
    for key, text in settings.items():
        row = setting_of(problem, key, method)
        if row is not None:
            row.check(text)
