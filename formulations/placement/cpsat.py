"""Placement as a constraint program (CP-SAT), one scenario at a time.

The choices and the families without prices are in `model.py` and its bases.
Where a price depends on several choices, a constraint for each combination holds only if they are
made. Times are integers, rounded down, so the solver's bound is valid; a stage's time has about
eight digits, so the rounding of a whole plan is below `precision` of its price for the sizes that
can be solved (more digits overflow in CP-SAT's presolve, which then loses solutions). Memory is
rounded down too: a plan that does not really fit is found out by the evaluator and its stage
forbidden.

Variables of this model alone:

| name | meaning |
| --- | --- |
| `grid_share[o, p, g]` | operator o is in stage p, which has grid g (binary) |
| `spent[p, f]` | what family f costs the stage (integer, `unit` seconds) |
| `step[p]`, `collective[p, f]` | optimizer step; synchronisation of a family (integer) |
| `both[p]` | the stage has both tied operators (binary) |
| `leaves[u, p, s]` | an edge of u of at least the s-th size crosses the cut (binary) |
| `working[p]`, `gathered[p]` | bytes of the largest operator (integer) |
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from nestopt.formulations.families import family, name_of
from nestopt.formulations.placement.config import DENSE, JOINT, TYPES
from nestopt.formulations.placement.model import PlacementModel
from nestopt.formulations.placement.search import search
from nestopt.formulations.solvers.adapters import solve_cpsat
from nestopt.formulations.solvers.own import add_to_model

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nestopt.core.options import SolveOptions
    from nestopt.core.result import Result
    from nestopt.formulations.families import Addition
    from nestopt.formulations.placement.config import Config
    from nestopt.formulations.placement.scenario import ScenarioData
    from nestopt.formulations.solvers.adapters import Outcome
    from nestopt.placement.model.instance import PlacementInstance

__all__ = ["PlacementCpsat", "solve"]

_TIME_UNITS = 10**8
_MEMORY_UNITS = 10**8
_PARAMETER_UNITS = 10**6


def solve(instance: PlacementInstance, options: SolveOptions) -> Result:
    """Solve a placement instance by constraint programming."""
    return search(instance, options, "cpsat", PlacementCpsat)


class PlacementCpsat(PlacementModel):
    """One scenario's variables and constraint families.

    Parameters
    ----------
    scenario : ScenarioData
    reference : float
        A time like the objective's, seconds.
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
        from ortools.sat.python import cp_model

        super().__init__(scenario, symmetry=symmetry, additions=additions, left_out=left_out)
        self.cutoff = cutoff
        total, largest, _ = scenario.weights
        # an objective is at least this many times its largest stage time
        self.weight = max(1, math.floor(total + largest))
        bound = min(cutoff / self.weight, self._longest_stage())
        self.unit = max(reference / self.weight / _TIME_UNITS, bound / _TIME_UNITS / 100)
        self.most = math.floor(bound / self.unit) + 1
        self.sum = cp_model.LinearExpr.sum
        self.model = cp_model.CpModel()
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

    def _binary(self, *name: Any) -> Any:
        self.symbols[str(name[0])] += 1
        return self.model.new_bool_var(name_of(*name))

    def _whole(self, most: int, *name: Any) -> Any:
        self.symbols[str(name[0])] += 1
        return self.model.new_int_var(0, most, name_of(*name))

    def _add_prices(self) -> None:
        """What the choices cost; times in units."""
        inner = range(self.scenario.positions - 1)
        most = self.most
        families = sorted({f for c in self.scenario.configs for f in c.excess})
        self.spent = {
            (p, f): self._whole(most, "spent", p, f) for p in self.positions for f in families
        }
        self.grid_share = {
            (o, p, g.index): self._binary("grid_share", o, p, g.index)
            for o in self.operators
            for p in self.positions
            for g in self.scenario.grids
        }
        self.line = {
            (p, c.index, f, k, i): self._binary("line", p, c.index, f, k, i)
            for p in self.positions
            for c in self.scenario.configs
            for f, by_class in c.sync.items()
            for k, lines in enumerate(by_class)
            for i in range(len(lines) + 1)
        }
        self.both = {}
        if self.data.workload.tied is not None:
            self.both = {p: self._binary("both", p) for p in self.positions}
        self.cuts: dict[int, list[tuple[float, Any]]] = {p: [] for p in inner}
        self.boundary_time = {p: self._whole(most, "boundary_time", p) for p in inner}
        self.stage_time = {p: self._whole(most, "stage_time", p) for p in self.positions}
        self.largest = self._whole(most, "largest_stage_time")
        self.step = {p: self._whole(most, "step", p) for p in self.positions}
        self.collective = {
            (p, f): self._whole(most, "collective", p, f)
            for p in self.positions
            for f in sorted({f for c in self.scenario.configs for f in c.sync})
        }
        self.sync = self._whole(most, "largest_sync")

    def _longest_stage(self) -> float:
        """A bound on every time in the model, seconds."""
        scenario = self.scenario
        worst = 0.0
        for c in scenario.configs:
            stage = float(c.compute.sum() + c.step.max(axis=0).sum())
            stage += sum(float(x.max(axis=0).sum()) for x in c.excess.values())
            for f, by_class in c.sync.items():
                total = float(self._values(f).sum())
                stage += max(min(a + s * total for a, s in lines) for lines in by_class if lines)
            worst = max(worst, stage)
        bytes_ = scenario.microbatch * self.data.largest_cut
        for _, alpha, beta in scenario.boundary_classes:
            worst = max(worst, 2 * scenario.schedule.crossings * (alpha + bytes_ * beta))
        return 4 * worst

    def _add_objective(self) -> None:
        """The sum of stage times, the largest one and the largest synchronisation, weighted.

        Synchronisation is counted in units that are `weight` times as large.
        """
        total, largest, sync = (round(w * self._scale) for w in self.scenario.weights)
        self.objective = (
            total * self.sum(list(self.stage_time.values()))
            + largest * self.largest
            + sync * self.weight * self.sync
        )
        self.model.minimize(self.objective)

    @property
    def _scale(self) -> int:
        """Factor that makes the objective's weights whole."""
        return self.scenario.schedule.chunks

    # --- shorthands ------------------------------------------------------------------------------

    def _add(self, constraint: Any, *name: Any, when: Sequence[Any] = ()) -> None:
        added = self.model.add(constraint).with_name(name_of(*name))
        if when:
            added.only_enforce_if(*when)

    def counts(self) -> tuple[int, int]:
        """Variables and constraints so far."""
        return self.symbols.total(), len(self.model.proto.constraints)

    def require(self, constraint: Any, name: str) -> None:
        """Add a constraint of CP-SAT's; a truth value stands for itself."""
        add_to_model(self.model, constraint, name)

    def fix(self, variable: Any, value: int) -> None:
        """Give a variable its value."""
        self.model.add(variable == value)

    def _down(self, seconds: float) -> int:
        """A time in units, rounded down; what is beyond every bound is cut to just beyond."""
        return min(math.floor(seconds / self.unit), self.most + 1)

    def _down_sync(self, seconds: float) -> int:
        """A time of synchronisation in its larger units."""
        return self._down(seconds / self.weight)

    def _values(self, family: int) -> Any:
        return self.data.params if family == DENSE else self.data.params_expert

    def _held(self, position: int, prices: Any) -> Any:
        """The sum of whole prices over a stage's operators."""
        return self.sum(
            [int(price) * self.inside(o, position) for o, price in enumerate(prices) if price]
        )

    # --- constraints -----------------------------------------------------------------------------

    @family
    def add_shares(self) -> None:
        r"""An operator meets the grid of its stage.

        .. math:: \sum_{g} \mathit{grid\_share}_{o,p,g} = \mathit{in}_{o,p}, \qquad
            \mathit{grid\_share}_{o,p,g} \le \mathit{grid}_{p,g} \qquad \forall o, p, g

        ``grid_share[o, p, g]`` operator o is in stage p, which has grid g.

        Tight: it only serves the linear relaxation, which knows nothing of enforced prices
        otherwise.
        """
        for p in self.positions:
            for o in self.operators:
                split = self.sum([self.grid_share[o, p, g.index] for g in self.scenario.grids])
                self._add(split == self.inside(o, p), "shares", o, p)
            for g in self.scenario.grids:
                chosen = self.has_grid(p, g)
                for o in self.operators:
                    self._add(self.grid_share[o, p, g.index] <= chosen, "grid_share", o, p, g.index)

    @family
    def add_joint_choices(self) -> None:
        r"""A price that depends on several choices is met exactly if all of them are made.

        .. math:: \sum_{i} \mathit{line}_{p,c,f,k,i} \ge \mathit{config}_{p,c} +
            \mathit{comm}_{p,g,f,k} - 1, \qquad \mathit{line}_{p,c,f,k,i} \le
            \mathit{config}_{p,c}, \qquad \mathit{line}_{p,c,f,k,i} \le \mathit{comm}_{p,g,f,k}

        ``line``: the algorithm that synchronises. All other joint prices are constraints that
        hold only if their choices are made (``OnlyEnforceIf``), so they need no variables of
        their own.

        Tight: clauses of three literals; propagation is complete.
        """
        if self.scenario.weights[2] == 0:
            return
        for p in self.positions:
            for c in self.scenario.configs:
                config = self.config[p, c.index]
                for f, by_class in c.sync.items():
                    for k, lines in enumerate(by_class):
                        key = (p, c.index, f, k)
                        chosen = self._choice(p, c, f, k)
                        row = [self.line[(*key, i)] for i in range(len(lines) + 1)]
                        self._add(self.sum(row) >= config + chosen - 1, "line", *key)
                        for i, line in enumerate(row):
                            self._add(line <= config, "line_config", *key, i)
                            self._add(line <= chosen, "line_class", *key, i)

    @family
    def add_cuts(self) -> None:
        r"""A cut carries, for each operator before it, its largest edge to one behind it.

        .. math:: \mathit{leaves}_{u,p,s} \ge \mathit{late}_{v,p} - \mathit{late}_{u,p} \quad
            \forall (u, v) \in E:\ b_{uv} \ge s, \qquad \text{bytes of cut } p = \sum_{u}
            \sum_{s} (s - s^{-})\, \mathit{leaves}_{u,p,s}

        ``s`` the different sizes of an operator's edges, ``s-`` the next smaller one (0 at
        first): each adds its excess. With a single edge of a size ``leaves`` is the difference
        itself.

        Tight: a maximum over edges as a telescoping sum of binaries, without a continuous
        variable.
        """
        edges: dict[int, list[tuple[float, int]]] = {}
        for edge in self.data.workload.edges:
            edges.setdefault(edge.source, []).append((edge.bytes, edge.target))
        for p, terms in self.cuts.items():
            for u, row in edges.items():
                sizes = sorted({size for size, _ in row})
                for below, size in zip([0.0, *sizes], sizes):
                    targets = [v for bytes_, v in row if bytes_ >= size]
                    crossing = self.before(targets[0], p) - self.before(u, p)
                    if len(targets) > 1:
                        crossing = self._binary("leaves", u, p, sizes.index(size))
                        for v in targets:
                            self._add(
                                crossing >= self.before(v, p) - self.before(u, p),
                                "cut_edge", u, v, p, sizes.index(size),
                            )  # fmt: skip
                    terms.append((size - below, crossing))

    @family
    def add_tied_parameters(self) -> None:
        r"""Shared parameters count once in a stage that has both tied operators.

        .. math:: \mathit{both}_p \le \mathit{in}_{o,p} \qquad \forall p,\ o \in \{\text{first},
            \text{second}\}

        ``both[p]`` the stage has both; it only saves memory and time, so upper bounds suffice.

        Tight: two clauses.
        """
        tied = self.data.workload.tied
        if tied is None:
            return
        for p, both in self.both.items():
            for o in (tied.first, tied.second):
                self._add(both <= self.inside(o, p), "tied", p, o)

    @family
    def add_memory(self) -> None:
        r"""States, activations in flight, working set and buffers fit into the smallest device.

        .. math:: \mathit{config}_{p,c} \Rightarrow \sum_{o} \lfloor M_{o,c,p} \rfloor\,
            \mathit{in}_{o,p} + \mathit{working}_p + \mathit{gathered}_p + \sum_{q \in \{p-1,
            p\}} \lfloor \beta_c\, \text{bytes of cut } q \rfloor \le \sum_{y} \lceil C_y
            \rceil\, \mathit{types}_{p,y} \qquad \forall p, c

        .. math:: \mathit{config}_{p,c} \Rightarrow \mathit{working}_p \ge \lfloor W_{o,c}
            \rfloor\, \mathit{in}_{o,p} \qquad \forall p, c, o

        ``M`` bytes of states and of the activations in flight at position p; ``W`` bytes of which
        the largest operator's count (likewise for ``gathered``); ``beta`` buffer bytes per byte
        of the cuts; ``C_y`` the least usable memory of type set y; all in hundred-millionths of
        the largest. Shared parameters of tied operators count once. What rounding lets through is
        found out by the evaluator.

        Tight: an implication for each configuration, not a big M.
        """
        scenario = self.scenario
        if scenario.always_fits:
            return
        scale = (float(scenario.limits.max()) or 1.0) / _MEMORY_UNITS
        most = _MEMORY_UNITS * 4
        for p in self.positions:
            working, gathered = (self._whole(most, name, p) for name in ("working", "gathered"))
            for c in scenario.configs:
                when = [self.config[p, c.index]]
                need = [working, gathered]
                linear = (c.states + scenario.held(p) * c.stored) / scale
                need.append(self._held(p, [math.floor(x) for x in linear]))
                if self.both:
                    need.append(-math.ceil(c.states_shared / scale) * self.both[p])
                for q in (p - 1, p):
                    for bytes_, crossing in self.cuts.get(q, []):
                        need.append(math.floor(c.buffers * bytes_ / scale) * crossing)
                for o in self.operators:
                    for amount, field in ((working, "working"), (gathered, "gathered")):
                        price = math.floor(getattr(c, field)[o] / scale)
                        if 0 < price <= most and c.allowed[o]:
                            self._add(
                                amount >= price * self.inside(o, p),
                                "memory", field, p, c.index, o, when=when,
                            )  # fmt: skip
                room = self.sum(
                    [
                        math.ceil(limit / scale) * self.types[p, y]
                        for y, limit in enumerate(scenario.limits)
                    ]
                )
                self._add(self.sum(need) <= room, "memory", p, c.index, when=when)

    @family
    def add_boundary_times(self) -> None:
        r"""A boundary takes its class's latency, and its class's rate for what the cut carries.

        .. math:: \mathit{boundary}_{p,k} \Rightarrow \mathit{boundary\_time}_p \ge \lfloor \chi
            \alpha_k \rfloor + \sum_{u,s} \lfloor \chi \beta_k s\,(b - b^{-}) \rfloor\,
            \mathit{leaves}_{u,p,b} \qquad \forall p, k

        ``chi`` crossings of a micro-batch (two, times the chunks); ``alpha`` seconds, ``beta``
        seconds per byte; ``s`` samples of a micro-batch.

        Tight: an implication for each class, linear in binaries.
        """
        scenario = self.scenario
        for p, time in self.boundary_time.items():
            for k, (_, alpha, beta) in enumerate(scenario.boundary_classes):
                twice = scenario.schedule.crossings
                price = [
                    self._down(twice * scenario.microbatch * beta * bytes_) * crossing
                    for bytes_, crossing in self.cuts[p]
                ]
                self._add(
                    time >= self._down(twice * alpha) + self.sum(price),
                    "boundary_time", p, k, when=[self.boundary[p, k]],
                )  # fmt: skip

    @family
    def add_stage_times(self) -> None:
        r"""A stage takes its operators' times and both boundaries'; the largest is at least each.

        .. math:: \mathit{config}_{p,c} \wedge \mathit{comm}_{p,g,f,k} \Rightarrow
            \mathit{spent}_{p,f} \ge \sum_{o} \lfloor \epsilon_{o,c,f,k} \rfloor\,
            \mathit{in}_{o,p} \qquad \forall p, c, f, k

        .. math:: \mathit{stage\_time}_p \ge \sum_{f} \mathit{spent}_{p,f} +
            \mathit{boundary\_time}_{p-1} + \mathit{boundary\_time}_p, \qquad
            \mathit{largest\_stage\_time} \ge \mathit{stage\_time}_p \qquad \forall p

        ``spent[p, f]`` what family f costs the stage; under ``TYPES`` (with ``types`` in place of
        ``comm``) it holds the operators' own times too, and it is at least what the grid's
        cheapest configuration takes, by ``grid_share``.

        Tight: one implication for each combination of choices; the floor by grids is for the
        relaxation.
        """
        configs = self.scenario.configs
        for p in self.positions:
            for c in configs:
                for f, excess in c.excess.items():
                    chosen = self._chosen(p, c, f)
                    for k, row in enumerate(excess):
                        prices = row + c.compute if f == TYPES else row
                        whole = [self._down(x) if ok else 0 for x, ok in zip(prices, c.allowed)]
                        if any(whole):
                            self._add(
                                self.spent[p, f] >= self._held(p, whole),
                                "spent", p, c.index, f, k,
                                when=[self.config[p, c.index], *chosen[k]],
                            )  # fmt: skip
            least = [
                self._least(o, g) * share
                for (o, q, g), share in self.grid_share.items()
                if q == p and self._least(o, g) > 0
            ]
            self._add(self.spent[p, TYPES] >= self.sum(least), "spent_least", p)
            parts = [x for (q, _), x in self.spent.items() if q == p]
            parts += [self.boundary_time[q] for q in (p - 1, p) if q in self.boundary_time]
            self._add(self.stage_time[p] >= self.sum(parts), "stage_time", p)
            self._add(self.largest >= self.stage_time[p], "largest_stage_time", p)

    def _least(self, operator: int, grid: int) -> int:
        """The least time of an operator with any configuration of a grid."""
        return min(
            (
                self._down(c.compute[operator])
                for c in self.scenario.configs
                if c.grid.index == grid and c.allowed[operator]
            ),
            default=0,
        )

    def _chosen(self, position: int, config: Config, family: int) -> list[list[Any]]:
        """What says which class of a family (or type set, or combination) a stage has."""
        if family == JOINT:
            return [
                [self._choice(position, config, f, k) for f, k in zip(config.joined, combination)]
                for combination in config.combinations
            ]
        count = len(config.excess[family])
        return [[self._choice(position, config, family, k)] for k in range(count)]

    def _choice(self, position: int, config: Config, family: int, k: int) -> Any:
        """Whether a stage that has the configuration has a class of a family (or a type set)."""
        if family == TYPES:
            return self.types[position, k]
        return self.comm[position, config.grid.index, family, k]

    @family
    def add_synchronisation(self) -> None:
        r"""The largest synchronisation is at least every stage's, its optimizer step included.

        .. math:: \mathit{config}_{p,c} \wedge \mathit{types}_{p,y} \Rightarrow \mathit{step}_p
            \ge \sum_{o} \lfloor \sigma_{o,c,y} \rfloor\, \mathit{in}_{o,p}, \qquad
            \mathit{line}_{p,c,f,k,i} \Rightarrow \mathit{collective}_{p,f} \ge \lfloor \alpha_i
            \rfloor + \sum_{o} \lfloor \beta_i q_{o,f} \rfloor\, \mathit{in}_{o,p}

        .. math:: \mathit{largest\_sync} \ge \mathit{step}_p + \sum_{f}
            \mathit{collective}_{p,f} \qquad \forall p

        ``sigma`` seconds of the optimizer step; ``q`` parameters of an operator; a collective
        takes the least of its algorithms' lines alpha + beta x, so one line is chosen; the first
        stands for no parameters at all and demands that there are none.

        Tight: an implication for each line, not a big M.
        """
        if self.scenario.weights[2] == 0:
            return
        for p in self.positions:
            for c in self.scenario.configs:
                for y in range(len(self.data.type_sets)):
                    price = self._held(p, [self._down_sync(x) for x in c.step[y]])
                    if self.both:
                        price -= (self._down_sync(c.step_shared[y]) + 1) * self.both[p]
                    self._add(
                        self.step[p] >= price, "step", p, c.index, y,
                        when=[self.config[p, c.index], self.types[p, y]],
                    )  # fmt: skip
                for f in c.sync:
                    self._add_lines(p, c, f)
            parts = [x for (q, _), x in self.collective.items() if q == p]
            self._add(self.sync >= self.sum([self.step[p], *parts]), "sync", p)

    def _add_lines(self, p: int, c: Config, f: int) -> None:
        """The synchronisation of one family, by configuration, class and line."""
        values = self._values(f)
        tied = self.data.workload.tied if f == DENSE else None
        share = _PARAMETER_UNITS / float(values.sum())
        present = self._held(p, [max(1, math.floor(x * share)) if x else 0 for x in values])
        if tied is not None:
            present -= math.ceil(tied.params * share) * self.both[p]
        for k, lines in enumerate(c.sync[f]):
            key = (p, c.index, f, k)
            row = [self.line[(*key, i)] for i in range(len(lines) + 1)]
            self._add(present <= 0, "line_nothing", *key, when=[row[0]])
            for line, (intercept, slope) in zip(row[1:], lines):
                price = self._held(p, [self._down_sync(slope * x) for x in values])
                if tied is not None:
                    price -= (self._down_sync(slope * tied.params) + 1) * self.both[p]
                self._add(
                    self.collective[p, f] >= self._down_sync(intercept) + price,
                    "line_price", *key, lines.index((intercept, slope)), when=[line],
                )  # fmt: skip

    @family
    def add_capacities(self) -> None:
        r"""Within the cutoff, a stage of a configuration holds only so many operators of a kind.

        .. math:: \mathit{config}_{p,c} \Rightarrow \sum_{o \in O_k} \mathit{in}_{o,p} \le
            \left\lfloor \frac{L}{\tau_{k,c}} \right\rfloor, \qquad \mathit{config}_{p,c} \wedge
            \mathit{comm}_{p,g,f,m} \Rightarrow \sum_{o \in O_k} \mathit{in}_{o,p} \le
            \left\lfloor \frac{L}{\tau_{k,c} + \epsilon_{k,c,f,m}} \right\rfloor

        ``L`` the longest stage of a plan within the cutoff, seconds; ``O_k`` operators of kind k.

        Tight: rounding down a quotient that the relaxation takes as it is (a Chvatal cut).
        """
        for p in self.positions:
            for c in self.scenario.configs:
                config = self.config[p, c.index]
                for kind, members in self.scenario.members_of_kind:
                    held = self.sum([self.inside(o, p) for o in members])
                    most = self.scenario.capacity(c, kind, self.cutoff)
                    if most is not None:
                        self._add(held <= most, "capacity", p, c.index, kind, when=[config])
                    for f, excess in c.excess.items():
                        chosen = self._chosen(p, c, f)
                        for k, row in enumerate(excess):
                            extra = float(row[members[0]])
                            least = self.scenario.capacity(c, kind, self.cutoff, extra)
                            if least is not None and least != most:
                                self._add(
                                    held <= least, "capacity", p, c.index, kind, f, k,
                                    when=[config, *chosen[k]],
                                )  # fmt: skip

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
        slack = len(self.operators) + 2 * len(self.positions)
        times = self.sum(list(self.stage_time.values()))
        self._add(times >= self._down(total) - slack, "floor_total")
        self._add(self.largest >= self._down(largest) - slack, "floor_largest")

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
            most = math.floor(self.cutoff * self._scale / self.unit)
            self._add(self.objective <= most, "cutoff")

    # --- solving ---------------------------------------------------------------------------------

    def solve(self, options: SolveOptions, time_limit: float) -> Outcome:
        """Run the solver; objective and bound of the outcome are in units of `unit` seconds."""
        from dataclasses import replace

        found = solve_cpsat(
            self.model,
            time_limit=time_limit,
            threads=options.threads,
            seed=options.seed,
            rel_gap=options.rel_gap,
            write_model=options.write_model,
            progress=options.progress,
            # what holds only if a literal is true has to be in the linear relaxation
            parameters={"linearization_level": 2},
        )
        objective = None if found.objective is None else found.objective / self._scale
        return replace(found, objective=objective, bound=found.bound / self._scale)
