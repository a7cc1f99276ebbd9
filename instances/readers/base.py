"""What all readers share: the text with its line numbers, the result, and quantities."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nestopt.core.errors import InputError
from nestopt.core.io import read_text
from nestopt.core.units import parse_bandwidth
from nestopt.instances.spec import LinkSpec, Spec

if TYPE_CHECKING:
    from nestopt.instances.network import Network

__all__ = [
    "MOST",
    "MOST_DIGITS",
    "MOST_PARALLEL",
    "Reading",
    "Source",
    "bundle",
    "link_spec",
    "strip_suffix",
    "whole",
]

MOST = 10**6
MOST_PARALLEL = 1000
# characters of a number: more than any quantity needs, and quick to read
MOST_DIGITS = 400
_MOST_UNITS = 2**61
_EXPONENT = re.compile(r"[eE]([-+]?[0-9_]+)\s*$")


@dataclass(frozen=True, slots=True)
class Reading:
    """A network read from a file, and what was odd about the file.

    Attributes
    ----------
    network : Network
    complaints : tuple of str
        Each names the file, the line and the field, and says how it was understood.
    """

    network: Network
    complaints: tuple[str, ...] = ()


@dataclass(slots=True)
class Source:
    """An input file, its settings and the complaints so far.

    Attributes
    ----------
    path : str
    text : str
    settings : Spec
        ``KEY=VALUE`` settings; what no reader asks for is refused.
    """

    path: str
    text: str
    settings: Spec
    complaints: list[str] = field(default_factory=list)

    @classmethod
    def open(cls, path: str | Path, settings: dict[str, str]) -> Source:
        """The text of a file.

        Raises
        ------
        InputError
            If it cannot be read, is not UTF-8 or is empty.
        """
        text = read_text(path, encoding="utf-8-sig")
        if not text.strip():
            raise InputError("is empty", file=str(path))
        return cls(str(path), text, Spec(f"settings of {path}", "", (), dict(settings)))

    @property
    def name(self) -> str:
        """The file's name without directory and ending."""
        return Path(self.path).stem

    def error(self, message: str, line: int | None = None, where: str = "") -> InputError:
        """An error that names the file, the line and the field."""
        return InputError(message, file=self.path, field=_where(line, where))

    def complain(self, message: str, line: int | None = None, where: str = "") -> None:
        """Record something odd; `readers.read` raises it if it is told to be strict."""
        self.complaints.append(str(self.error(message, line, where)))

    def needed(self, key: str, meaning: str) -> str:
        """A setting that the file cannot answer."""
        text = self.settings.option(key)
        if text is None:
            raise InputError(
                f"the format does not say {meaning}; give it as the setting {key}", file=self.path
            )
        return text

    def rate(self, key: str, meaning: str) -> int:
        """A setting that is a bandwidth, in bytes/s."""
        rate = round(parse_bandwidth(self.needed(key, meaning), key))
        if rate <= 0:
            raise self.error(f"{rate} bytes/s; expected more than zero", None, f"setting {key}")
        return rate

    def reading(self, network: Network) -> Reading:
        """The finished reading, after a check for settings that nothing asked for."""
        self.settings.finish()
        if not len(network.npus):
            raise InputError("holds no NPU", file=self.path)
        return Reading(network, tuple(self.complaints))


def _where(line: int | None, where: str) -> str | None:
    parts = ([f"line {line}"] if line is not None else []) + ([where] if where else [])
    return ", ".join(parts) or None


def whole(
    source: Source,
    text: Any,
    line: int | None,
    where: str,
    *,
    minimum: int = 0,
    maximum: int = MOST,
) -> int:
    """A whole number from `minimum` to `maximum`."""
    _refuse_long(source, text, line, where)
    try:
        value = int(text)
    except (TypeError, ValueError, OverflowError):
        raise source.error(f"{_short(text)}; expected a whole number", line, where) from None
    if isinstance(text, float) and value != text:
        raise source.error(f"{text!r}; expected a whole number", line, where)
    if value < minimum:
        raise source.error(f"{_short(value)}; expected at least {minimum}", line, where)
    if value > maximum:
        raise source.error(f"{_short(value)}; expected at most {maximum}", line, where)
    return value


def _short(value: Any) -> str:
    shown = repr(value) if isinstance(value, str) else str(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."


def _refuse_long(source: Source, value: Any, line: int | None, where: str) -> None:
    """Refuse a number so long that reading or showing it takes time or fails."""
    if isinstance(value, str):
        digits = len(value)
    elif isinstance(value, int):
        digits = value.bit_length() // 4
    else:
        return
    if digits > MOST_DIGITS:
        raise source.error(
            f"a number of about {digits} digits; expected at most {MOST_DIGITS}", line, where
        )


def _exact(source: Source, value: Any, line: int | None, where: str) -> Fraction:
    if isinstance(value, bool) or (isinstance(value, float) and not math.isfinite(value)):
        raise source.error(f"{value!r}; expected a finite number", line, where)
    _refuse_long(source, value, line, where)
    exponent = _EXPONENT.search(str(value))
    if exponent and (len(exponent[1]) > 5 or abs(int(exponent[1])) > MOST_DIGITS):
        raise source.error(
            f"{_short(value)}; expected an exponent of at most {MOST_DIGITS}", line, where
        )
    try:
        return Fraction(str(value).strip())
    except (ValueError, ZeroDivisionError):
        raise source.error(f"{_short(value)}; expected a number", line, where) from None


def link_spec(
    source: Source,
    bandwidth: tuple[Any, int | Fraction],
    latency: tuple[Any, int | Fraction],
    line: int | None,
    where: tuple[str, str] = ("bandwidth", "latency"),
) -> LinkSpec:
    """A link from numbers in the format's own units.

    Parameters
    ----------
    bandwidth : (number or text, bytes/s of one unit)
    latency : (number or text, picoseconds of one unit)
    where : names of the two fields

    Raises
    ------
    InputError
        If a number is none, the bandwidth not positive, or the latency negative; fractions of
        bytes/s and of picoseconds are rounded to the nearest.
    """
    rate = _exact(source, bandwidth[0], line, where[0]) * bandwidth[1]
    delay = _exact(source, latency[0], line, where[1]) * latency[1]
    if rate < 0:
        raise source.error(f"{bandwidth[0]} is a negative bandwidth", line, where[0])
    if round(rate) == 0:
        raise source.error(f"{bandwidth[0]} is a zero bandwidth", line, where[0])
    if delay < 0:
        raise source.error(f"{latency[0]} is a negative latency", line, where[1])
    for value, unit, shown, place in (
        (rate, "bytes/s", bandwidth[0], where[0]),
        (delay, "ps", latency[0], where[1]),
    ):
        if value > _MOST_UNITS:
            raise source.error(f"{_short(shown)} is more than 2**61 {unit}", line, place)
    return LinkSpec(round(rate), round(delay))


def bundle(link: LinkSpec, count: int, *, stripe: bool) -> tuple[LinkSpec, int]:
    """A bundle of `count` equal links: one link of the sum if it stripes, else as it is.

    A message over a bundle that stripes uses all of it; over separate links, one of them.
    """
    return (LinkSpec(link.bandwidth * count, link.alpha_ps), 1) if stripe else (link, count)


def strip_suffix(
    source: Source, text: str, units: dict[str, Fraction], line: int | None, where: str
) -> tuple[str, Fraction]:
    """A number with one of the format's units: the number's text and the unit's value."""
    for unit in sorted(units, key=len, reverse=True):
        if text.endswith(unit):
            return text[: -len(unit)], units[unit]
    raise source.error(
        f"{text!r} has no known unit; expected one of {', '.join(units)}", line, where
    )
