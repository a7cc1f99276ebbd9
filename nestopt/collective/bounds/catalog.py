"""All lower bounds of an instance, the best first."""

from __future__ import annotations

import math
import time
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from nestopt.collective.bounds._budget import Budget
from nestopt.collective.bounds._kernels import FAR
from nestopt.collective.bounds._model import Network, reverse_instance
from nestopt.collective.bounds.cuts import best_cut, ingress_bound
from nestopt.collective.bounds.deliveries import delivery_bound
from nestopt.collective.bounds.distances import distance_bound
from nestopt.collective.bounds.growth import growth_bound
from nestopt.collective.bounds.merging import merging_bound
from nestopt.collective.bounds.partitions import partition_bound
from nestopt.collective.bounds.prices import exact_fluid, flow_bound, work_bound
from nestopt.collective.bounds.spreads import spread_bound
from nestopt.collective.model.connectivity import find_separation
from nestopt.core.stop import noticed

if TYPE_CHECKING:
    from collections.abc import Callable

    from nestopt.collective.model.instance import CollectiveInstance
    from nestopt.core.options import SolveOptions

    _Finder = Callable[[Network, Budget], dict[str, Any] | None]

__all__ = ["BOUNDS", "all_bounds", "best_bound"]

BOUNDS = (
    "distance",
    "ingress",
    "egress",
    "cut",
    "delivery",
    "merging",
    "work",
    "partition",
    "spread",
    "growth",
    "flow",
)
_MOST_LINKS_TWICE = 200
# what holds only where partial sums move; all else holds where they are copied, too
_ONLY_MOVED = "sums moved"
_ALL = "sums copied or moved"
_EXPLAIN = {
    "distance": "shortest path, latency included, between two NPUs that must exchange a chunk",
    "ingress": "chunks that must enter one NPU over its links",
    "egress": "chunks that must leave one NPU over its links",
    "cut": "chunks that must cross the bottleneck cut",
    "delivery": "chunks that must cross a cut in time to reach one NPU",
    "merging": "sums that come to one NPU before any message can hold two contributions",
    "partition": "chunks that must pass between the blocks of a partition",
    "spread": "chunks that enter a block late and must still reach every member of it",
    "growth": "a chunk comes from few nodes to many no faster than each can send it on",
    "work": "chunks times their shortest distance over the total capacity",
    "flow": "multicommodity-flow prices on links",
}


def all_bounds(
    instance: CollectiveInstance, options: SolveOptions | None = None
) -> list[dict[str, Any]]:
    """Every lower bound of an instance, the best first.

    Parameters
    ----------
    instance : CollectiveInstance
    options : SolveOptions, optional
        Its time limit, if any, bounds the search for good cuts and prices, not their validity.

    Returns
    -------
    list of dict
        ``name``, ``value`` (picoseconds; ``inf`` if the instance is infeasible), ``fluid`` (the
        value with chunks divided at will and without the latency that a link is free in, as an
        exact fraction of picoseconds in text from the input's own bandwidths, or None), ``witness``
        (see `verify_witness`), ``about``, ``seconds``, ``space`` (for which schedules of an
        All-Reduce it holds: ``sums copied or moved`` or ``sums moved``), and
        ``note`` where something was left out.
    """
    limit = math.inf if options is None else options.time_limit
    tell = None if options is None else options.progress
    return _bounds(instance, BOUNDS, Budget(60.0 if math.isinf(limit) else limit, limit), tell)


def best_bound(
    instance: CollectiveInstance,
    *,
    effort: float = 10.0,
    time_limit: float = math.inf,
    only: tuple[str, ...] = BOUNDS,
) -> dict[str, Any]:
    """The best lower bound that is cheap to get; see `all_bounds` for the fields.

    The minimum cuts and the flow prices are tried only if a rough estimate says that they are worth
    it.

    Parameters
    ----------
    effort : float
        Nominal seconds, counted by the work done: the same bound on any machine.
    time_limit : float
        Wall-clock seconds that cut the search short.
    only : tuple of str
        Names of `BOUNDS`; the others are left out.
    """
    effort = min(effort, time_limit)
    names = ["distance", "ingress", "egress", "merging", "work", "partition", "spread", "growth"]
    parts, topology = instance.collective.parts, instance.topology
    flows = sum(len(part.npus) if part.root is None else 1 for part in parts)
    if flows * topology.num_links <= 2 * 10**6 * effort:
        names += ["cut", "delivery"]
    pairs = sum(len(part.npus) ** 2 for part in parts if part.pattern == "all-to-all")
    if pairs * topology.num_links <= 10**8 * effort and len(instance.topology.src) <= 20_000:
        names.append("flow")
    chosen = tuple(name for name in names if name in only)
    return _bounds(instance, chosen, Budget(effort, time_limit))[0]


def _bounds(
    instance: CollectiveInstance,
    names: tuple[str, ...],
    budget: Budget,
    tell: Callable[[float, float | None, float, str], Any] | None = None,
) -> list[dict[str, Any]]:
    separated = find_separation(instance)
    if separated is not None:
        witness = {
            "kind": "separation",
            "inside": separated.inside.tolist(),
            "outside": separated.outside.tolist(),
            "chunk": separated.chunk,
            "source": separated.source,
            "target": separated.target,
            "message": separated.message,
        }
        failed = {"name": "separation", "value": math.inf, "fluid": None, "witness": witness}
        return [failed | {"about": separated.message, "seconds": 0.0}]
    forward = Network(instance)
    if not forward.parts:
        return [_trivial("nothing has to move")]
    backward = Network(reverse_instance(instance))
    rows: list[dict[str, Any]] = []
    begin = time.perf_counter()
    for name in names:
        start = time.perf_counter()
        try:
            row = _FINDERS[name](forward, backward, budget)
        except KeyboardInterrupt:
            if not rows:
                raise
            # what was found before time was up, or before the interrupt, holds
            noticed()
            break
        if row is not None and 0 <= row["value"] < FAR:
            if row["kind"] == "prices":
                row["fluid"] = exact_fluid(forward, row["prices"]) or row["fluid"]
            rows.append(
                {
                    "name": name,
                    "value": int(row["value"]),
                    "fluid": str(row["fluid"]) if isinstance(row.get("fluid"), Fraction) else None,
                    "witness": _witness(instance, row),
                    "about": _EXPLAIN[name],
                    "seconds": time.perf_counter() - start,
                    "space": _ONLY_MOVED if "root" in row else _ALL,
                }
            )
            if tell is not None:
                tell(time.perf_counter() - begin, None, rows[-1]["value"], name)
            if row.get("exact") is False:
                rows[-1]["note"] = "a better cut may exist: not every cut was tried"
    # of equal bounds the one that is easiest to check by hand
    rows.sort(key=lambda row: (-row["value"], BOUNDS.index(row["name"])))
    return rows or [_trivial("no bound could be afforded")]


def _trivial(why: str) -> dict[str, Any]:
    witness = {"kind": "trivial", "value": 0}
    return {
        "name": "trivial",
        "value": 0,
        "fluid": None,
        "witness": witness,
        "about": why,
        "seconds": 0.0,
        "space": _ALL,
    }


def _either(
    finder: _Finder, forward: Network, backward: Network, budget: Budget
) -> dict[str, Any] | None:
    """The better of a finder's bounds on the instance and on its time-reversed copy."""
    found, other = finder(forward, budget), finder(backward, budget)
    if other is not None and (found is None or other["value"] > found["value"]):
        return other | {"backward": True}
    return found


def _by_prices(
    finder: _Finder, forward: Network, backward: Network, budget: Budget
) -> dict[str, Any] | None:
    """The better of the prices found in both directions of time: prices hold in either.

    Several prices are optimal for the linear program, and not all leave the links idle as long.
    """
    if forward.topology.num_links > _MOST_LINKS_TWICE:
        return finder(forward, budget)
    found = _either(finder, forward, backward, budget)
    return None if found is None else found | {"backward": False}


_FINDERS: dict[str, Callable[[Network, Network, Budget], dict[str, Any] | None]] = {
    "distance": lambda forward, _, budget: distance_bound(forward, budget),
    "ingress": lambda forward, _, budget: ingress_bound(forward, budget),
    "egress": lambda _, backward, budget: (
        None if (row := ingress_bound(backward, budget)) is None else row | {"backward": True}
    ),
    "cut": lambda forward, backward, budget: _either(best_cut, forward, backward, budget),
    "delivery": lambda forward, backward, budget: _either(
        delivery_bound, forward, backward, budget
    ),
    "merging": lambda forward, _, budget: merging_bound(forward, budget),
    "partition": lambda forward, backward, budget: _by_prices(
        partition_bound, forward, backward, budget
    ),
    "spread": lambda forward, backward, budget: _either(spread_bound, forward, backward, budget),
    "growth": lambda forward, backward, budget: _either(growth_bound, forward, backward, budget),
    "work": lambda forward, _, budget: work_bound(forward),
    "flow": lambda forward, backward, budget: _by_prices(flow_bound, forward, backward, budget),
}


def _witness(instance: CollectiveInstance, row: dict[str, Any]) -> dict[str, Any]:
    """The JSON-ready witness of a bound, in the instance's own direction of time."""
    kind = row["kind"]
    witness: dict[str, Any] = {"kind": kind, "value": int(row["value"])}
    if kind == "distance":
        numbers = ("part", "size", "source", "target", "root")
        return witness | {key: int(row[key]) for key in numbers if key in row}
    if kind == "prices":
        prices = row["prices"]
        same = len(prices) > 0 and bool((prices == prices[0]).all())
        witness |= {"prices": int(prices[0]) if same else prices.tolist()}
        witness |= {"cost": int(row["cost"]), "sold": int(row["sold"])}
        witness["arithmetic"] = (
            f"moving all chunks costs at least {row['cost']}; the links sell at most "
            f"{row['sold']} a ps: {row['cost']} / {row['sold']} ps, whole chunks and latency "
            f"counted {row['value']} ps"
        )
        return witness
    if kind == "merging":
        witness |= {key: int(row[key]) for key in ("part", "target", "merged", "sums")}
        witness["arithmetic"] = (
            f"{row['sums']} sums end at node {row['target']}; what comes before {row['merged']} ps "
            f"brings one contribution at a time; all can be there at {row['value']} ps and no "
            "earlier"
        )
        return witness
    if kind == "partition":
        labels = row["labels"]
        count = int(labels.max()) + 1
        witness["blocks"] = [np.flatnonzero(labels == b).tolist() for b in range(count)]
        witness |= {"prices": row["prices"].tolist()}
        witness |= {"cost": int(row["cost"]), "sold": int(row["sold"])}
        witness["arithmetic"] = (
            f"between {count} blocks all chunks cost at least {row['cost']}; the links between "
            f"them sell at most {row['sold']} a ps: {row['value']} ps, whole chunks and latency "
            "counted"
        )
        return witness
    if kind == "spread":
        return witness | _spread_witness(row)
    if kind == "growth":
        return witness | _growth_witness(row)
    backward = bool(row.get("backward", False))
    inside = ~row["inside"] if backward and kind == "cut" else row["inside"]
    listed = np.flatnonzero(inside)
    side = "inside"
    if len(listed) * 2 > len(inside):
        listed, side = np.flatnonzero(~inside), "outside"
    if kind == "delivery":
        witness |= {key: row[key] for key in ("part", "target", "need", "sources")}
        witness |= {"backward": backward, "side": side, "nodes": listed.tolist()}
        witness["links"] = row["links"].tolist()
        witness["arithmetic"] = (
            f"{row['need']} chunks must cross {len(row['links'])} links and reach node "
            f"{row['target']}{' in reversed time' if backward else ''}; they can all have done so "
            f"at {row['value']} ps and no earlier"
        )
        return witness
    keys = ("mode", "size", "need", "threshold", "node", "part")
    witness |= {key: row[key] for key in keys if row.get(key) is not None}
    witness |= {"backward": backward, "side": side, "nodes": listed.tolist()}
    witness["links"] = row["links"].tolist()
    what = "bytes" if row["mode"] == "bytes" else f"chunks of {row['size']} bytes"
    late = f" not before {row['threshold']} ps" if row.get("threshold") else ""
    when = "in reversed time" if backward and late else ""
    witness["arithmetic"] = (
        f"{row['need']} {what} must cross {len(row['links'])} links{late}{when}; "
        f"they can all have done so at {row['value']} ps and no earlier"
    )
    return witness


def _growth_witness(row: dict[str, Any]) -> dict[str, Any]:
    backward = bool(row.get("backward", False))
    found: dict[str, Any] = {key: int(row[key]) for key in ("part", "node", "begin")}
    found["backward"] = backward
    when = " in reversed time" if backward else ""
    found["arithmetic"] = (
        f"a chunk of node {row['node']} starts{when} at {row['begin']} ps or later; passed on as "
        f"fast as any node can, it has come to all at {row['value']} ps and no earlier"
    )
    return found


def _spread_witness(row: dict[str, Any]) -> dict[str, Any]:
    backward = bool(row.get("backward", False))
    found: dict[str, Any] = {key: int(row[key]) for key in ("part", "moment", "need")}
    found |= {"backward": backward, "nodes": np.flatnonzero(row["inside"]).tolist()}
    begin = ""
    if "other" in row:
        found |= {key: int(row[key]) for key in ("early", "left")}
        found |= {"other": np.flatnonzero(row["other"]).tolist()}
        begin = (
            f"at most {row['early']} of them have all contributions of the other block sent "
            f"before {row['left']} ps; "
        )
    when = " in reversed time" if backward else ""
    found["arithmetic"] = (
        f"{row['need']} chunks must come to a block{when}; {begin}those that come at "
        f"{row['moment']} ps or later can have reached every member at {row['value']} ps and no "
        "earlier"
    )
    return found
