"""Communication classes: the finitely many prices that a family of groups can have on a cluster.

A class is a profile with the conditions under which a family costs no more: how far its groups
reach (``span``), how many of them cross an uplink, how their members are spread. The
conditions are linear in the numbers of members that each family group has in each group of the
tree, so a model that derives those numbers from its devices can charge the exact price. The classes
are enumerated group by group; what a price does not depend on is dropped from the conditions
(which merges most classes).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from nestopt.formulations.placement.spreads import spread_families, spreads_of_group
from nestopt.placement.pricing.comm import family_profiles

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from numpy.typing import NDArray

    from nestopt.formulations.placement.spreads import Reach
    from nestopt.formulations.placement.tree import Tree, TreeGroup

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

__all__ = ["TALLIES", "FamilyClass", "family_classes"]

_LARGE = 1e30
_SLACK = 1 + 1e-9


TALLIES: dict[str, Callable[[int, int], int]] = {
    "cross": lambda inside, size: 1,
    "inside": lambda inside, size: inside,
    "volume": lambda inside, size: inside * (size - inside),
}
"""What a family group that crosses an uplink adds to a sum, by its members inside and in all."""


@dataclass(frozen=True, eq=False)
class FamilyClass:
    """A profile and the conditions that guarantee it; None: no condition.

    Attributes
    ----------
    size : int
        Members of a family group, n.
    profile : float array (5,)
        As in `nestopt.placement.pricing.comm`; entries that no price needs are huge or infinite.
    span : int
        No family group reaches beyond a group of this level.
    alpha, ring, direct : float or None
        Bounds on these entries of the profile.
    counts : tuple of int or None
        By level, the members that a group of the tree has of each family group it touches.
    latency, rate : tuple of float
        With `counts`: bounds, by level, on latency and on seconds per byte (bdev).
    """

    size: int
    profile: Floats
    span: int
    alpha: float | None
    ring: float | None
    direct: float | None
    counts: tuple[int, ...] | None
    latency: tuple[float, ...]
    rate: tuple[float, ...]

    def allows_group(self, group: TreeGroup) -> bool:
        """Whether the family may have members in a group of the tree."""
        if group.level > self.span:
            return True
        n, pinv = self.size, group.port_inverse
        limits: list[tuple[float, float | None]] = [
            (group.latency, self.alpha),
            (pinv, self.ring),
            ((n - 1) / n * pinv if group.level == 0 else 0.0, self.direct),
        ]
        if self.counts is not None:
            limits += [(group.latency, self.latency[group.level]), (pinv, self.rate[group.level])]
        return all(limit is None or value <= limit * _SLACK for value, limit in limits)

    def allows_count(self, group: TreeGroup, parent: TreeGroup | None, members: int) -> bool:
        """Whether a family group may have so many members (1 to n) in a group of the tree."""
        if group.level > self.span or parent is None:
            return True
        if self.counts is not None and members != self.counts[group.level]:
            return False
        if members == self.size:
            return True
        if group.level == self.span:
            return False
        away = (self.size - members) / self.size * parent.port_inverse
        return self.direct is None or away <= self.direct * _SLACK

    def most(self, group: TreeGroup, what: str) -> float:
        """Bound on a sum over the family groups that cross the uplink of a group of the tree.

        `what` is ``cross`` (their number), ``inside`` (their members inside) or ``volume`` (members
        inside times members outside), as in `TALLIES`.
        """
        limit: float | None
        if what == "cross":
            limit = self.ring
        elif what == "volume":
            limit = None if self.direct is None else self.direct * self.size
        else:
            below = self.counts is not None and group.level < self.span
            limit = self.rate[group.level + 1] if below else None
        if limit is None or group.uplink_inverse == 0 or limit >= _LARGE:
            return math.inf
        return math.floor(limit / group.uplink_inverse * _SLACK)


def family_classes(
    tree: Tree, groups: int, size: int, signature: Callable[[Floats], Hashable]
) -> tuple[FamilyClass, ...]:
    """All classes of families of `groups` groups of `size` members.

    Parameters
    ----------
    signature : callable
        What a profile costs; profiles of equal signature are the same to the model.

    Raises
    ------
    NestoptError
        If the family can be spread in too many ways to enumerate.
    """
    kept: dict[Hashable, list[FamilyClass]] = {}
    # the loosest first: what they imply need not be looked at
    for tight in _unpriced(tree, groups, size):
        tree.check_time()
        price = signature(tight.profile)
        same = kept.setdefault(price, [])
        if not any(_implies(tree, tight, other) for other in same):
            lifted = _lift(tight, price, signature)
            same[:] = [k for k in same if not _implies(tree, k, lifted)] + [lifted]
    return tuple(k for same in kept.values() for k in same)


def _unpriced(tree: Tree, groups: int, size: int) -> list[FamilyClass]:
    """The classes of families by their conditions alone, the loosest first."""
    known: list[FamilyClass] | None = tree.known.get(("classes", groups, size))
    if known is not None:
        return known
    spreads = spreads_of_group(tree, size, groups)
    found: dict[Hashable, FamilyClass] = {}
    for reach, crossing, volume, chosen in spread_families(tree, spreads, groups):
        tags = _conditions(tree, size, reach, crossing, volume)
        if tags not in found:
            devices = [
                [tree.cells[c].devices[0] for c, k in enumerate(spreads[i]) for _ in range(k)]
                for i in chosen
            ]
            line = np.arange(tree.cluster.num_devices, dtype=np.int64)
            start = np.zeros(1, dtype=np.int64)
            profile = family_profiles(tree.network, line, start, np.array(devices))[0]
            found[tags] = FamilyClass(size, profile, *tags)
    loosest = sorted(found.values(), key=lambda c: (-c.span, -c.profile[1], -c.profile[2]))
    tree.known["classes", groups, size] = loosest
    return loosest


def _conditions(
    tree: Tree, size: int, reach: Reach, crossing: Ints, volume: Ints
) -> tuple[Any, ...]:
    """The fields of `FamilyClass` behind its profile (``MODEL.md``, section 2)."""
    span = reach.span
    rates, port, busiest = [], 0.0, 0.0
    ring, direct = max(reach.port[: span + 1]), reach.away
    for level in range(span + 1):
        port = max(port, reach.port[level])
        rates.append(max(port, busiest))
        for g in tree.groups:
            if g.level == level < span:
                across = int(crossing[g.index])
                ring = max(ring, across * g.uplink_inverse)
                direct = max(direct, int(volume[g.index]) / size * g.uplink_inverse)
                if reach.counts is not None:
                    busiest = max(busiest, reach.counts[level] * across * g.uplink_inverse)
    counts = reach.counts
    return (
        span, max(reach.latency[: span + 1]), ring, direct,
        None if counts is None else counts[: span + 1],
        () if counts is None else reach.latency[: span + 1],
        () if counts is None else tuple(rates),
    )  # fmt: skip


def _lift(
    found: FamilyClass, wanted: Hashable, signature: Callable[[Floats], Hashable]
) -> FamilyClass:
    """The class without the conditions that its price does not depend on."""
    profile = found.profile.copy()

    def lifted(entries: Sequence[int], value: float) -> bool:
        nonlocal profile
        trial = profile.copy()
        trial[list(entries)] = value
        if signature(trial) == wanted:
            profile = trial
            return True
        return False

    hierarchical = math.isfinite(profile[3]) and not lifted((3, 4), math.inf)
    direct = None if lifted((2,), _LARGE) else found.direct
    ring = None if lifted((1,), _LARGE) else found.ring
    alpha = None if lifted((0,), _LARGE) else found.alpha
    return FamilyClass(
        found.size, profile, found.span, alpha, ring, direct,
        found.counts if hierarchical else None,
        found.latency if hierarchical else (),
        found.rate if hierarchical else (),
    )  # fmt: skip


def _implies(tree: Tree, tight: FamilyClass, loose: FamilyClass) -> bool:
    """Whether families that keep the conditions of `tight` keep those of `loose`."""
    if tight.span > loose.span or loose.counts is not None:
        return False
    for a, b in (
        (tight.alpha, loose.alpha),
        (tight.ring, loose.ring),
        (tight.direct, loose.direct),
    ):
        if b is not None and (a is None or a > b):
            return False
    between = [g for g in tree.groups if tight.span < g.level <= loose.span]
    return all(loose.allows_group(g) for g in between)
