"""Names with parameters: ``torus2d:8x8,bw=50GB/s,alpha=0.5us`` taken apart.

A name is ``FAMILY[:ARGUMENTS]``; the arguments are separated by commas, positional ones first,
then ``key=value`` options. An option that takes one value per dimension or per tier lists them
with colons (``bw=200GB/s:100GB/s:50GB/s``); a single value holds for all.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING

from nestopt.core.errors import InputError
from nestopt.core.units import parse_bandwidth, parse_time_ps

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["LinkSpec", "Spec", "parse_spec", "parse_yes_no"]

_SHAPE = re.compile(r"^\d+(x\d+)*$")


@dataclass(frozen=True, slots=True)
class LinkSpec:
    """Bandwidth (bytes/s) and latency (ps) of one kind of link."""

    bandwidth: int
    alpha_ps: int = 0


@dataclass(slots=True)
class Spec:
    """A name taken apart; every argument must be asked for before `finish` is called.

    Attributes
    ----------
    text : str
        The whole name.
    family : str
    positional : tuple of str
    options : dict
        Option key to value, both text.
    """

    text: str
    family: str
    positional: tuple[str, ...]
    options: dict[str, str]
    _positions: set[int] = field(default_factory=set)
    _keys: set[str] = field(default_factory=set)

    def error(self, message: str) -> InputError:
        """An `InputError` that names this spec."""
        return InputError(message, field=self.text)

    def argument(self, index: int, meaning: str, default: str | None = None) -> str:
        """The positional argument at `index`, or `default`."""
        self._positions.add(index)
        if index < len(self.positional):
            return self.positional[index]
        if default is None:
            raise self.error(f"needs {meaning} as argument {index + 1}")
        return default

    def integer(
        self, index: int, meaning: str, *, minimum: int = 1, default: int | None = None
    ) -> int:
        """The positional argument at `index` as an integer of at least `minimum`."""
        text = self.argument(index, meaning, None if default is None else str(default))
        return self._integer(text, meaning, minimum)

    def shape(
        self,
        meaning: str,
        *,
        dimensions: int | None = None,
        minimum: int = 1,
        default: str | None = None,
    ) -> tuple[int, ...]:
        """The first argument as a shape, ``4x4x2``."""
        text = self.argument(0, meaning, default)
        if not _SHAPE.match(text):
            raise self.error(f"{text!r} is no shape; expected {meaning}, such as 4x4")
        sizes = tuple(int(part) for part in text.split("x"))
        if dimensions is not None and len(sizes) != dimensions:
            raise self.error(f"{text!r} has {len(sizes)} dimensions; expected {dimensions}")
        for position, size in enumerate(sizes):
            if size < minimum:
                raise self.error(f"dimension {position} is {size}; expected at least {minimum}")
        return sizes

    def option(self, key: str, default: str | None = None) -> str | None:
        """An option's text, or `default`."""
        self._keys.add(key)
        return self.options.get(key, default)

    def option_integer(self, key: str, default: int, *, minimum: int = 1) -> int:
        """An option as an integer of at least `minimum`."""
        text = self.option(key)
        return default if text is None else self._integer(text, key, minimum)

    def option_number(self, key: str, default: float, *, minimum: float) -> float:
        """An option as a number of at least `minimum`."""
        text = self.option(key)
        if text is None:
            return default
        try:
            value = float(text)
        except ValueError:
            raise self.error(f"{key}={text!r} is no number") from None
        if not minimum <= value < float("inf"):
            raise self.error(f"{key}={text}; expected a number of at least {minimum:g}")
        return value

    def flag(self, key: str, default: bool = False) -> bool:
        """An option that is ``yes`` or ``no``."""
        text = self.option(key)
        return default if text is None else parse_yes_no(text, f"{self.text}: {key}")

    def choice(self, key: str, choices: Sequence[str], default: str) -> str:
        """An option that is one of `choices`."""
        text = self.option(key) or default
        if text not in choices:
            raise self.error(f"{key}={text!r}; expected one of {', '.join(choices)}")
        return text

    def links(
        self, defaults: Sequence[LinkSpec], *, hardware: Sequence[str] = ()
    ) -> list[LinkSpec]:
        """``bw`` and ``alpha`` for every dimension or tier, one of `defaults` each.

        ``alpha=hardware`` takes the latencies in `hardware`, one a tier.
        """
        count = len(defaults)
        bandwidths = self._per_tier("bw", count)
        if self.option("alpha") == "hardware":
            if not hardware:
                raise self.error("alpha=hardware; the family is no machine, give a time (0.5us)")
            alphas = list(hardware)
        else:
            alphas = self._per_tier("alpha", count)
        result = []
        for position, default in enumerate(defaults):
            bandwidth, alpha = default.bandwidth, default.alpha_ps
            if bandwidths:
                value = parse_bandwidth(bandwidths[position], f"{self.text}: bw")
                bandwidth = int(value)
                if bandwidth != value or bandwidth <= 0:
                    raise self.error(
                        f"bw={bandwidths[position]!r}; expected a positive whole number of bytes/s"
                    )
            if alphas:
                alpha = parse_time_ps(alphas[position], f"{self.text}: alpha")
                if alpha < 0:
                    raise self.error(f"alpha={alphas[position]!r} is negative")
            result.append(LinkSpec(bandwidth, alpha))
        return result

    def finish(self) -> None:
        """Refuse arguments and options that nothing asked for."""
        for index in range(len(self.positional)):
            if index not in self._positions:
                raise self.error(f"argument {self.positional[index]!r} is one too many")
        for key in self.options:
            if key not in self._keys:
                close = get_close_matches(key, sorted(self._keys), n=1)
                hint = f"did you mean {close[0]!r}?" if close else "known: "
                known = "" if close else ", ".join(sorted(self._keys)) or "none"
                raise self.error(f"unknown option {key!r}; {hint}{known}")

    def _per_tier(self, key: str, count: int) -> list[str]:
        text = self.option(key)
        if text is None:
            return []
        values = text.split(":")
        if len(values) == 1:
            return values * count
        if len(values) != count:
            raise self.error(f"{key} lists {len(values)} values; expected 1 or {count}")
        return values

    def _integer(self, text: str, meaning: str, minimum: int) -> int:
        try:
            value = int(text)
        except ValueError:
            raise self.error(f"{meaning} is {text!r}; expected a whole number") from None
        if value < minimum:
            raise self.error(f"{meaning} is {value}; expected at least {minimum}")
        return value


def parse_yes_no(text: str, where: str) -> bool:
    """True for ``yes``, ``true`` or ``1``; False for ``no``, ``false`` or ``0``."""
    lowered = text.lower()
    if lowered in ("yes", "true", "1"):
        return True
    if lowered in ("no", "false", "0"):
        return False
    raise InputError(f"{text!r}; expected yes or no", field=where)


def parse_spec(text: str) -> Spec:
    """Take a name apart.

    Raises
    ------
    InputError
        If an argument is empty, an option is given twice, or a positional argument follows an
        option.
    """
    family, colon, tail = text.partition(":")
    positional: list[str] = []
    options: dict[str, str] = {}
    if colon and not tail.strip():
        raise InputError("ends with ':' but has no arguments", field=text)
    for part in tail.split(",") if colon else []:
        key, equals, value = part.strip().partition("=")
        if not key or (equals and not value):
            raise InputError(f"argument {part!r} is empty", field=text)
        if not equals:
            if options:
                raise InputError(f"argument {part!r} follows an option; put it first", field=text)
            positional.append(key)
        elif key in options:
            raise InputError(f"option {key!r} is given twice", field=text)
        else:
            options[key] = value
    return Spec(text, family.strip(), tuple(positional), options)
