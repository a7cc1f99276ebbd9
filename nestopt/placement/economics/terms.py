"""What a user says about money, energy and failures: numbers, or text with a unit."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

from nestopt.core.errors import InputError
from nestopt.core.units import parse_power, parse_time
from nestopt.placement.economics.reliability import FailureRates

__all__ = ["CHECKPOINT", "RESTART", "Terms", "parse_tokens"]

CHECKPOINT, RESTART = 60.0, 600.0
"""Seconds that a checkpoint stops a job, and of a restart, where nobody says more: assumed."""

_THOUSANDS = {"": 0, "K": 3, "M": 6, "B": 9, "G": 9, "T": 12, "P": 15}
_TOKENS = re.compile(r"\s*(\d{1,20}(?:\.\d{1,20})?(?:[eE]\+?\d{1,2})?)\s*([KMBGTPkmbgtp]?)\s*")


def parse_tokens(value: str | float, field: str = "tokens") -> float:
    """A number of tokens: ``15e12``, ``"15T"``, ``"300 B"``.

    Raises
    ------
    InputError
        If it is no positive number.
    """
    number = math.nan
    if isinstance(value, str):
        match = _TOKENS.fullmatch(value)
        if match:
            number = float(match[1]) * 10.0 ** _THOUSANDS[match[2].upper()]
    elif not isinstance(value, bool):
        number = float(value)
    if not 0 < number < 1e18:
        raise InputError(
            f"{value!r}; expected a positive number of tokens, such as 15T or 300B", field=field
        )
    return number


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms of a report.

    Attributes
    ----------
    tokens : float
        How many the model is trained on.
    price : float or None
        Money for a device and hour.
    power : float or None
        Watts that a device draws while it works, with its share of the rest.
    failures : FailureRates or None
    checkpoint, restart, repair : float
        Seconds: of a checkpoint that stops the job, of a restart, of the repair of a node.
    spares : int
        Nodes beyond the cluster's, paid for, that take the place of nodes under repair.
    """

    tokens: float
    price: float | None = None
    power: float | None = None
    failures: FailureRates | None = None
    checkpoint: float = CHECKPOINT
    restart: float = RESTART
    repair: float = 0.0
    spares: int = 0

    @classmethod
    def of(
        cls,
        tokens: str | float,
        *,
        price: str | float | None = None,
        power: str | float | None = None,
        failures: str | float | FailureRates | None = None,
        checkpoint: str | float = CHECKPOINT,
        restart: str | float = RESTART,
        repair: str | float = 0.0,
        spares: str | int = 0,
    ) -> Terms:
        """Terms from numbers or text.

        Raises
        ------
        InputError
            Naming the term, the value and what was expected.
        UsageError
            If the failure rates' name is unknown (with a suggestion).
        """
        rates = failures
        if rates is not None and not isinstance(rates, FailureRates):
            rates = FailureRates.of(rates)
        return cls(
            parse_tokens(tokens),
            None if price is None else _amount(price, "price"),
            None if power is None else _positive(parse_power(power, "power"), power, "power"),
            rates,
            _positive(parse_time(checkpoint, "checkpoint"), checkpoint, "checkpoint"),
            _positive(parse_time(restart, "restart"), restart, "restart"),
            _positive(parse_time(repair, "repair"), repair, "repair"),
            _count(spares, "spares"),
        )

    def to_json(self) -> dict[str, Any]:
        """The terms as JSON; the rates by where they are from."""
        rates = self.failures
        return {
            "tokens": self.tokens,
            "price": self.price,
            "power": self.power,
            "failures": None if rates is None else rates.source,
            "checkpoint": self.checkpoint,
            "restart": self.restart,
            "repair": self.repair,
            "spares": self.spares,
        }


def _positive(number: float, value: Any, field: str) -> float:
    if not 0 <= number < math.inf:
        raise InputError(f"{value!r}; expected a number of at least 0", field=field)
    return number


def _amount(value: str | float, field: str) -> float:
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise InputError(
            f"{value!r}; expected money for a device and hour, such as 2.5", field=field
        )
    return number


def _count(value: str | int, field: str) -> int:
    try:
        number = -1 if isinstance(value, (bool, float)) else int(value)
    except ValueError:
        number = -1
    if not 0 <= number < 10**6:
        raise InputError(f"{value!r}; expected a number of nodes, 0 or more", field=field)
    return number
