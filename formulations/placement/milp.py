"""Placement as a mixed-integer linear program (PuLP), one scenario at a time.

The choices and the families without prices are in `model.py` and its bases.
Where a price depends on several choices, operators are split over them (``share`` over
configurations, ``part`` over their classes too), which keeps the relaxation tight. Time is counted
in thousandths of a reference time, memory in devices' memories, parameters and cuts in totals.

Variables of this model alone (continuous, from 0 to 1 unless said otherwise):

| name | meaning |
| --- | --- |
| `share[o, p, c]` | operator o is in stage p, which has configuration c |
| `joint[p, c, f, k]` | the stage has configuration c and class k of family f |
| `part[o, p, c, f, k]` | operator o meets both |
| `load[p, c, f, k, i]` | share of all parameters that the line synchronises |
| `tied_share[p, c, y]` | the stage has both tied operators, c and y |
| `cut[p]`, `carried[p, k]` | share of the largest cut; what class k carries of it |
| `working[p]`, `gathered[p]` | bytes of the largest operator, in devices' memories (any size) |
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from nestopt.formulations.families import family, name_of
from nestopt.formulations.placement.config import DENSE, JOINT, TYPES
from nestopt.formulations.placement.model import PlacementModel
from nestopt.formulations.placement.search import search
from nestopt.formulations.solvers.adapters import solve_milp
from nestopt.formulations.solvers.own import add_to_program

if TYPE_CHECKING:
    from nestopt.core.options import SolveOptions
    from nestopt.core.result import Result
    from nestopt.formulations.families import Addition
    from nestopt.formulations.placement.config import Config
    from nestopt.formulations.placement.scenario import ScenarioData
    from nestopt.formulations.solvers.adapters import Outcome
    from nestopt.placement.model.instance import PlacementInstance

__all__ = ["PlacementMilp", "solve"]


def solve(instance: PlacementInstance, options: SolveOptions) -> Result:
    """Solve a placement instance by mixed-integer linear programming."""
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
    additions : tuple of Addition
        Constraints of a user's own.
    left_out : frozenset of str
        Families to do without.
    """

    precision = 5e-7
    as_published = True

    def __init__(
        self,
        scenario: ScenarioData,
        reference: float,
        cutoff: float = math.inf,
        *,
        symmetry: bool = True,
        additions: tuple[Addition, ...] = (),
        left_out: frozenset[str] = frozenset(),
    ) -> None:
        import pulp

        super().__init__(scenario, symmetry=symmetry, additions=additions, left_out=left_out)
        self.unit = reference / 1e3
        self.cutoff = cutoff
        self.sum = pulp.lpSum
        self.program = pulp.LpProblem("placement", pulp.LpMinimize)
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
        self.add_crossing_families()
        self.add_type_sets()
        self.add_shares()
        self.add_joint_choices()
        self.add_boundary_levels()
        self.add_boundary_rates()
        self.add_cuts()
        self.add_tied_parameters()
        self.add_memory()
        self.add_boundary_times()
        self.add_stage_times()
        self.add_synchronisation()
        self.add_capacities()
        self.add_floors()
        self.add_cutoff()
        self.add_additions()

    # --- variables -------------------------------------------------------------------------------

    def _new(self, name: tuple[Any, ...], most: float | None, category: str) -> Any:
        self.symbols[str(name[0])] += 1
        return self.program.add_variable(name_of(*name), 0, most, cat=category)

    def _binary(self, *name: Any) -> Any:
        return self._new(name, 1, "Integer")

    def _whole(self, most: int, *name: Any) -> Any:
        return self._new(name, most, "Integer")

    def _share(self, *name: Any) -> Any:
        return self._new(name, 1, "Continuous")

    def _amount(self, *name: Any) -> Any:
        return self._new(name, None, "Continuous")

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
        self.tied_share = {
            (p, c.index, y): self._share("tied_share", p, c.index, y)
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
            self.program += (constraint, name_of(*name))

    def counts(self) -> tuple[int, int]:
        """Variables and constraints so far."""
        return self.symbols.total(), self.program.numConstraints()

    def require(self, constraint: Any, name: str) -> None:
        """Add a constraint of PuLP's; a truth value stands for itself."""
        add_to_program(self.program, constraint, name)

    def fix(self, variable: Any, value: int) -> None:
        """Give a variable its value."""
        variable.lowBound = variable.upBound = value

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
            self.tied_share[position, config.index, y] for y in range(len(self.data.type_sets))
        )

    # --- constraints -----------------------------------------------------------------------------

    @family
    def add_shares(self) -> None:
        r"""An operator meets the configuration of its stage.

        .. math:: \sum_{c:\ o \in O_c} \mathit{share}_{o,p,c} = \mathit{in}_{o,p}, \qquad
            \mathit{share}_{o,p,c} \le \mathit{config}_{p,c} \qquad \forall o, p, c

        ``share[o, p, c]`` (0 to 1): operator o is in stage p, which has configuration c.

        Tight: the convex hull of the product of ``in`` and ``config`` over all configurations at
        once.
        """
        for p in self.positions:
            for o in self.operators:
                split = self.sum(
                    self.share[o, p, c.index] for c in self.scenario.configs if c.allowed[o]
                )
                self._add(split == self.inside(o, p), "shares", o, p)
            for c in self.scenario.configs:
                for o in self.operators:
                    if c.allowed[o]:
                        share = self.share[o, p, c.index]
                        self._add(share <= self.config[p, c.index], "share", o, p, c.index)

    @family
    def add_joint_choices(self) -> None:
        r"""A price that depends on several choices is met exactly if all of them are made.

        .. math:: \sum_{k} \mathit{joint}_{p,c,f,k} = \mathit{config}_{p,c}, \qquad \sum_{c}
            \mathit{joint}_{p,c,f,k} = \mathit{comm}_{p,g,f,k}, \qquad \sum_{c}
            \mathit{joint}_{p,c,\mathrm{TYPES},y} = \mathit{types}_{p,y}

        .. math:: \sum_{k} \mathit{part}_{o,p,c,f,k} = \mathit{share}_{o,p,c}, \qquad
            \mathit{part}_{o,p,c,f,k} \le \mathit{joint}_{p,c,f,k}, \qquad \sum_{i}
            \mathit{line}_{p,c,f,k,i} = \mathit{joint}_{p,c,f,k}

        ``joint[p, c, f, k]`` (0 to 1): configuration c and class k of family f; ``part[o, p, c,
        f, k]``: the operator meets both; ``line``: the algorithm that synchronises. With overlap,
        classes of X, Y, Z and the type set have combinations of their own under ``JOINT``.

        Tight: marginals of a transport polytope, in place of a big M for each combination.
        """
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
                self._add_combinations(p, c)
                self._add_lines_chosen(p, c)
            for y in range(len(self.data.type_sets)):
                met = self.sum(self.joint[p, c.index, TYPES, y] for c in configs)
                self._add(met == self.types[p, y], "joint_types", p, y)
            for (q, g, f, k), chosen in self.comm.items():
                if q == p:
                    met = self.sum(
                        self.joint[p, c.index, f, k] for c in configs if c.grid.index == g
                    )
                    self._add(met == chosen, "joint_comm", p, g, f, k)

    def _add_lines_chosen(self, p: int, c: Config) -> None:
        """One line of each collective whose class a configuration meets."""
        if self.scenario.weights[2] == 0:
            return
        for f, by_class in c.sync.items():
            for k, lines in enumerate(by_class):
                key = (p, c.index, f, k)
                chosen = self.sum(self.line[(*key, i)] for i in range(len(lines) + 1))
                self._add(chosen == self.joint[key], "line", *key)

    def _add_combinations(self, p: int, c: Config) -> None:
        """A combination of choices is met with each of them."""
        for axis, f in enumerate(c.joined):
            for k in range(len(c.excess[f])):
                met = self.sum(
                    self.joint[p, c.index, JOINT, m]
                    for m, combination in enumerate(c.combinations)
                    if combination[axis] == k
                )
                self._add(
                    met == self.joint[p, c.index, f, k], "joint_combinations", p, c.index, f, k
                )

    @family
    def add_cuts(self) -> None:
        r"""A cut carries, for each operator before it, its largest edge to one behind it.

        .. math:: \mathit{leaving}_{u,p} \ge \frac{b_{uv}}{b}\, (\mathit{late}_{v,p} -
            \mathit{late}_{u,p}) \quad \forall (u, v) \in E, \qquad \mathit{cut}_p = \sum_{u}
            \mathit{leaving}_{u,p} \qquad \forall p

        ``b_uv`` bytes of an edge per sample, ``b`` a bound on every cut: ``cut[p]`` is a share of
        it.

        Tight: an output that several operators take crosses once; the maximum needs no binary.
        """
        total = self.data.largest_cut
        if total == 0:
            return
        for p in range(self.scenario.positions - 1):
            leaving: dict[int, Any] = {}
            for edge in self.data.workload.edges:
                u, v = edge.source, edge.target
                if u not in leaving:
                    leaving[u] = self._amount("leaving", u, p)
                crossing = edge.bytes / total * (self.before(v, p) - self.before(u, p))
                self._add(leaving[u] >= crossing, "cut_edge", u, v, p)
            self._add(self.cut[p] == self.sum(leaving.values()), "cut", p)

    @family
    def add_memory(self) -> None:
        r"""States, activations in flight, working set and buffers fit into the smallest device.

        .. math:: \sum_{o,c} \frac{M_{o,c,p}}{C}\, \mathit{share}_{o,p,c} + \mathit{working}_p +
            \mathit{gathered}_p + \sum_{c} \frac{\beta_c b}{C}\, \mathit{buffered}_{p,c} \le
            \sum_{y} \frac{C_y}{C}\, \mathit{types}_{p,y} \qquad \forall p

        .. math:: \mathit{working}_p \ge \sum_{c} \frac{W_{o,c}}{C}\, \mathit{share}_{o,p,c}
            \quad \forall o, \qquad \sum_{c} \mathit{buffered}_{p,c} \ge \mathit{cut}_{p-1} +
            \mathit{cut}_p, \qquad \mathit{buffered}_{p,c} \le 2\, \mathit{config}_{p,c}

        ``M`` bytes of states and of the activations in flight at position p; ``W`` bytes of which
        the largest operator's count (likewise for ``gathered``); ``beta`` buffer bytes per byte
        of the cuts; ``C_y`` the least usable memory of type set y, ``C`` the largest of them.
        Shared parameters of tied operators count once.

        Tight: bytes are summed over shares, so no constant switches a configuration off.
        """
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
                if self.tied_share:
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

    @family
    def add_boundary_times(self) -> None:
        r"""A boundary takes its class's latency, and its class's rate for what the cut carries.

        .. math:: \mathit{boundary\_time}_p \ge \chi \sum_{k} (\alpha_k\,
            \mathit{boundary}_{p,k} + \beta_k\, b\, s\, \mathit{carried}_{p,k}), \qquad \sum_{k}
            \mathit{carried}_{p,k} \ge \mathit{cut}_p, \qquad \mathit{carried}_{p,k} \le
            \mathit{boundary}_{p,k} \qquad \forall p

        ``chi`` crossings of a micro-batch (two, times the chunks); ``alpha`` seconds, ``beta``
        seconds per byte; ``s`` samples of a micro-batch.

        Tight: the cut is split over classes, which gives the hull of the product of cut and
        class.
        """
        scenario = self.scenario
        times, bytes_ = scenario.schedule.crossings, scenario.microbatch * self.data.largest_cut
        for p in range(scenario.positions - 1):
            carried = self.sum(self.carried[q, k] for q, k in self.carried if q == p)
            self._add(carried >= self.cut[p], "boundary_carries", p)
            price: list[Any] = []
            for k, (_, alpha, beta) in enumerate(scenario.boundary_classes):
                self._add(self.carried[p, k] <= self.boundary[p, k], "boundary_carried", p, k)
                price.append(times * alpha / self.unit * self.boundary[p, k])
                price.append(times * bytes_ * beta / self.unit * self.carried[p, k])
            self._add(self.boundary_time[p] >= self.sum(price), "boundary_time", p)

    @family
    def add_stage_times(self) -> None:
        r"""A stage takes its operators' times and both boundaries'; the largest is at least each.

        .. math:: \mathit{stage\_time}_p \ge \sum_{o,c} \tau_{o,c}\, \mathit{share}_{o,p,c} +
            \sum_{o,c,f,k} \epsilon_{o,c,f,k}\, \mathit{part}_{o,p,c,f,k} +
            \mathit{boundary\_time}_{p-1} + \mathit{boundary\_time}_p \qquad \forall p

        .. math:: \mathit{largest\_stage\_time} \ge \mathit{stage\_time}_p \qquad \forall p

        ``tau`` seconds of an operator with the cheapest communication; ``epsilon`` seconds that a
        class or type set adds.

        Tight: linear in shares; every price is met only by its own choice.
        """
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

    @family
    def add_synchronisation(self) -> None:
        r"""The largest synchronisation is at least every stage's, its optimizer step included.

        .. math:: \mathit{largest\_sync} \ge \sum_{o,c,y} \sigma_{o,c,y}\,
            \mathit{part}_{o,p,c,y} + \sum_{c,f,k,i} (\alpha_i\, \mathit{line}_{p,c,f,k,i} +
            \beta_i Q_f\, \mathit{load}_{p,c,f,k,i}) \qquad \forall p

        .. math:: \sum_{k,i} \mathit{load}_{p,c,f,k,i} \ge \sum_{o} \frac{q_{o,f}}{Q_f}\,
            \mathit{share}_{o,p,c}, \qquad \mathit{load}_{p,c,f,k,i} \le
            \mathit{line}_{p,c,f,k,i}

        ``sigma`` seconds of the optimizer step; ``q`` parameters of an operator, ``Q`` of all; a
        collective takes the least of its algorithms' lines alpha + beta x, so one line is chosen;
        the first stands for no parameters at all.

        Tight: the least of several lines is concave, so a choice is needed; its hull is taken by
        loads.
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
                both = self.tied_share[p, c.index, y]
                terms.append(-float(c.step_shared[y] / self.unit) * both)
        return terms

    def _lines(self, p: int, c: Config, f: int) -> list[Any]:
        """Terms of the synchronisation of one family; the lines' constraints are added."""
        values = self.data.params if f == DENSE else self.data.params_expert
        terms, loads = [], []
        for k, lines in enumerate(c.sync[f]):
            key = (p, c.index, f, k)
            for i, (intercept, slope) in enumerate(lines, start=1):
                line, load = self.line[(*key, i)], self.load[(*key, i)]
                self._add(load <= line, "line_load", *key, i)
                terms.append(intercept / self.unit * line)
                terms.append(float(slope * values.sum() / self.unit) * load)
                loads.append(load)
        self._add(self.sum(loads) >= self._parameters(p, c, f), "line_loads", p, c.index, f)
        return terms

    @family
    def add_tied_parameters(self) -> None:
        r"""Shared parameters count once in a stage that has both tied operators.

        .. math:: \sum_{y} \mathit{tied\_share}_{p,c,y} \le \mathit{share}_{o,p,c} \quad \forall
            o \in \{\text{first}, \text{second}\}, \qquad \mathit{tied\_share}_{p,c,y} \le
            \mathit{joint}_{p,c,\mathrm{TYPES},y} \qquad \forall p, c, y

        ``tied_share[p, c, y]`` (0 to 1): the stage has both, configuration c and type set y; it
        only saves memory and time, so upper bounds suffice.

        Tight: bounded by each of the two shares, the hull of their product.
        """
        tied = self.data.workload.tied
        for (p, c, y), both in self.tied_share.items():
            self._add(both <= self.joint[p, c, TYPES, y], "tied_types", p, c, y)
            if y == 0 and tied is not None:
                total = self._both(p, self.scenario.configs[c])
                for o in (tied.first, tied.second):
                    self._add(total <= self.share.get((o, p, c), 0), "tied", p, c, o)

    @family
    def add_capacities(self) -> None:
        r"""Within the cutoff, a stage of a configuration holds only so many operators of a kind.

        .. math:: \sum_{o \in O_k} \mathit{share}_{o,p,c} \le \left\lfloor \frac{L}{\tau_{k,c}}
            \right\rfloor \mathit{config}_{p,c}, \qquad \sum_{o \in O_k}
            \mathit{part}_{o,p,c,f,m} \le \left\lfloor \frac{L}{\tau_{k,c} + \epsilon_{k,c,f,m}}
            \right\rfloor \mathit{joint}_{p,c,f,m}

        ``L`` the longest stage of a plan within the cutoff, seconds; ``O_k`` operators of kind k.

        Tight: rounding down a quotient that the relaxation takes as it is (a Chvatal cut).
        """
        for p in self.positions:
            for c in self.scenario.configs:
                for kind, members in self.scenario.members_of_kind:
                    held = [self.share[o, p, c.index] for o in members if c.allowed[o]]
                    most = self.scenario.capacity(c, kind, self.cutoff)
                    if held and most is not None:
                        room = most * self.config[p, c.index]
                        self._add(self.sum(held) <= room, "capacity", p, c.index, kind)
                    for f, excess in c.excess.items():
                        for k, row in enumerate(excess):
                            parts = [self.part.get((o, p, c.index, f, k)) for o in members]
                            extra = float(row[members[0]])
                            most = self.scenario.capacity(c, kind, self.cutoff, extra)
                            if None not in parts and most is not None:
                                room = most * self.joint[p, c.index, f, k]
                                self._add(
                                    self.sum(parts) <= room, "capacity", p, c.index, kind, f, k
                                )

    @family
    def add_floors(self) -> None:
        r"""Bounds that hold for every plan of the scenario.

        .. math:: \sum_{p} \mathit{stage\_time}_p \ge \sum_{o} \min_{c} \tau_{o,c}, \qquad
            \mathit{largest\_stage\_time} \ge \max \left( \max_{o} \min_{c} \tau_{o,c},\
            \frac{1}{D} \sum_{o} \min_{c} |I_c| \tau_{o,c},\ \frac{1}{|P|} \sum_{o} \min_{c}
            \tau_{o,c} \right)

        ``D`` alive devices, ``|I_c|`` devices of a configuration: no operator is split over
        stages, and stage time times devices is at least each operator's cheapest device time.

        Tight: implied, but the relaxation does not see them.
        """
        total, largest = self.scenario.floors
        self._add(self.sum(self.stage_time.values()) >= total / self.unit, "floor_total")
        self._add(self.largest >= largest / self.unit, "floor_largest")

    @family
    def add_cutoff(self) -> None:
        r"""Only plans of at most the cutoff are wanted.

        .. math:: w_1 \sum_{p} \mathit{stage\_time}_p + w_2\, \mathit{largest\_stage\_time} +
            w_3\, \mathit{largest\_sync} \le U

        ``w`` weights of the schedule's closed form (MODEL.md, section 5); ``U`` the objective of
        the best plan known, seconds.

        Tight: the objective itself; an infeasible model then proves the bound U.
        """
        if math.isfinite(self.cutoff):
            self._add(self.objective <= self.cutoff / self.unit, "cutoff")

    def solve(self, options: SolveOptions, time_limit: float) -> Outcome:
        """Run the solver; objective and bound of the outcome are in units of `unit` seconds."""
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
