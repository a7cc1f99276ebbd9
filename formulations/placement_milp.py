"""Placement as a mixed-integer linear program (PuLP), one scenario at a time.

Operators are assigned to stages (``late[o, p]``: operator o lies in one of the last p + 1 stages),
configurations to stages (``config[p, c]``) and devices to roles (``role[p, g, i, a]``: with grid g,
the device of role i is one of cell a). What prices depend on is derived from these: the members
that each family group has in each group of the tree (``member``), the class of every family
(``comm``), the type set (``types``), the class of every boundary (``boundary``). Where a price
depends on several choices, operators are split over them (``share``, ``part``), which keeps the
relaxation tight. Time is counted in thousandths of a reference time, memory in devices' memories,
parameters and cuts in totals.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from formulations.placement_classes import TALLIES
from formulations.placement_model import PlacementModel
from formulations.placement_prices import DENSE, TYPES

if TYPE_CHECKING:
    from formulations.adapters import Outcome
    from formulations.placement_data import TreeGroup
    from formulations.placement_model import StageChoice
    from formulations.placement_prices import Config, GridChoice
    from formulations.placement_scenario import ScenarioData
    from nestopt.options import SolveOptions
    from nestopt.placement.problem import PlacementInstance
    from nestopt.result import Result

__all__ = ["PlacementMilp", "solve"]


def solve(instance: PlacementInstance, options: SolveOptions) -> Result:
    """Solve a placement instance by mixed-integer linear programming."""
    from formulations.placement_search import search

    return search(instance, options, "milp", PlacementMilp)


class PlacementMilp(PlacementModel):
    """One scenario's variables and constraint families.

    Parameters
    ----------
    scenario : ScenarioData
    reference : float
        A time like the objective's, seconds; the unit is a thousandth of it.
    cutoff : float
        Only plans of at most this objective are wanted, seconds; inf: any.
    symmetry : bool
        Whether to leave out plans that differ from others by the names of alike things.
    """

    precision = 1e-8

    def __init__(
        self,
        scenario: ScenarioData,
        reference: float,
        cutoff: float = math.inf,
        *,
        symmetry: bool = True,
    ) -> None:
        import pulp

        self.scenario, self.data = scenario, scenario.data
        self.unit = reference / 1e3
        self.cutoff, self.symmetry = cutoff, symmetry
        self.forbidden = 0
        self.sum = pulp.lpSum
        self.program = pulp.LpProblem("placement", pulp.LpMinimize)
        self.positions = range(scenario.positions)
        self.operators = range(self.data.workload.num_operators)
        self._add_choices()
        self._add_prices()
        self._add_objective()
        self.add_constraints()

    def add_constraints(self) -> None:
        """All constraint families."""
        self.add_stage_order()
        self.add_operator_assignment()
        self.add_configurations()
        self.add_uniformity()
        self.add_chunks()
        self.add_devices()
        self.add_structure()
        self.add_symmetry()
        self.add_members()
        self.add_communication_classes()
        self.add_type_sets()
        self.add_joint_choices()
        self.add_boundary_levels()
        self.add_boundary_rates()
        self.add_cuts()
        self.add_tied_parameters()
        self.add_memory()
        self.add_boundary_times()
        self.add_stage_times()
        self.add_synchronisation()
        self.add_floors()
        self.add_cutoff()

    # --- variables -------------------------------------------------------------------------------

    def _binary(self, *name: Any) -> Any:
        return self.program.add_variable(_name(*name), 0, 1, cat="Integer")

    def _share(self, *name: Any) -> Any:
        return self.program.add_variable(_name(*name), 0, 1)

    def _amount(self, *name: Any) -> Any:
        return self.program.add_variable(_name(*name), 0)

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

    def _add_prices(self) -> None:
        """What operators, parameters and cuts meet, and what it costs."""
        scenario = self.scenario
        stages = [(p, c) for p in self.positions for c in scenario.configs]
        inner = range(scenario.positions - 1)
        self.share = {
            (o, p, c.index): self._share("share", o, p, c.index)
            for p, c in stages
            for o in self.operators
            if c.allowed[o]
        }
        self.joint = {
            (p, c.index, f, k): self._share("joint", p, c.index, f, k)
            for p, c in stages
            for f, excess in c.excess.items()
            for k in range(len(excess))
        }
        self.part = {
            (o, p, c.index, f, k): self._share("part", o, p, c.index, f, k)
            for p, c in stages
            for f, excess in c.excess.items()
            for o in self.operators
            if c.allowed[o] and self._depends(c, f, o)
            for k in range(len(excess))
        }
        self.line = {
            (p, c.index, f, k, i): self._binary("line", p, c.index, f, k, i)
            for p, c in stages
            for f, by_class in c.sync.items()
            for k, lines in enumerate(by_class)
            for i in range(len(lines) + 1)
        }
        self.load = {key: self._share("load", *key) for key in self.line if key[-1]}
        self.both = {
            (p, c.index, y): self._share("both", p, c.index, y)
            for p, c in stages
            for y in range(len(self.data.type_sets))
            if self.data.workload.tied is not None
        }
        self.cut = {p: self._amount("cut", p) for p in inner}
        self.carried = {(p, k): self._share("carried", p, k) for p, k in self.boundary}
        self.stage_time = {p: self._amount("stage_time", p) for p in self.positions}
        self.boundary_time = {p: self._amount("boundary_time", p) for p in inner}
        self.largest = self._amount("largest_stage_time")
        self.sync = self._amount("largest_sync")

    def _add_objective(self) -> None:
        """The sum of stage times, the largest one and the largest synchronisation, weighted."""
        total, largest, sync = self.scenario.weights
        self.objective = (
            total * self.sum(self.stage_time.values()) + largest * self.largest + sync * self.sync
        )
        self.program += self.objective

    # --- shorthands ------------------------------------------------------------------------------

    def _add(self, constraint: Any, *name: Any) -> None:
        # what is left of a constraint without variables is a truth value
        if not isinstance(constraint, bool):
            self.program += (constraint, _name(*name))

    def _late(self, operator: int, position: int) -> Any:
        """Whether an operator lies in one of the stages up to a position."""
        return self.late.get((operator, position), 0 if position < 0 else 1)

    def _inside(self, operator: int, position: int) -> Any:
        """Whether an operator lies in a stage."""
        return self._late(operator, position) - self._late(operator, position - 1)

    def _has_grid(self, position: int, choice: GridChoice) -> Any:
        """Whether a stage has a grid."""
        return self.sum(
            self.config[position, c.index] for c in self.scenario.configs if c.grid is choice
        )

    def _in_group(self, position: int, choice: GridChoice, role: int, group: TreeGroup) -> Any:
        """Whether a stage has the grid and the role's device is in a group of the tree."""
        return self.sum(self.role[position, choice.index, role, a] for a in sorted(group.cells))

    def _devices_in(self, position: int, choice: GridChoice, group: TreeGroup) -> Any:
        """Devices in a group of the tree, of a stage that has the grid."""
        return self.sum(self._in_group(position, choice, i, group) for i in range(choice.roles))

    def _depends(self, config: Config, family: int, operator: int) -> bool:
        """Whether an operator's price depends on a family's class."""
        column = config.excess[family][:, operator]
        step = config.step[:, operator]
        return bool((column > 0).any() or (family == TYPES and (step != step[0]).any()))

    def _parameters(self, position: int, config: Config, family: int) -> Any:
        """Parameters of a stage that has the configuration, as a share of all."""
        values = self.data.params if family == DENSE else self.data.params_expert
        found = self.sum(
            float(values[o] / values.sum()) * self.share[o, position, config.index]
            for o in self.operators
            if values[o] and config.allowed[o]
        )
        tied = self.data.workload.tied
        if family == DENSE and tied is not None:
            found -= float(tied.params / values.sum()) * self._both(position, config)
        return found

    def _both(self, position: int, config: Config) -> Any:
        """Whether a stage has the configuration and both tied operators."""
        return self.sum(
            self.both[position, config.index, y] for y in range(len(self.data.type_sets))
        )

    # --- constraints -----------------------------------------------------------------------------

    def add_stage_order(self) -> None:
        """The stages in use are the last ones, at least one, and none is empty."""
        for p in self.positions:
            held = self.sum(self._inside(o, p) for o in self.operators)
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
            chosen = self.sum(self.config[p, c.index] for c in self.scenario.configs)
            self._add(chosen == self.use[p], "configuration", p)
            for o in self.operators:
                split = self.sum(
                    self.share[o, p, c.index] for c in self.scenario.configs if c.allowed[o]
                )
                self._add(split == self._inside(o, p), "configuration_of", o, p)
            for c in self.scenario.configs:
                for o in self.operators:
                    if c.allowed[o]:
                        share = self.share[o, p, c.index]
                        chosen = self.config[p, c.index]
                        self._add(share <= chosen, "configuration_share", o, p, c.index)
                if c.grid.grid.e > 1:
                    experts = self.sum(
                        self.share[o, p, c.index]
                        for o in self.operators
                        if c.allowed[o] and self.data.workload.operators[o].experts
                    )
                    self._add(experts >= self.config[p, c.index], "experts", p, c.index)

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
        for kind, members in self.scenario.repeated_kinds:
            for p in self.positions:
                most = len(members) // self.scenario.chunks
                times = self.program.add_variable(_name("chunks", kind, p), 0, most, cat="Integer")
                held = self.sum(self._inside(o, p) for o in members)
                self._add(held == self.scenario.chunks * times, "chunks", kind, p)

    def add_devices(self) -> None:
        """Every role of the chosen grid has a device, and no cell has more than its devices."""
        for p in self.positions:
            for g in self.scenario.grids:
                chosen = self._has_grid(p, g)
                for i in range(g.roles):
                    given = self.sum(self.role[p, g.index, i, a.index] for a in self.data.cells)
                    self._add(given == chosen, "devices", p, g.index, i)
        for cell in self.data.cells:
            taken = self.sum(x for (*_, a), x in self.role.items() if a == cell.index)
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
                chosen = self.sum(self.place[p, g.index, k] for k in range(len(places)))
                self._add(chosen == self._has_grid(p, g), "structure", p, g.index)
                for i in range(g.roles):
                    for cell in self.data.cells:
                        here = self.sum(
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
            self._add(self.sum(window.values()) == 1, "structure_window")
            for p in self.positions:
                for n in windows:
                    within = self._placed(p, lambda place, n=n: place.window == n)
                    self._add(within <= window[n], "structure_window_of", p, n)

    def _placed(self, position: int, wanted: Any) -> Any:
        """Whether a stage is at one of the places that `wanted` accepts."""
        return self.sum(
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
                            self.sum(self.role[p, g.index, i, k] for k in range(cell.index + 1))
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
                        self._in_group(p, g, i, group) <= self.sum(before + sooner),
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
                                self.sum(counts.values()) == self._has_grid(p, g), "members", *key
                            )
                            inside = self.sum(self._in_group(p, g, i, h) for i in members)
                            self._add(
                                self.sum(v * x for v, x in counts.items()) == inside,
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
                    self._add(self.sum(classes) == self._has_grid(p, g), "comm", *key)
                    for h in self.data.groups:
                        most = min(g.roles, h.size)
                        allowed = [c.allows_group(h) for c in f.classes]
                        if not all(allowed):
                            room = self.sum(most * x for x, ok in zip(classes, allowed) if ok)
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
                chosen = self.sum(x for x, ok in zip(classes, allowed) if ok)
                for n, by_count in enumerate(counts):
                    self._add(by_count[v] <= chosen, "comm_count", *key, h.index, n, v)
        for what, tally in TALLIES.items():
            bounds = self.scenario.tallied(family, h, what)
            if bounds:
                total = self.sum(
                    tally(v, family.size) * x
                    for by_count in counts
                    for v, x in by_count.items()
                    if 0 < v < family.size
                )
                room = self.sum(b * x for b, x in zip(bounds, classes))
                self._add(total <= room, "comm", what, *key, h.index)

    def add_type_sets(self) -> None:
        """A stage has the set of types of its devices."""
        for p in self.positions:
            sets = self.sum(self.types[p, y] for y in range(len(self.data.type_sets)))
            self._add(sets == self.use[p], "type_set", p)
            for g in self.scenario.grids:
                for cell in self.data.cells:
                    kind = self.data.cluster.types[cell.type]
                    having = self.sum(
                        self.types[p, y] for y, ts in enumerate(self.data.type_sets) if kind in ts
                    )
                    if len(self.data.type_sets) > 1:
                        for i in range(g.roles):
                            self._add(
                                self.role[p, g.index, i, cell.index] <= having,
                                "type_set_of", p, g.index, i, cell.index,
                            )  # fmt: skip

    def add_joint_choices(self) -> None:
        """A configuration meets the classes of its grid's families; operators meet both."""
        configs = self.scenario.configs
        for p in self.positions:
            for c in configs:
                for f, excess in c.excess.items():
                    joint = [self.joint[p, c.index, f, k] for k in range(len(excess))]
                    self._add(self.sum(joint) == self.config[p, c.index], "joint", p, c.index, f)
                    for o in self.operators:
                        if (o, p, c.index, f, 0) not in self.part:
                            continue
                        parts = [self.part[o, p, c.index, f, k] for k in range(len(excess))]
                        self._add(
                            self.sum(parts) == self.share[o, p, c.index], "parts", o, p, c.index, f
                        )
                        for k, (part, both) in enumerate(zip(parts, joint)):
                            self._add(part <= both, "part", o, p, c.index, f, k)
            for y in range(len(self.data.type_sets)):
                met = self.sum(self.joint[p, c.index, TYPES, y] for c in configs)
                self._add(met == self.types[p, y], "joint_types", p, y)
            for g in self.scenario.grids:
                for f in g.families:
                    for k in range(len(f.classes)):
                        met = self.sum(
                            self.joint[p, c.index, f.index, k] for c in configs if c.grid is g
                        )
                        self._add(
                            met == self.comm[p, g.index, f.index, k],
                            "joint_comm", p, g.index, f.index, k,
                        )  # fmt: skip

    def add_boundary_levels(self) -> None:
        """A boundary between stages in use has one class, of a level that every replica keeps to.

        Below that level each replica's devices of both stages are in the group of its first one.
        """
        classes = self.scenario.boundary_classes
        for p in range(self.scenario.positions - 1):
            chosen = self.sum(self.boundary[p, k] for k in range(len(classes)))
            self._add(chosen == self.use[p + 1], "boundary", p)
            for h in self.data.groups:
                if h.parent < 0:
                    continue
                far = 1 - self.sum(
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
        return self.sum(
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
                        room = self.sum(x * self.boundary[p, k] for k, x in enumerate(rooms))
                        if q == p:
                            room += most * (1 - self.use[p + 1])
                        self._add(
                            self._devices_in(q, g, h) <= room,
                            "boundary_rate", p, q, g.index, h.index,
                        )  # fmt: skip

    def add_cuts(self) -> None:
        """A cut carries, for each operator before it, its largest edge to one behind it."""
        total = self.data.largest_cut
        if total == 0:
            return
        for p in range(self.scenario.positions - 1):
            leaving: dict[int, Any] = {}
            for edge in self.data.workload.edges:
                u, v = edge.source, edge.target
                if u not in leaving:
                    leaving[u] = self._amount("leaving", u, p)
                crossing = edge.bytes / total * (self._late(v, p) - self._late(u, p))
                self._add(leaving[u] >= crossing, "cut_edge", u, v, p)
            self._add(self.cut[p] == self.sum(leaving.values()), "cut", p)

    def add_memory(self) -> None:
        """States, activations in flight, working set and buffers fit into the smallest device."""
        scenario = self.scenario
        if scenario.always_fits:
            return
        scale = float(scenario.limits.max()) or 1.0
        for p in self.positions:
            need: list[Any] = []
            working, gathered = self._amount("working", p), self._amount("gathered", p)
            cuts = [self.cut[q] for q in (p - 1, p) if q in self.cut]
            met = {c.index: self._amount("buffered", p, c.index) for c in scenario.configs}
            for c in scenario.configs:
                linear = c.states + scenario.held(p) * c.stored
                need += [
                    float(linear[o] / scale) * self.share[o, p, c.index]
                    for o in self.operators
                    if c.allowed[o]
                ]
                if self.both:
                    need.append(-c.states_shared / scale * self._both(p, c))
                need.append(c.buffers * self.data.largest_cut / scale * met[c.index])
                self._add(met[c.index] <= 2 * self.config[p, c.index], "buffered", p, c.index)
            for o in self.operators:
                for amount, field in ((working, "working"), (gathered, "gathered")):
                    largest = self.sum(
                        float(getattr(c, field)[o] / scale) * self.share[o, p, c.index]
                        for c in scenario.configs
                        if c.allowed[o]
                    )
                    self._add(amount >= largest, "memory", field, o, p)
            self._add(self.sum(met.values()) >= self.sum(cuts), "memory_cuts", p)
            room = self.sum(
                float(limit / scale) * self.types[p, y] for y, limit in enumerate(scenario.limits)
            )
            self._add(self.sum(need) + working + gathered <= room, "memory", p)

    def add_boundary_times(self) -> None:
        """A boundary takes its class's latency, and its class's rate for what the cut carries."""
        scenario = self.scenario
        bytes_ = scenario.microbatch * self.data.largest_cut
        for p in range(scenario.positions - 1):
            carried = self.sum(self.carried[q, k] for q, k in self.carried if q == p)
            self._add(carried >= self.cut[p], "boundary_carries", p)
            price: list[Any] = []
            for k, (_, alpha, beta) in enumerate(scenario.boundary_classes):
                self._add(self.carried[p, k] <= self.boundary[p, k], "boundary_carried", p, k)
                price.append(2 * scenario.chunks * alpha / self.unit * self.boundary[p, k])
                price.append(2 * scenario.chunks * bytes_ * beta / self.unit * self.carried[p, k])
            self._add(self.boundary_time[p] >= self.sum(price), "boundary_time", p)

    def add_stage_times(self) -> None:
        """A stage takes its operators' times and both boundaries'; the largest is at least each."""
        configs = self.scenario.configs
        for p in self.positions:
            spent = [self.boundary_time[q] for q in (p - 1, p) if q in self.boundary_time]
            spent += [
                float(configs[c].compute[o] / self.unit) * share
                for (o, q, c), share in self.share.items()
                if q == p
            ]
            spent += [
                float(configs[c].excess[f][k, o] / self.unit) * part
                for (o, q, c, f, k), part in self.part.items()
                if q == p
            ]
            self._add(self.stage_time[p] >= self.sum(spent), "stage_time", p)
            self._add(self.largest >= self.stage_time[p], "largest_stage_time", p)

    def add_synchronisation(self) -> None:
        """The largest synchronisation is at least every stage's, its optimizer step included.

        A collective takes the least of its algorithms' times, so one line is chosen; the first
        stands for no parameters at all.
        """
        if self.scenario.weights[2] == 0:
            return
        for p in self.positions:
            spent: list[Any] = []
            for c in self.scenario.configs:
                spent += self._step(p, c)
                for f in c.sync:
                    spent += self._lines(p, c, f)
            self._add(self.sync >= self.sum(spent), "sync", p)

    def _step(self, p: int, c: Config) -> list[Any]:
        """Terms of the optimizer step of a stage that has a configuration."""
        terms = []
        tied = self.data.workload.tied
        for y in range(len(self.data.type_sets)):
            for o in self.operators:
                by_types = self.part.get((o, p, c.index, TYPES, y))
                if by_types is None and y == 0 and c.allowed[o]:
                    by_types = self.share[o, p, c.index]
                if by_types is not None:
                    terms.append(float(c.step[y, o] / self.unit) * by_types)
            if tied is not None:
                both = self.both[p, c.index, y]
                terms.append(-float(c.step_shared[y] / self.unit) * both)
        return terms

    def _lines(self, p: int, c: Config, f: int) -> list[Any]:
        """Terms of the synchronisation of one family; the lines' constraints are added."""
        values = self.data.params if f == DENSE else self.data.params_expert
        terms, loads = [], []
        for k, lines in enumerate(c.sync[f]):
            key = (p, c.index, f, k)
            chosen = self.sum(self.line[(*key, i)] for i in range(len(lines) + 1))
            self._add(chosen == self.joint[key], "line", *key)
            for i, (intercept, slope) in enumerate(lines, start=1):
                line, load = self.line[(*key, i)], self.load[(*key, i)]
                self._add(load <= line, "line_load", *key, i)
                terms.append(intercept / self.unit * line)
                terms.append(float(slope * values.sum() / self.unit) * load)
                loads.append(load)
        self._add(self.sum(loads) >= self._parameters(p, c, f), "line_loads", p, c.index, f)
        return terms

    def add_tied_parameters(self) -> None:
        """Shared parameters count once in a stage that has both tied operators."""
        tied = self.data.workload.tied
        for (p, c, y), both in self.both.items():
            self._add(both <= self.joint[p, c, TYPES, y], "tied_types", p, c, y)
            if y == 0 and tied is not None:
                total = self._both(p, self.scenario.configs[c])
                for o in (tied.first, tied.second):
                    self._add(total <= self.share.get((o, p, c), 0), "tied", p, c, o)

    def add_floors(self) -> None:
        """Bounds that hold for every plan of the scenario (`ScenarioData.floors`)."""
        total, largest = self.scenario.floors
        self._add(self.sum(self.stage_time.values()) >= total / self.unit, "floor_total")
        self._add(self.largest >= largest / self.unit, "floor_largest")

    def add_cutoff(self) -> None:
        """Only plans of at most the cutoff are wanted."""
        if math.isfinite(self.cutoff):
            self._add(self.objective <= self.cutoff / self.unit, "cutoff")

    def forbid_stage(self, stage: StageChoice) -> None:
        """No stage at the position with these operators, this configuration and this type set."""
        p = stage.position
        outside = [o for o in self.operators if o not in stage.operators]
        matches = self.sum(self._inside(o, p) for o in stage.operators)
        matches += self.config[p, stage.config] + self.types[p, stage.types]
        matches -= self.sum(self._inside(o, p) for o in outside)
        self.forbidden += 1
        self._add(matches <= len(stage.operators) + 1, "forbidden", self.forbidden)

    def solve(self, options: SolveOptions, time_limit: float) -> Outcome:
        """Run the solver; objective and bound of the outcome are in units of `unit` seconds."""
        from formulations.adapters import solve_milp

        return solve_milp(
            self.program,
            backend=options.backend,
            time_limit=time_limit,
            threads=options.threads,
            seed=options.seed,
            rel_gap=options.rel_gap,
            write_model=options.write_model,
            progress=options.progress,
        )


def _name(*parts: Any) -> str:
    return "_".join(str(part).replace("-", "t") for part in parts)
