"""Uneven links: factors per tier, per link, per group, and degraded ones.

A recipe is text like a network's name:

=============================  =====================================================================
``tier:dim0=1/3,dim1=2``       the bandwidth of all links of a tier times a factor
``log-uniform:LOW,HIGH``       a factor per cable, log-uniform between the two
``lognormal:SIGMA``            a factor per cable, exp(SIGMA * normal), median 1
``choice:1,1/2,1/4``           a factor per cable, each listed one equally likely
``group:KIND,LOW,HIGH``        a log-uniform factor per group (node, rack, ...) for the links in it
``degraded:COUNT,FACTOR``      COUNT random cables at FACTOR of their bandwidth
=============================  =====================================================================

``per=link`` draws for each direction by itself; ``of=latency`` multiplies the latency instead (the
tier recipe too); ``degraded`` takes ``what=npu`` to degrade all links of COUNT NPUs. Bandwidths
with a drawn factor are rounded to 1 MB/s and latencies to 1 ns, which also makes them the same on
every machine; with a fraction that the recipe states they are rounded to 1 byte/s and 1 ps.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from nestopt.core.errors import InputError, unknown_name
from nestopt.instances.spec import parse_spec

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nestopt.instances.network import Network
    from nestopt.instances.spec import Spec

__all__ = ["RECIPES", "apply_heterogeneity", "log_uniform", "parse_factor"]

RECIPES = ("tier", "log-uniform", "lognormal", "choice", "group", "degraded")
_GRAIN = {"bandwidth": 10**6, "latency": 1000}


def parse_factor(text: str, where: str) -> Fraction:
    """A positive factor, ``0.5`` or ``1/3``.

    Raises
    ------
    InputError
        If it is no number or not positive.
    """
    try:
        value = Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise InputError(f"{text!r} is no factor; expected 0.5 or 1/3", field=where) from None
    if value <= 0:
        raise InputError(f"{text!r}; expected a factor above zero", field=where)
    return value


def log_uniform(low: float, high: float, uniform: float) -> float:
    """The log-uniform value between `low` and `high` of a uniform number in [0, 1)."""
    return low * math.exp(uniform * math.log(high / low))


def apply_heterogeneity(network: Network, recipe: str, rng: np.random.Generator) -> Network:
    """The network with its bandwidths or latencies changed by a recipe (see the module).

    Raises
    ------
    UsageError
        If there is no such recipe.
    InputError
        If its parameters are wrong, or name a tier or group that the network lacks.
    """
    spec = parse_spec(recipe)
    if spec.family not in RECIPES:
        raise unknown_name("heterogeneity", spec.family, RECIPES)
    if spec.family == "tier":
        factors, what = _tier_factors(network, spec)
    else:
        what = spec.choice("of", ("bandwidth", "latency"), "bandwidth")
        draw = {
            "log-uniform": _log_uniform_factors,
            "lognormal": _lognormal_factors,
            "choice": _choice_factors,
            "group": _group_factors,
            "degraded": _degraded_factors,
        }[spec.family]
        factors = draw(network, spec, rng)
        spec.finish()
    return _scaled(network, factors, what)


def _scaled(network: Network, factors: list[Fraction | float], what: str) -> Network:
    """Multiplied values; drawn factors round to the grain, given fractions to the last unit."""
    old = network.bandwidth if what == "bandwidth" else network.alpha_ps

    def scaled(value: int, factor: Fraction | float) -> int:
        grain = 1 if isinstance(factor, Fraction) else _GRAIN[what]
        return max(grain, round(value * factor / grain) * grain) if value else 0

    new = np.array([scaled(v, f) for v, f in zip(old.tolist(), factors)], dtype=np.int64)
    if what == "bandwidth":
        return replace(network, bandwidth=new)
    return replace(network, alpha_ps=new)


def _tier_factors(network: Network, spec: Spec) -> tuple[list[Fraction | float], str]:
    options = dict(spec.options)
    what = options.pop("of", "bandwidth")
    if what not in _GRAIN:
        raise spec.error(f"of={what!r}; expected one of bandwidth, latency")
    if not options or spec.positional:
        raise spec.error("expected TIER=FACTOR pairs")
    known = sorted(set(network.tier))
    for tier in options:
        if tier not in known:
            raise spec.error(f"{network.name} has no tier {tier!r}; it has {', '.join(known)}")
    table = {tier: parse_factor(text, f"{spec.text}: {tier}") for tier, text in options.items()}
    return [table.get(tier, Fraction(1)) for tier in network.tier], what


def _units(network: Network, spec: Spec) -> NDArray[np.int64]:
    """For each link the number of the draw it takes: its cable's, or its own."""
    per = spec.choice("per", ("cable", "link"), "cable")
    return network.cables() if per == "cable" else np.arange(network.num_links)


def _range(spec: Spec, first: int) -> tuple[float, float]:
    low, high = (
        float(parse_factor(spec.argument(first + i, name), spec.text))
        for i, name in enumerate(("the lowest factor", "the highest factor"))
    )
    if low > high:
        raise spec.error(f"the lowest factor {low:g} is above the highest {high:g}")
    return low, high


def _spread(units: NDArray[np.int64], values: list[float]) -> list[Fraction | float]:
    return [values[unit] for unit in units.tolist()]


def _count(units: NDArray[np.int64]) -> int:
    return int(units.max()) + 1 if len(units) else 0


def _log_uniform_factors(
    network: Network, spec: Spec, rng: np.random.Generator
) -> list[Fraction | float]:
    low, high = _range(spec, 0)
    units = _units(network, spec)
    return _spread(units, [log_uniform(low, high, u) for u in rng.random(_count(units)).tolist()])


def _lognormal_factors(
    network: Network, spec: Spec, rng: np.random.Generator
) -> list[Fraction | float]:
    sigma = float(parse_factor(spec.argument(0, "sigma"), spec.text))
    units = _units(network, spec)
    normals = rng.standard_normal(_count(units)).tolist()
    return _spread(units, [math.exp(sigma * z) for z in normals])


def _choice_factors(
    network: Network, spec: Spec, rng: np.random.Generator
) -> list[Fraction | float]:
    texts = [spec.argument(i, "a factor") for i in range(max(1, len(spec.positional)))]
    factors = [parse_factor(text, spec.text) for text in texts]
    units = _units(network, spec)
    picks = rng.integers(0, len(factors), size=_count(units)).tolist()
    return [factors[picks[unit]] for unit in units.tolist()]


def _group_factors(
    network: Network, spec: Spec, rng: np.random.Generator
) -> list[Fraction | float]:
    kind = spec.argument(0, "the kind of group")
    low, high = _range(spec, 1)
    if kind not in network.groups:
        known = ", ".join(sorted(network.groups)) or "none"
        raise spec.error(f"{network.name} has no groups of kind {kind!r}; it has {known}")
    factors: list[Fraction | float] = [Fraction(1)] * network.num_links
    for group, uniform in zip(network.groups[kind], rng.random(len(network.groups[kind])).tolist()):
        members = set(group)
        factor = log_uniform(low, high, uniform)
        for link, (u, v) in enumerate(zip(network.src.tolist(), network.dst.tolist())):
            if u in members and v in members:
                factors[link] = factor
    return factors


def _degraded_factors(
    network: Network, spec: Spec, rng: np.random.Generator
) -> list[Fraction | float]:
    count = spec.integer(0, "the count", minimum=0)
    factor = parse_factor(spec.argument(1, "the factor"), spec.text)
    what = spec.choice("what", ("cable", "npu"), "cable")
    if what == "npu":
        total = len(network.npus)
        order = network.npus[rng.permutation(total)].tolist()
    else:
        cables = network.cables()
        total = _count(cables)
        order = rng.permutation(total).tolist()
    if count > total:
        raise spec.error(f"the count is {count}; {network.name} has {total} {what}s")
    chosen = set(order[:count])
    if what == "npu":
        hit = [
            u in chosen or v in chosen for u, v in zip(network.src.tolist(), network.dst.tolist())
        ]
    else:
        hit = [cable in chosen for cable in cables.tolist()]
    return [factor if each else Fraction(1) for each in hit]
