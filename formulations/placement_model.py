"""What the two placement models share: the choices, what follows from them, and reading them back.

A plan is chosen by binary variables: ``late[o, p]`` (operator o lies in one of the last p + 1
stages), ``config[p, c]`` (the stage at position p has configuration c) and ``role[p, g, i, a]`` (it
has grid g, and the device of its role i is of cell a). What prices depend on is derived from them:
the members that each family group has in each group of the tree (``member``), the class of every
family (``comm``), the type set (``types``) and the class of every boundary (``boundary``). All this
is linear in binaries and the same for both solvers; what things cost is each model's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from formulations.placement_classes import TALLIES
from formulations.placement_prices import DENSE, TENSOR
from nestopt.placement.cost import config_of
from nestopt.placement.plan import Plan, Stage

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from formulations.adapters import Outcome
    from formulations.placement_data import TreeGroup
    from formulations.placement_prices import Family, GridChoice
    from formulations.placement_scenario import ScenarioData

__all__ = ["PlacementModel", "StageChoice", "name_of"]


@dataclass(frozen=True, slots=True)
class StageChoice:
    """A stage as a model's solution has it.

    Attributes
    ----------
    position : int
        0 for the last stage.
    operators : tuple of int
    config, types : int
        Numbers of the configuration and of the type set.
    cells : tuple of int
        Cell of every role.
    devices : tuple of int
        Device of every role in the structured space, else empty.
    """

    position: int
    operators: tuple[int, ...]
    config: int
    types: int
    cells: tuple[int, ...]
    devices: tuple[int, ...]


class PlacementModel:
    """Base of the two models: the choices and the constraint families without prices.

    A subclass makes variables (`_binary`, `_whole`), sums (`sum`) and named constraints (`_add`).

    Attributes
    ----------
    use : dict of int
        By position: whether there is a stage.
    late : dict of (int, int)
        By operator and position: whether the operator lies in a stage up to the position.
    config : dict of (int, int)
        By position and configuration.
    role : dict of (int, int, int, int)
        By position, grid, role and cell: whether the stage has the grid and the role's device is
        of the cell.
    place : dict of (int, int, int)
        By position, grid and place; empty in the general space.
    types : dict of (int, int)
        By position and type set.
    """

    sum: Any

    def _sum(self, terms: Iterable[Any]) -> Any:
        return self.sum(list(terms))

    def __init__(self, scenario: ScenarioData, *, symmetry: bool) -> None:
        self.scenario, self.data = scenario, scenario.data
        self.symmetry = symmetry
        self.forbidden = 0
        self.positions = range(scenario.positions)
        self.operators = range(self.data.workload.num_operators)

    def _binary(self, *name: Any) -> Any:
        raise NotImplementedError

    def _whole(self, most: int, *name: Any) -> Any:
        raise NotImplementedError

    def _add(self, constraint: Any, *name: Any) -> None:
        raise NotImplementedError

    def _add_choices(self) -> None:
        """What a plan consists of, and the classes that follow from it."""
        data, scenario = self.data, self.scenario
        inner = range(scenario.positions - 1)
        stages = [(p, g) for p in self.positions for g in scenario.grids]
        self.use = {p: self._binary("use", p) for p in self.positions}
        self.late = {(o, p): self._binary("late", o, p) for o in self.operators for p in inner}
        self.config = {
            (p, c.index): self._binary("config", p, c.index)
            for p in self.positions
            for c in scenario.configs
        }
        self.role = {
            (p, g.index, i, cell.index): self._binary("role", p, g.index, i, cell.index)
            for p, g in stages
            for i in range(g.roles)
            for cell in data.cells
        }
        self.place = {
            (p, g.index, k): self._binary("place", p, g.index, k)
            for p, g in stages
            for k in range(len(scenario.places[g.index]))
        }
        self.member = {
            (p, g.index, f.index, n, h.index, v): self._binary(
                "member", p, g.index, f.index, n, h.index, v
            )
            for p, g in stages
            for f in g.families
            for h in scenario.watched(f)
            for n in range(len(f.groups))
            for v in range(min(f.size, h.size) + 1)
        }
        self.comm = {
            (p, g.index, f.index, k): self._binary("comm", p, g.index, f.index, k)
            for p, g in stages
            for f in g.families
            for k in range(len(f.classes))
        }
        self.types = {
            (p, y): self._binary("types", p, y)
            for p in self.positions
            for y in range(len(data.type_sets))
        }
        self.boundary = {
            (p, k): self._binary("boundary", p, k)
            for p in inner
            for k in range(len(scenario.boundary_classes))
        }

    # --- shorthands ------------------------------------------------------------------------------

    def _late(self, operator: int, position: int) -> Any:
        """Whether an operator lies in one of the stages up to a position."""
        return self.late.get((operator, position), 0 if position < 0 else 1)

    def _inside(self, operator: int, position: int) -> Any:
        """Whether an operator lies in a stage."""
        return self._late(operator, position) - self._late(operator, position - 1)

    def _has_grid(self, position: int, choice: GridChoice) -> Any:
        """Whether a stage has a grid."""
        return self._sum(
            self.config[position, c.index] for c in self.scenario.configs if c.grid is choice
        )

    def _in_group(self, position: int, choice: GridChoice, role: int, group: TreeGroup) -> Any:
        """Whether a stage has the grid and the role's device is in a group of the tree."""
        return self._sum(self.role[position, choice.index, role, a] for a in sorted(group.cells))

    def _devices_in(self, position: int, choice: GridChoice, group: TreeGroup) -> Any:
        """Devices in a group of the tree, of a stage that has the grid."""
        return self._sum(self._in_group(position, choice, i, group) for i in range(choice.roles))

    # --- constraints -----------------------------------------------------------------------------

    def add_stage_order(self) -> None:
        """The stages in use are the last ones, at least one, and none is empty."""
        for p in self.positions:
            held = self._sum(self._inside(o, p) for o in self.operators)
            self._add(held >= self.use[p], "stage_order_filled", p)
            if p == 0 or self.scenario.scenario.stages:
                self._add(self.use[p] >= 1, "stage_order_used", p)
            else:
                self._add(self.use[p] <= self.use[p - 1], "stage_order", p)

    def add_operator_assignment(self) -> None:
        """Each operator lies in one stage in use; prefixes of the pipeline are ideals."""
        for o in self.operators:
            for p in self.positions:
                inside = self._inside(o, p)
                self._add(inside >= 0, "operator_assignment", o, p)
                self._add(inside <= self.use[p], "operator_assignment_used", o, p)
        for edge in self.data.workload.edges:
            for p in range(self.scenario.positions - 1):
                self._add(
                    self._late(edge.source, p) <= self._late(edge.target, p),
                    "operator_order", edge.source, edge.target, p,
                )  # fmt: skip

    def add_configurations(self) -> None:
        """A stage in use has one configuration, which suits all its operators.

        Expert parallelism is for stages that hold an operator with experts.
        """
        for p in self.positions:
            chosen = self._sum(self.config[p, c.index] for c in self.scenario.configs)
            self._add(chosen == self.use[p], "configuration", p)
            for c in self.scenario.configs:
                chosen = self.config[p, c.index]
                for o in self.operators:
                    if not c.allowed[o]:
                        self._add(
                            self._inside(o, p) + chosen <= 1, "configuration_suits", o, p, c.index
                        )
                if c.grid.grid.e > 1:
                    experts = self._sum(
                        self._inside(o, p)
                        for o, operator in enumerate(self.data.workload.operators)
                        if operator.experts
                    )
                    self._add(experts >= chosen, "experts", p, c.index)

    def add_uniformity(self) -> None:
        """If the space asks for it, all stages have the same configuration."""
        if not self.data.settings.uniform:
            return
        for p in self.positions[1:]:
            for c in self.scenario.configs:
                self._add(
                    self.config[p, c.index] <= self.config[0, c.index], "uniformity", p, c.index
                )

    def add_chunks(self) -> None:
        """Interleaving: every repeated kind comes to a stage in multiples of the chunks."""
        if self.scenario.chunks == 1:
            return
        for kind, members in self.scenario.members_of_kind:
            if len(members) == 1:
                continue
            for p in self.positions:
                most = len(members) // self.scenario.chunks
                times = self._whole(most, "chunks_of", kind, p)
                held = self._sum(self._inside(o, p) for o in members)
                self._add(held == self.scenario.chunks * times, "chunks", kind, p)

    def add_devices(self) -> None:
        """Every role of the chosen grid has a device, and no cell has more than its devices."""
        for p in self.positions:
            for g in self.scenario.grids:
                chosen = self._has_grid(p, g)
                for i in range(g.roles):
                    given = self._sum(self.role[p, g.index, i, a.index] for a in self.data.cells)
                    self._add(given == chosen, "devices", p, g.index, i)
        for cell in self.data.cells:
            taken = self._sum(x for (*_, a), x in self.role.items() if a == cell.index)
            self._add(taken <= len(cell.devices), "devices_of_cell", cell.index)

    def add_structure(self) -> None:
        """Structured space: devices are runs of the line of alive devices, in stage order.

        With the outer layout all stages share one window.
        """
        scenario = self.scenario
        if not scenario.scenario.layout:
            return
        for p in self.positions:
            for g in scenario.grids:
                places = scenario.places[g.index]
                chosen = self._sum(self.place[p, g.index, k] for k in range(len(places)))
                self._add(chosen == self._has_grid(p, g), "structure", p, g.index)
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
            for at in range(1, line):
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

    def add_symmetry(self) -> None:
        """General space: one order of alike replicas, ranks and groups of the tree.

        The devices of all roles, stage by stage from the last, form a word of cells. Renumbering
        replicas, ranks or alike siblings gives a plan of the same price; only words that no such
        step makes lexicographically smaller are needed.
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
                        self._in_group(p, g, i, group) <= self._sum(before + sooner),
                        "symmetry_groups", group.index, p, g.index, i,
                    )  # fmt: skip
                    sooner.append(self._in_group(p, g, i, twin))
                here += sooner
            before += here

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
                                self._sum(counts.values()) == self._has_grid(p, g), "members", *key
                            )
                            inside = self._sum(self._in_group(p, g, i, h) for i in members)
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

    def add_communication_classes(self) -> None:
        """Every family has one class, whose conditions its members keep."""
        for p in self.positions:
            for g in self.scenario.grids:
                for f in g.families:
                    key = (p, g.index, f.index)
                    classes = [self.comm[(*key, k)] for k in range(len(f.classes))]
                    self._add(self._sum(classes) == self._has_grid(p, g), "comm", *key)
                    for h in self.data.groups:
                        most = min(g.roles, h.size)
                        allowed = [c.allows_group(h) for c in f.classes]
                        if not all(allowed):
                            room = self._sum(most * x for x, ok in zip(classes, allowed) if ok)
                            self._add(
                                self._devices_in(p, g, h) <= room, "comm_group", *key, h.index
                            )
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

    def add_crossing_families(self) -> None:
        """Implied: tensor and dense groups meet in one device each, so one kind spreads the other.

        Where every tensor group stays inside a group of the tree, each that is inside brings one
        member of every dense group; so all dense groups have equally many members there. The same
        holds the other way round.
        """
        for p in self.positions:
            for g in self.scenario.grids:
                families = {f.index: f for f in g.families}
                for one, other in ((TENSOR, DENSE), (DENSE, TENSOR)):
                    if one not in families or other not in families:
                        continue
                    family = families[other]
                    self._add_compatible_classes(p, g.index, families[one], family)
                    for h in self.scenario.watched(family):
                        near = self._sum(
                            self.comm[p, g.index, one, k]
                            for k, c in enumerate(families[one].classes)
                            if c.span <= h.level
                        )
                        first = self._counts(p, g.index, other, 0, h)
                        for n in range(1, len(family.groups)):
                            for v, x in self._counts(p, g.index, other, n, h).items():
                                self._add(
                                    x <= first[v] + 1 - near,
                                    "crossing_families", p, g.index, other, n, h.index, v,
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
                    "compatible_classes", p, g, one.index, a,
                )  # fmt: skip

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
            self._in_group(position, g, replica * g.grid.width + rank, group)
            for g in self.scenario.grids
            if rank < g.grid.width
        )

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
                            self._devices_in(q, g, h) <= room,
                            "boundary_rate", p, q, g.index, h.index,
                        )  # fmt: skip

    def forbid_stage(self, stage: StageChoice) -> None:
        """No stage at the position with these operators, this configuration and this type set."""
        p = stage.position
        outside = [o for o in self.operators if o not in stage.operators]
        matches = self._sum(self._inside(o, p) for o in stage.operators)
        matches += self.config[p, stage.config] + self.types[p, stage.types]
        matches -= self._sum(self._inside(o, p) for o in outside)
        self.forbidden += 1
        self._add(matches <= len(stage.operators) + 1, "forbidden", self.forbidden)

    # --- solutions -------------------------------------------------------------------------------

    def stages(self, outcome: Outcome) -> list[StageChoice]:
        """The stages of the incumbent, first to last."""

        def chosen(table: dict[Any, Any], *start: int) -> tuple[int, ...]:
            return next(k for k, x in table.items() if k[: len(start)] == start and value(x))

        def value(variable: Any) -> bool:
            return int(outcome.value(variable)) == 1

        position_of = {
            o: sum(not value(x) for (v, _), x in self.late.items() if v == o)
            for o in range(self.data.workload.num_operators)
        }
        found = []
        for p in sorted((p for p, x in self.use.items() if value(x)), reverse=True):
            (_, c), (_, types) = chosen(self.config, p), chosen(self.types, p)
            grid = self.scenario.configs[c].grid
            devices: tuple[int, ...] = ()
            if self.place:
                place = chosen(self.place, p, grid.index)[-1]
                devices = self.scenario.places[grid.index][place].devices
            found.append(
                StageChoice(
                    p,
                    tuple(o for o, q in position_of.items() if q == p),
                    c,
                    types,
                    tuple(chosen(self.role, p, grid.index, i)[-1] for i in range(grid.roles)),
                    devices,
                )
            )
        return found

    def plan(self, stages: Sequence[StageChoice]) -> Plan:
        """The plan of stages; which of a cell's devices a role gets does not matter."""
        free = {cell.index: list(cell.devices) for cell in self.data.cells}
        settings = self.data.settings
        done = []
        for stage in stages:
            config = self.scenario.configs[stage.config]
            devices = stage.devices or [free[cell].pop(0) for cell in stage.cells]
            done.append(
                Stage(
                    stage.operators,
                    config_of(config.grid.grid, config.mode),
                    np.array(devices, dtype=np.int64).reshape(self.scenario.replicas, -1),
                )
            )
        return Plan(
            tuple(done),
            self.scenario.replicas,
            self.scenario.microbatch,
            settings.schedule,
            settings.chunks,
        )


def name_of(*parts: Any) -> str:
    """The name of a variable or constraint, without signs that file formats reject."""
    return "_".join(str(part).replace("-", "t") for part in parts)
