"""What a generator is asked for beyond the family: unevenness, failures, tenants, seed.

The options of ``nestopt generate`` and the suffix of a name are the same thing:
``torus2d:8x8+log-uniform:0.5,2+fail-npus:3+connected+seed:1`` names one network, everywhere. The
parts of a suffix are

- any recipe of `heterogeneity` (networks) or `trees` (clusters);
- ``fail:13,200`` or ``fail:0-7``: these devices (NPUs), by number;
- ``fail-npus:K``, ``fail-links:K``, ``fail-group:KIND,K``, ``fail-rates:NAME,days=D``;
- ``connected``: draw again until what is left is strongly connected;
- ``seed:N`` (default 0).

Parts inside parentheses belong to what is inside: ``of:(torus2d:4x4+lognormal:1)+fail-npus:1``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nestopt.core.errors import InputError, unknown_name
from nestopt.instances.failures import RATES, FailureModel
from nestopt.instances.spec import parse_spec

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ["Options", "numbers_of", "split_name"]

_RUN = re.compile(r"^(\d{1,9})(?:-(\d{1,9}))?$")

_SPLIT = re.compile(r"\+(?=[a-z])(?![^()]*\))")
_PARTS = ("fail", "fail-npus", "fail-links", "fail-group", "fail-rates", "connected", "seed")


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a generator.

    Attributes
    ----------
    seed : int
    heterogeneity : tuple of str
        Recipes, applied in order, each with its own random stream.
    fail_npus, fail_links : int
        Random failures; for a cluster its devices (links do not exist there).
    fail_groups : tuple of str
        ``KIND,K`` each: K groups of a kind fail (for a cluster the kind is a level's name).
    fail_rates : str or None
        Name of published rates (`nestopt.instances.failures.RATES`).
    days : float
        Days at these rates.
    connected : bool
        Draw failures until what is left is strongly connected.
    failed : tuple of int
        Numbers of the devices (NPUs) that have failed, ascending.
    """

    seed: int = 0
    heterogeneity: tuple[str, ...] = ()
    fail_npus: int = 0
    fail_links: int = 0
    fail_groups: tuple[str, ...] = ()
    fail_rates: str | None = None
    days: float = 0.0
    connected: bool = False
    failed: tuple[int, ...] = ()

    def failure_model(self) -> FailureModel:
        """What shall fail.

        Raises
        ------
        InputError, UsageError
            If a number is negative, a group malformed or the rates unknown.
        """
        groups = []
        for text in self.fail_groups:
            spec = parse_spec(f"fail-group:{text}")
            groups.append(
                (spec.argument(0, "the kind"), spec.integer(1, "the number", minimum=0, default=1))
            )
            spec.finish()
        return FailureModel(
            self.fail_npus, self.fail_links, tuple(groups), self.fail_rates, self.days
        )

    def suffix(self) -> str:
        """The options as the end of a name; empty for the defaults."""
        parts = list(self.heterogeneity)
        if self.failed:
            parts.append("fail:" + ",".join(map(str, self.failed)))
        if self.fail_npus:
            parts.append(f"fail-npus:{self.fail_npus}")
        if self.fail_links:
            parts.append(f"fail-links:{self.fail_links}")
        parts += [f"fail-group:{text}" for text in self.fail_groups]
        if self.fail_rates:
            parts.append(f"fail-rates:{self.fail_rates},days={self.days:g}")
        if self.connected:
            parts.append("connected")
        if self.seed:
            parts.append(f"seed:{self.seed}")
        return "".join(f"+{part}" for part in parts)


def split_name(name: str, recipes: Collection[str]) -> tuple[str, Options]:
    """A name's family part and the options of its suffix.

    Parameters
    ----------
    name : str
        ``FAMILY[:ARGUMENTS][+PART...]``.
    recipes : collection of str
        Names of the heterogeneity recipes that the caller understands.

    Raises
    ------
    UsageError
        If a part is unknown (with a suggestion).
    InputError
        If a part's parameters are wrong or it is given twice.
    """
    base, *parts = _SPLIT.split(name)
    recipe: list[str] = []
    groups: list[str] = []
    single: dict[str, int] = {}
    rates: str | None = None
    days = 0.0
    connected = False
    failed: tuple[int, ...] = ()
    for part in parts:
        spec = parse_spec(part)
        if spec.family in recipes:
            recipe.append(part)
        elif spec.family == "fail-group":
            groups.append(part.partition(":")[2])
        elif spec.family == "connected":
            spec.finish()
            connected = True
        elif spec.family == "fail-rates":
            rates = spec.argument(0, "the rates' name")
            if rates not in RATES:
                raise unknown_name("failure rates", rates, RATES)
            if spec.option("days") is None:
                raise spec.error("needs days=D")
            days = spec.option_number("days", 0.0, minimum=0.0)
            spec.finish()
        elif spec.family == "fail":
            if failed:
                raise InputError("fail is given twice", field=name)
            failed = numbers_of(part.partition(":")[2], name)
        elif spec.family in _PARTS:
            if spec.family in single:
                raise InputError(f"{spec.family} is given twice", field=name)
            single[spec.family] = spec.integer(0, "the number", minimum=0)
            spec.finish()
        else:
            raise unknown_name("part of a name", spec.family, [*recipes, *_PARTS])
    options = Options(
        seed=single.get("seed", 0),
        heterogeneity=tuple(recipe),
        fail_npus=single.get("fail-npus", 0),
        fail_links=single.get("fail-links", 0),
        fail_groups=tuple(groups),
        fail_rates=rates,
        days=days,
        connected=connected,
        failed=failed,
    )
    return base, options


def numbers_of(text: str, where: str) -> tuple[int, ...]:
    """Numbers of devices in text such as ``13,200`` or ``0-7:64``, ascending.

    Raises
    ------
    InputError
        If it holds anything else, or a number twice.
    """
    found: list[int] = []
    for run in re.split("[,:]", text):
        match = _RUN.match(run.strip())
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise InputError(
                f"fail:{text}: {run!r}; expected numbers of devices, such as 13,200 or 0-7",
                field=where,
            )
        found += range(int(match[1]), int(match[2] or match[1]) + 1)
    if len(set(found)) < len(found):
        raise InputError(f"fail:{text}: a device is listed twice", field=where)
    return tuple(sorted(found))
