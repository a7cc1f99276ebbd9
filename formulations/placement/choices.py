"""The choices of a placement model and the families that say what a plan is.

A plan is chosen by binary variables: ``late[o, p]`` (operator o lies in one of the last p + 1
stages), ``config[p, c]`` (the stage at position p has configuration c) and ``role[p, g, i, a]`` (it
has grid g, and the device of its role i is of cell a). What prices depend on is derived from them
in `nestopt.formulations.placement.communication`.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from nestopt.formulations.families import Families, family

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from nestopt.formulations.families import Addition
    from nestopt.formulations.placement.config import Config, GridChoice
    from nestopt.formulations.placement.scenario import ScenarioData
    from nestopt.formulations.placement.tree import TreeGroup

__all__ = ["PlacementChoices"]


class PlacementChoices(Families):
    """The choices, and the families of stages, operators, configurations and devices.

    A subclass makes variables (`_binary`, `_whole`), sums (`sum`) and named constraints (`_add`).
    Positions count stages from the end: position 0 is the last stage.

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

    def __init__(
        self,
        scenario: ScenarioData,
        *,
        symmetry: bool,
        additions: tuple[Addition, ...] = (),
        left_out: frozenset[str] = frozenset(),
    ) -> None:
        self.scenario, self.data = scenario, scenario.data
        self.symmetry = symmetry
        self.additions, self.left_out = additions, left_out
        self.size_of, self.symbols = {}, Counter()
        self.forbidden = 0
        self.positions = range(scenario.positions)
        self.operators = range(self.data.workload.num_operators)

    # --- what constraints of a user's own are written with ---------------------------------------

    @property
    def replicas(self) -> int:
        """d, fixed in each scenario."""
        return self.scenario.replicas

    @property
    def microbatch(self) -> int:
        """b, samples; fixed in each scenario."""
        return self.scenario.microbatch

    @property
    def num_stages(self) -> Any:
        """The number of stages."""
        return self._sum(self.use.values())

    def has_config(self, position: int, wanted: Callable[[Config], bool]) -> Any:
        """Whether the stage at a position has a configuration that `wanted` accepts.

        A configuration has ``grid.grid`` (degrees x, y, z, c, e) and ``mode`` (ZeRO stage,
        recomputation, sequence parallelism, overlap).
        """
        return self._sum(self.config[position, c.index] for c in self.scenario.configs if wanted(c))

    def devices_at(self, position: int, cells: Iterable[int]) -> Any:
        """How many devices of some cells the stage at a position has.

        ``model.data.cell_of[device]`` is the cell of a device; alike devices share one.
        """
        wanted = set(cells)
        return self._sum(x for (p, *_, a), x in self.role.items() if p == position and a in wanted)

    # --- variables -------------------------------------------------------------------------------

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

    def before(self, operator: int, position: int) -> Any:
        """Whether an operator lies in one of the stages up to a position."""
        return self.late.get((operator, position), 0 if position < 0 else 1)

    def inside(self, operator: int, position: int) -> Any:
        """Whether an operator lies in a stage."""
        return self.before(operator, position) - self.before(operator, position - 1)

    def has_grid(self, position: int, choice: GridChoice) -> Any:
        """Whether a stage has a grid."""
        return self._sum(
            self.config[position, c.index] for c in self.scenario.configs if c.grid is choice
        )

    def in_group(self, position: int, choice: GridChoice, role: int, group: TreeGroup) -> Any:
        """Whether a stage has the grid and the role's device is in a group of the tree."""
        return self._sum(self.role[position, choice.index, role, a] for a in sorted(group.cells))

    def devices_in(self, position: int, choice: GridChoice, group: TreeGroup) -> Any:
        """Devices in a group of the tree, of a stage that has the grid."""
        return self._sum(self.in_group(position, choice, i, group) for i in range(choice.roles))

    # --- constraints -----------------------------------------------------------------------------

    @family
    def add_stage_order(self) -> None:
        r"""The stages in use are the last ones, at least one, and none is empty.

        .. math:: \sum_{o} \mathit{in}_{o,p} \ge \mathit{use}_p, \qquad \mathit{use}_0 = 1,
            \qquad \mathit{use}_p \le \mathit{use}_{p-1} \qquad \forall p

        ``use[p]`` there is a stage at position p, counted from the end. A scenario with a given
        number of stages has ``use[p] = 1`` everywhere.

        Tight: numbering from the end makes the activations in flight a constant of the position.
        """
        for p in self.positions:
            held = self._sum(self.inside(o, p) for o in self.operators)
            self._add(held >= self.use[p], "stage_order_filled", p)
            if p == 0 or self.scenario.scenario.stages:
                self._add(self.use[p] >= 1, "stage_order_used", p)
            else:
                self._add(self.use[p] <= self.use[p - 1], "stage_order", p)

    @family
    def add_operator_assignment(self) -> None:
        r"""Each operator lies in one stage in use; prefixes of the pipeline are ideals.

        .. math:: \mathit{in}_{o,p} = \mathit{late}_{o,p} - \mathit{late}_{o,p-1}, \qquad 0 \le
            \mathit{in}_{o,p} \le \mathit{use}_p \qquad \forall o, p

        .. math:: \mathit{late}_{u,p} \le \mathit{late}_{v,p} \qquad \forall (u, v) \in E,\ p

        ``late[o, p]`` operator o lies in one of the stages 0 to p; it is 0 below the first
        position and 1 at the last.

        Tight: prefix variables make order and assignment totally unimodular, which assignment
        variables with one constraint for each pair of stages are not.
        """
        for o in self.operators:
            for p in self.positions:
                inside = self.inside(o, p)
                self._add(inside >= 0, "operator_assignment", o, p)
                self._add(inside <= self.use[p], "operator_assignment_used", o, p)
        for edge in self.data.workload.edges:
            for p in range(self.scenario.positions - 1):
                self._add(
                    self.before(edge.source, p) <= self.before(edge.target, p),
                    "operator_order", edge.source, edge.target, p,
                )  # fmt: skip

    @family
    def add_configurations(self) -> None:
        r"""A stage in use has one configuration, which suits all its operators.

        .. math:: \sum_{c} \mathit{config}_{p,c} = \mathit{use}_p, \qquad \mathit{in}_{o,p} +
            \mathit{config}_{p,c} \le 1 \quad \forall o \notin O_c, \qquad \sum_{o \in
            O^{\mathrm{experts}}} \mathit{in}_{o,p} \ge \mathit{config}_{p,c} \quad \forall c:\
            e_c > 1

        ``O_c`` operators that configuration c suits; ``e_c`` its expert degree: expert
        parallelism is for stages that hold an operator with experts.

        Tight: pairs that do not go together exclude each other directly, without a product of
        choices.
        """
        for p in self.positions:
            chosen = self._sum(self.config[p, c.index] for c in self.scenario.configs)
            self._add(chosen == self.use[p], "configuration", p)
            for c in self.scenario.configs:
                chosen = self.config[p, c.index]
                for o in self.operators:
                    if not c.allowed[o]:
                        self._add(
                            self.inside(o, p) + chosen <= 1, "configuration_suits", o, p, c.index
                        )
                if c.grid.grid.e > 1:
                    experts = self._sum(
                        self.inside(o, p)
                        for o, operator in enumerate(self.data.workload.operators)
                        if operator.experts
                    )
                    self._add(experts >= chosen, "experts", p, c.index)

    @family
    def add_uniformity(self) -> None:
        r"""If the space asks for it, all stages have the same configuration.

        .. math:: \mathit{config}_{p,c} \le \mathit{config}_{0,c} \qquad \forall p > 0,\ c

        Tight: each stage is compared with the last one only; a stage that is not in use has no
        configuration and satisfies it by itself.
        """
        if not self.data.space.uniform:
            return
        for p in self.positions[1:]:
            for c in self.scenario.configs:
                self._add(
                    self.config[p, c.index] <= self.config[0, c.index], "uniformity", p, c.index
                )

    @family
    def add_chunks(self) -> None:
        r"""Interleaving: a stage's chunks are equal in each repeated kind, and none is empty.

        .. math:: \sum_{o \in O_k} \mathit{in}_{o,p} = v\, \mathit{chunks\_of}_{k,p}, \qquad
            \sum_{o} \mathit{in}_{o,p} \ge v\, \mathit{use}_p \qquad \forall k:\ |O_k| > 1,\
            \forall p

        ``O_k`` operators of kind k; ``v`` chunks a stage (1: the family is empty); ``chunks_of[k,
        p]`` a whole number.

        Tight: an equation with an integer multiple; divisibility has no weaker linear form.
        """
        if self.scenario.schedule.chunks == 1:
            return
        for p in self.positions:
            held = self._sum(self.inside(o, p) for o in self.operators)
            self._add(held >= self.scenario.schedule.chunks * self.use[p], "chunk_not_empty", p)
        for kind, members in self.scenario.members_of_kind:
            if len(members) == 1:
                continue
            for p in self.positions:
                most = len(members) // self.scenario.schedule.chunks
                times = self._whole(most, "chunks_of", kind, p)
                held = self._sum(self.inside(o, p) for o in members)
                self._add(held == self.scenario.schedule.chunks * times, "chunks", kind, p)

    @family
    def add_devices(self) -> None:
        r"""Every role of the chosen grid has a device, and no cell has more than its devices.

        .. math:: \sum_{a} \mathit{role}_{p,g,i,a} = \mathit{grid}_{p,g} \quad \forall p, g, i
            \in I_g, \qquad \sum_{p,g,i} \mathit{role}_{p,g,i,a} \le |a| \quad \forall a

        ``role[p, g, i, a]`` the stage has grid g and the device of its role i is of cell a; a
        cell is a set of ``|a|`` alike devices; ``grid[p, g]`` is the sum of ``config`` over the
        grid's configurations.

        Tight: cells in place of devices leave out all plans that differ by the names of alike
        devices.
        """
        for p in self.positions:
            for g in self.scenario.grids:
                chosen = self.has_grid(p, g)
                for i in range(g.roles):
                    given = self._sum(self.role[p, g.index, i, a.index] for a in self.data.cells)
                    self._add(given == chosen, "devices", p, g.index, i)
        for cell in self.data.cells:
            taken = self._sum(x for (*_, a), x in self.role.items() if a == cell.index)
            self._add(taken <= len(cell.devices), "devices_of_cell", cell.index)
