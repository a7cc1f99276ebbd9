"""What prices depend on, derived from the devices of a plan's stages.

The members that each family group has in each group of the tree (``member``), the class of every
family (``comm``), the type set (``types``) and the class of every boundary (``boundary``). All this
is linear in binaries and the same for both solvers; what things cost is each model's own.
"""

from __future__ import annotations

from itertools import permutations
from typing import TYPE_CHECKING, Any

from nestopt.formulations.families import family
from nestopt.formulations.placement.choices import PlacementChoices
from nestopt.formulations.placement.classes import TALLIES
from nestopt.formulations.placement.config import AXES, DENSE

if TYPE_CHECKING:
    from nestopt.formulations.placement.config import Family, GridChoice
    from nestopt.formulations.placement.tree import TreeGroup

__all__ = ["PlacementCommunication"]


class PlacementCommunication(PlacementChoices):
    """The families of communication classes, type sets and boundaries."""

    @family
    def add_members(self) -> None:
        """Count the members that every family group has in every group of the tree."""
        for p in self.positions:
            for g in self.scenario.grids:
                for f in g.families:
                    for h in self.scenario.watched(f):
                        for n, members in enumerate(f.groups):
                            counts = self._counts(p, g.index, f.index, n, h)
                            key = (p, g.index, f.index, n, h.index)
                            self._add(
                                self._sum(counts.values()) == self.has_grid(p, g), "members", *key
                            )
                            inside = self._sum(self.in_group(p, g, i, h) for i in members)
                            self._add(
                                self._sum(v * x for v, x in counts.items()) == inside,
                                "members_inside", *key,
                            )  # fmt: skip

    def _counts(self, p: int, g: int, f: int, n: int, group: TreeGroup) -> dict[int, Any]:
        """By number of members inside, the variable that says it."""
        found: dict[int, Any] = {}
        while (key := (p, g, f, n, group.index, len(found))) in self.member:
            found[len(found)] = self.member[key]
        return found

    @family
    def add_communication_classes(self) -> None:
        """Every family has one class, whose conditions its members keep."""
        for p in self.positions:
            for g in self.scenario.grids:
                for f in g.families:
                    key = (p, g.index, f.index)
                    classes = [self.comm[(*key, k)] for k in range(len(f.classes))]
                    self._add(self._sum(classes) == self.has_grid(p, g), "comm", *key)
                    for h in self.data.groups:
                        most = min(g.roles, h.size)
                        allowed = [c.allows_group(h) for c in f.classes]
                        if not all(allowed):
                            room = self._sum(most * x for x, ok in zip(classes, allowed) if ok)
                            self._add(self.devices_in(p, g, h) <= room, "comm_group", *key, h.index)
                    for h in self.scenario.watched(f):
                        self._add_class_counts(key, g, h, classes)

    def _add_class_counts(
        self, key: tuple[int, int, int], choice: GridChoice, h: TreeGroup, classes: list[Any]
    ) -> None:
        """A family's members in one group of the tree are as its class says."""
        p, g, f = key
        family = next(x for x in choice.families if x.index == f)
        counts = [self._counts(p, g, f, n, h) for n in range(len(family.groups))]
        for v in range(1, min(family.size, h.size) + 1):
            allowed = [c.allows_count(h, self.data.parent(h), v) for c in family.classes]
            if not all(allowed):
                chosen = self._sum(x for x, ok in zip(classes, allowed) if ok)
                for n, by_count in enumerate(counts):
                    self._add(by_count[v] <= chosen, "comm_count", *key, h.index, n, v)
        for what, tally in TALLIES.items():
            bounds = self.scenario.tallied(family, h, what)
            if bounds:
                total = self._sum(
                    tally(v, family.size) * x
                    for by_count in counts
                    for v, x in by_count.items()
                    if 0 < v < family.size
                )
                room = self._sum(b * x for b, x in zip(bounds, classes))
                self._add(total <= room, "comm", what, *key, h.index)

    @family
    def add_crossing_families(self) -> None:
        """Implied: groups over X, Y, Z and dense ones meet in one device, so one spreads the other.

        Where every group of one family stays inside a group of the tree, each that is inside brings
        one member of every group of the other family that it meets; so these have equally many
        members there.
        """
        for p in self.positions:
            for g in self.scenario.grids:
                crossing = [f for f in g.families if f.index in (*AXES, DENSE)]
                for one, other in permutations(crossing, 2):
                    self._add_compatible_classes(p, g.index, one, other)
                    blocks = one.meets(other)
                    for h in self.scenario.watched(other):
                        near = self._sum(
                            self.comm[p, g.index, one.index, k]
                            for k, c in enumerate(one.classes)
                            if c.span <= h.level
                        )
                        for first, *rest in blocks:
                            counts = self._counts(p, g.index, other.index, first, h)
                            for n in rest:
                                for v, x in self._counts(p, g.index, other.index, n, h).items():
                                    self._add(
                                        x <= counts[v] + 1 - near,
                                        "crossing_families",
                                        p, g.index, one.index, other.index, n, h.index, v,
                                    )  # fmt: skip

    def _add_compatible_classes(self, p: int, g: int, one: Family, other: Family) -> None:
        """A class of one family comes with a class of the other that it can go with."""
        for a in range(len(one.classes)):
            fitting = [
                self.comm[p, g, other.index, b]
                for b in range(len(other.classes))
                if self.scenario.compatible(one, a, other, b)
            ]
            if len(fitting) < len(other.classes):
                self._add(
                    self.comm[p, g, one.index, a] <= self._sum(fitting),
                    "compatible_classes", p, g, one.index, other.index, a,
                )  # fmt: skip

    @family
    def add_type_sets(self) -> None:
        """A stage has the set of types of its devices."""
        for p in self.positions:
            sets = self._sum(self.types[p, y] for y in range(len(self.data.type_sets)))
            self._add(sets == self.use[p], "type_set", p)
            for g in self.scenario.grids:
                for cell in self.data.cells:
                    kind = self.data.cluster.types[cell.type]
                    having = self._sum(
                        self.types[p, y] for y, ts in enumerate(self.data.type_sets) if kind in ts
                    )
                    if len(self.data.type_sets) > 1:
                        for i in range(g.roles):
                            self._add(
                                self.role[p, g.index, i, cell.index] <= having,
                                "type_set_of", p, g.index, i, cell.index,
                            )  # fmt: skip

    @family
    def add_boundary_levels(self) -> None:
        """A boundary between stages in use has one class, of a level that every replica keeps to.

        Below that level each replica's devices of both stages are in the group of its first one.
        """
        classes = self.scenario.boundary_classes
        for p in range(self.scenario.positions - 1):
            chosen = self._sum(self.boundary[p, k] for k in range(len(classes)))
            self._add(chosen == self.use[p + 1], "boundary", p)
            for h in self.data.groups:
                if h.parent < 0:
                    continue
                far = 1 - self._sum(
                    self.boundary[p, k] for k, c in enumerate(classes) if c[0] <= h.level
                )
                for r in range(self.scenario.replicas):
                    first = self._rank_in(p, r, 0, h)
                    for q in (p, p + 1):
                        for j in range(q == p, self.scenario.widest):
                            self._add(
                                self._rank_in(q, r, j, h) <= first + far,
                                "boundary_level", p, h.index, r, q, j,
                            )  # fmt: skip

    def _rank_in(self, position: int, replica: int, rank: int, group: TreeGroup) -> Any:
        """Whether a stage has a rank, and its device of a replica is in a group of the tree."""
        return self._sum(
            self.in_group(position, g, replica * g.grid.width + rank, group)
            for g in self.scenario.grids
            if rank < g.grid.width
        )

    @family
    def add_boundary_rates(self) -> None:
        """The devices on both sides of a boundary are as good as its class says."""
        for p in range(self.scenario.positions - 1):
            for q in (p, p + 1):
                for g in self.scenario.grids:
                    for h in self.data.groups:
                        most = min(g.roles, h.size)
                        rooms = self.scenario.boundary_room(g, h)
                        if min(rooms) == most:
                            continue
                        room = self._sum(x * self.boundary[p, k] for k, x in enumerate(rooms))
                        if q == p:
                            room += most * (1 - self.use[p + 1])
                        self._add(
                            self.devices_in(q, g, h) <= room,
                            "boundary_rate", p, q, g.index, h.index,
                        )  # fmt: skip
