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
        r"""Count the members that every family group has in every group of the tree.

        .. math:: \sum_{v} \mathit{member}_{p,g,f,n,h,v} = \mathit{grid}_{p,g}, \qquad \sum_{v}
            v\, \mathit{member}_{p,g,f,n,h,v} = \sum_{i \in n} \sum_{a \in h}
            \mathit{role}_{p,g,i,a} \qquad \forall p, g, f, n, h

        ``member[p, g, f, n, h, v]`` group n of family f (tensor axis, context, expert, replicas)
        has v devices in group h of the tree. Only for groups h in which some class restricts the
        count.

        Tight: one binary for each count lets a class exclude single counts.
        """
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
        r"""Every family has one class, whose conditions its members keep.

        .. math:: \sum_{k} \mathit{comm}_{p,g,f,k} = \mathit{grid}_{p,g}, \qquad
            \mathit{member}_{p,g,f,n,h,v} \le \sum_{k \text{ allows } v \text{ in } h}
            \mathit{comm}_{p,g,f,k}

        .. math:: \sum_{i,\,a \in h} \mathit{role}_{p,g,i,a} \le \min(|I_g|, |h|) \sum_{k \text{
            allows } h} \mathit{comm}_{p,g,f,k}, \qquad \sum_{n,v} \tau(v)\,
            \mathit{member}_{p,g,f,n,h,v} \le \sum_{k} \tau^{\max}_{k,h}\,
            \mathit{comm}_{p,g,f,k}

        ``comm[p, g, f, k]`` the family costs no more than class k says; ``tau`` what a group with
        v members inside adds to the crossing groups, members or volume at an uplink, and ``tau
        max`` what the class allows.

        Tight: right-hand sides are sums over classes, so that no constant is larger than a
        class's own.
        """
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
        r"""Implied: groups over X, Y, Z and dense ones meet in one device; one spreads the other.

        .. math:: \mathit{member}_{p,g,f',n',h,v} \le \mathit{member}_{p,g,f',n,h,v} + 1 -
            \sum_{k:\ \mathit{span}_k \le \ell(h)} \mathit{comm}_{p,g,f,k} \qquad \forall f \ne
            f',\ n, n' \text{ that the same groups of } f \text{ meet}

        .. math:: \mathit{comm}_{p,g,f,k} \le \sum_{k' \text{ compatible with } k}
            \mathit{comm}_{p,g,f',k'}

        Where every group of one family stays inside a group of the tree, each that is inside
        brings one member of every group of the other family that it meets; so these have equally
        many members there.

        Tight: implied by integrality; in the relaxation it couples families that share devices.
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
        r"""A stage has the set of types of its devices.

        .. math:: \sum_{y} \mathit{types}_{p,y} = \mathit{use}_p, \qquad \mathit{role}_{p,g,i,a}
            \le \sum_{y \ni \mathit{type}(a)} \mathit{types}_{p,y} \qquad \forall p, g, i, a

        ``types[p, y]`` the stage's devices are of the types of set y. A larger set is never
        cheaper, so the smallest is chosen without being forced.

        Tight: the sum over all sets that contain the type, for each role by itself.
        """
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
        r"""A boundary between stages in use has one class, of a level that every replica keeps to.

        .. math:: \sum_{k} \mathit{boundary}_{p,k} = \mathit{use}_{p+1}, \qquad
            \mathit{rank}_{q,r,j,h} \le \mathit{rank}_{p,r,0,h} + 1 - \sum_{k:\ \ell_k \le
            \ell(h)} \mathit{boundary}_{p,k} \qquad \forall p,\ q \in \{p, p+1\},\ r, j, h

        ``boundary[p, k]`` the boundary between the stages p + 1 and p has class k = (level,
        alpha, beta); ``rank[q, r, j, h]`` the device of rank j of replica r is in group h. Below
        the class's level each replica's devices of both stages are in the group of its first one.

        Tight: each rank is compared with the first one only, and the constant is 1.
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
        r"""The devices on both sides of a boundary are as good as its class says.

        .. math:: \sum_{i,\,a \in h} \mathit{role}_{q,g,i,a} \le \sum_{k} \rho_{g,h,k}\,
            \mathit{boundary}_{p,k} + M_{g,h}\, (1 - \mathit{use}_{p+1}) \qquad \forall p,\ q
            \in \{p, p+1\},\ g, h

        ``rho`` devices that a stage of grid g may have in group h if the boundary has class k:
        none where latency or port are worse, and no more than the uplink's rate allows; ``M`` is
        the smaller of the grid's roles and the group's devices. The last term is only there for q
        = p.

        Tight: the constant is the number of devices that fit, and is needed only where no stage
        follows.
        """
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
