"""Where stages may lie: runs of devices in the structured space, one order of alike things else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nestopt.formulations.families import family
from nestopt.formulations.placement.choices import PlacementChoices

if TYPE_CHECKING:
    from nestopt.formulations.placement.tree import TreeGroup

__all__ = ["PlacementLayout"]


class PlacementLayout(PlacementChoices):
    """The families of a space's layout."""

    @family
    def add_structure(self) -> None:
        r"""Structured space: devices are runs of the line of alive devices, in stage order.

        .. math:: \sum_{k} \mathit{place}_{p,g,k} = \mathit{grid}_{p,g}, \qquad
            \mathit{role}_{p,g,i,a} = \sum_{k:\ \text{role } i \text{ of place } k \in a}
            \mathit{place}_{p,g,k}

        .. math:: \sum_{g,k:\ \mathit{end}_k > s} \mathit{place}_{p,g,k} + \sum_{g,k:\
            \mathit{start}_k \le s} \mathit{place}_{p-1,g,k} \le 1 \qquad \forall p > 0,\ s

        .. math:: \sum_{n} \mathit{window}_n = 1, \qquad \sum_{g,k:\ \text{window } n}
            \mathit{place}_{p,g,k} \le \mathit{window}_n

        ``place[p, g, k]`` the stage's run is the k-th of its grid, from ``start`` to ``end`` on
        the line; with the layout ``outer`` all stages share one window n, repeated for every
        replica.

        Tight: order is stated for every point s of the line, which gives cliques in place of
        pairs.
        """
        scenario = self.scenario
        if not scenario.scenario.layout:
            return
        for p in self.positions:
            for g in scenario.grids:
                places = scenario.places[g.index]
                chosen = self._sum(self.place[p, g.index, k] for k in range(len(places)))
                self._add(chosen == self.has_grid(p, g), "structure", p, g.index)
                for i in range(g.roles):
                    for cell in self.data.cells:
                        here = self._sum(
                            self.place[p, g.index, k]
                            for k, place in enumerate(places)
                            if self.data.cell_of[place.devices[i]] == cell.index
                        )
                        self._add(
                            self.role[p, g.index, i, cell.index] == here,
                            "structure_role", p, g.index, i, cell.index,
                        )  # fmt: skip
        line = len(self.data.alive)
        for p in self.positions[1:]:
            for at in range(line):
                reach = self._placed(p, lambda place, at=at: place.end > at)
                early = self._placed(p - 1, lambda place, at=at: place.start <= at)
                self._add(reach + early <= 1, "structure_order", p, at)
        windows = sorted({place.window for row in scenario.places for place in row})
        if len(windows) > 1:
            window = {n: self._binary("window", n) for n in windows}
            self._add(self._sum(window.values()) == 1, "structure_window")
            for p in self.positions:
                for n in windows:
                    within = self._placed(p, lambda place, n=n: place.window == n)
                    self._add(within <= window[n], "structure_window_of", p, n)

    def _placed(self, position: int, wanted: Any) -> Any:
        """Whether a stage is at one of the places that `wanted` accepts."""
        return self._sum(
            self.place[position, g.index, k]
            for g in self.scenario.grids
            for k, place in enumerate(self.scenario.places[g.index])
            if wanted(place)
        )

    @family
    def add_symmetry(self) -> None:
        r"""General space: one order of alike replicas, ranks and groups of the tree.

        .. math:: \sum_{a \le b} \mathit{role}_{p,g,j,a} \le \sum_{a \le b}
            \mathit{role}_{p,g,i,a} \qquad \forall p, g,\ (i, j) \in R_g,\ b

        .. math:: \mathit{inside}_{p,g,i,h} \le \sum_{(p',g',i') \prec (p,g,i)}
            \mathit{inside}_{p',g',i',h'} \qquad \forall h \text{ with twin } h'

        The devices of all roles, stage by stage from the last, form a word of cells. Renumbering
        replicas, ranks or alike siblings gives a plan of the same price; only words that no such
        step makes lexicographically smaller are needed. ``R_g`` pairs of first roles of
        neighbouring ranks (at the last stage: of neighbouring replicas too); ``inside`` the
        role's device is in a group of the tree. Switched off with constraints of one's own.

        Tight: prefix sums over cells state the lexicographic order without a constant.
        """
        if not self.symmetry or self.scenario.scenario.layout:
            return
        for p in self.positions:
            for g in self.scenario.grids:
                for a, b in self.scenario.rank_order(g, replicas=p == 0):
                    for cell in self.data.cells[:-1]:
                        first, second = (
                            self._sum(self.role[p, g.index, i, k] for k in range(cell.index + 1))
                            for i in (a, b)
                        )
                        self._add(second <= first, "symmetry", p, g.index, a, b, cell.index)
        for group in self.data.groups:
            if group.twin >= 0:
                self._add_twin_order(group, self.data.groups[group.twin])

    def _add_twin_order(self, group: TreeGroup, twin: TreeGroup) -> None:
        """A group of the tree is used only after its alike sibling."""
        before: list[Any] = []
        for p in self.positions:
            here: list[Any] = []
            for g in self.scenario.grids:
                sooner: list[Any] = []
                for i in range(g.roles):
                    self._add(
                        self.in_group(p, g, i, group) <= self._sum(before + sooner),
                        "symmetry_groups", group.index, p, g.index, i,
                    )  # fmt: skip
                    sooner.append(self.in_group(p, g, i, twin))
                here += sooner
            before += here
