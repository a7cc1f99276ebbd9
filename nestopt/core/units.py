"""Parsing and printing of quantities with units.

Inside nestopt everything is SI: seconds, bytes, bytes/s, FLOP/s. Text input carries its unit
("450 GB/s", "400 Gb/s", "0.7 us", "80 GiB", "312 TFLOP/s"); GB is 10^9 bytes and GiB is 2^30. A
bare number in text is an error, a number in JSON is SI.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction

from nestopt.core.errors import InputError

__all__ = [
    "LARGEST",
    "format_bytes",
    "format_rate",
    "format_seconds",
    "parse_bandwidth",
    "parse_bytes",
    "parse_flops",
    "parse_power",
    "parse_time",
    "parse_time_ps",
]

LARGEST = 1e60
"""Of any quantity in SI units; what is positive is at least its reciprocal.

Products and quotients of a few such numbers are numbers still.
"""

_DECIMAL = {
    "": 1,
    "k": 10**3,
    "K": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "P": 10**15,
    "E": 10**18,
}
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50}
_TIME = {
    "ps": Fraction(1, 10**12),
    "ns": Fraction(1, 10**9),
    "us": Fraction(1, 10**6),
    "µs": Fraction(1, 10**6),
    "μs": Fraction(1, 10**6),
    "ms": Fraction(1, 10**3),
    "s": Fraction(1),
    "min": Fraction(60),
    "h": Fraction(3600),
    "d": Fraction(86400),
}
_QUANTITY = re.compile(r"^\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,2})?)\s*(\S.*?)?\s*$")
_LONGEST_NUMBER = 40


def _split(value: str, field: str | None, expected: str) -> tuple[Fraction, str]:
    match = _QUANTITY.match(value)
    if match is None or not match.group(2) or len(match.group(1)) > _LONGEST_NUMBER:
        raise InputError(f"{value!r} has no unit or is no number; expected {expected}", field=field)
    return Fraction(match.group(1)), match.group(2).replace(" ", "")


def _prefixed(unit: str, tails: dict[str, Fraction]) -> Fraction | None:
    for tail, scale in tails.items():
        if unit.endswith(tail):
            prefix = unit[: len(unit) - len(tail)]
            factor = _BINARY.get(prefix) or _DECIMAL.get(prefix)
            if factor is not None:
                return factor * scale
    return None


def _number(value: float, field: str | None, expected: str) -> float:
    if isinstance(value, bool) or not math.isfinite(value):
        raise InputError(f"{value!r} is not a finite number; expected {expected}", field=field)
    return float(value)


def parse_bytes(value: str | float, field: str | None = None) -> float:
    """Bytes from "80 GiB" or "16 MB"; a number is bytes already."""
    expected = "bytes with a unit, such as '80 GiB' or '25 MB'"
    if not isinstance(value, str):
        return _number(value, field, expected)
    number, unit = _split(value, field, expected)
    scale = _prefixed(unit, {"B": Fraction(1), "bit": Fraction(1, 8)})
    if scale is None:
        raise InputError(f"{value!r}: unknown unit {unit!r}; expected {expected}", field=field)
    return float(number * scale)


def parse_bandwidth(value: str | float, field: str | None = None) -> float:
    """Bytes/s from "450 GB/s", "50 GiB/s", "400 Gb/s" or "400 Gbps"; a number is bytes/s."""
    expected = "a bandwidth with a unit, such as '450 GB/s' or '400 Gb/s'"
    if not isinstance(value, str):
        return _number(value, field, expected)
    number, unit = _split(value, field, expected)
    eighth = Fraction(1, 8)
    scale = _prefixed(unit, {"B/s": Fraction(1), "b/s": eighth, "bit/s": eighth, "bps": eighth})
    if scale is None:
        raise InputError(f"{value!r}: unknown unit {unit!r}; expected {expected}", field=field)
    return float(number * scale)


def parse_flops(value: str | float, field: str | None = None) -> float:
    """FLOP/s from "312 TFLOP/s" or "989 TFLOPS"; a number is FLOP/s."""
    expected = "a speed with a unit, such as '312 TFLOP/s'"
    if not isinstance(value, str):
        return _number(value, field, expected)
    number, unit = _split(value, field, expected)
    one = Fraction(1)
    scale = _prefixed(unit, {"FLOP/s": one, "FLOPS": one, "FLOPs/s": one, "Flop/s": one})
    if scale is None:
        raise InputError(f"{value!r}: unknown unit {unit!r}; expected {expected}", field=field)
    return float(number * scale)


def parse_power(value: str | float, field: str | None = None) -> float:
    """Watts from "700 W" or "1.2 kW"; a number is watts."""
    expected = "a power with a unit, such as '700 W'"
    if not isinstance(value, str):
        return _number(value, field, expected)
    number, unit = _split(value, field, expected)
    scale = _prefixed(unit, {"W": Fraction(1)})
    if scale is None:
        raise InputError(f"{value!r}: unknown unit {unit!r}; expected {expected}", field=field)
    return float(number * scale)


def _time_fraction(value: str, field: str | None) -> Fraction:
    expected = "a time with a unit, such as '0.7 us' or '300 s'"
    number, unit = _split(value, field, expected)
    if unit not in _TIME:
        raise InputError(f"{value!r}: unknown unit {unit!r}; expected {expected}", field=field)
    return number * _TIME[unit]


def parse_time(value: str | float, field: str | None = None) -> float:
    """Seconds from "0.7 us", "54 d"; a number is seconds."""
    if not isinstance(value, str):
        return _number(value, field, "a time with a unit, such as '0.7 us'")
    return float(_time_fraction(value, field))


def parse_time_ps(value: str | int, field: str | None = None) -> int:
    """Integer picoseconds from text ("0.7 us") or from an integer that counts picoseconds.

    Raises
    ------
    InputError
        If the time is not a whole number of picoseconds; nothing is rounded silently.
    """
    if not isinstance(value, str):
        if isinstance(value, bool) or not math.isfinite(value) or int(value) != value:
            raise InputError(f"{value!r} is not a whole number of picoseconds", field=field)
        return int(value)
    picoseconds = _time_fraction(value, field) * 10**12
    if picoseconds.denominator != 1:
        raise InputError(f"{value!r} is not a whole number of picoseconds", field=field)
    return int(picoseconds)


def format_seconds(seconds: float) -> str:
    """A time for people: "12.3 s", "4.56 ms", "7.8 us"."""
    if not math.isfinite(seconds):
        return str(seconds)
    magnitude = abs(seconds)
    if magnitude == 0:
        return "0 s"
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9)):
        if magnitude >= scale:
            return f"{_four_digits(seconds / scale)} {unit}"
    return f"{seconds / 1e-12:.4g} ps"


def _four_digits(value: float) -> str:
    """Four significant digits, without an exponent however large the value."""
    return f"{value:.0f}" if abs(value) >= 1e4 else f"{value:.4g}"


def format_bytes(count: float) -> str:
    """Bytes for people, in binary units: "71.5 GiB"."""
    for unit, scale in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if abs(count) >= scale:
            return f"{_four_digits(count / scale)} {unit}"
    return f"{count:.4g} B"


def format_rate(rate: float) -> str:
    """A bandwidth for people, in decimal units: "450 GB/s"."""
    for unit, scale in (("TB/s", 1e12), ("GB/s", 1e9), ("MB/s", 1e6), ("kB/s", 1e3)):
        if abs(rate) >= scale:
            return f"{_four_digits(rate / scale)} {unit}"
    return f"{rate:.4g} B/s"
