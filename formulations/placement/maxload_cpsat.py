"""Max-load partitioning as a constraint program (CP-SAT).

Stages are numbered in pipeline order, one for each device. ``stage[v]`` is unit v's stage,
``accelerator[v, s]`` and ``cpu[v, s]`` say that it is s and of which kind. Times are integers,
rounded down, so that the bound stays valid; the objective is computed anew from the split.

| name | meaning |
| --- | --- |
| `load` | the largest load, the objective (integer, `unit` seconds) |
| `stage[v]` | stage of unit v (integer) |
| `accelerator[v, s]`, `cpu[v, s]` | unit v lies in stage s, of that kind; sum: `inside(v, s)` |
| `kind[s]` | stage s is a CPU |
| `leaves[t, s]`, `enters[t, s]` | stage s pays for transfer t |
"""

from __future__ import annotations

import math
import time
from collections import Counter
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from nestopt.core.errors import InputError
from nestopt.formulations.families import Families, family
from nestopt.formulations.placement.maxload_admission import admission
from nestopt.formulations.placement.maxload_common import (
    finish,
    impossible,
    prepare,
    scaled_progress,
)
from nestopt.formulations.solvers.adapters import solve_cpsat
from nestopt.formulations.solvers.own import add_to_model

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nestopt.core.options import SolveOptions
    from nestopt.core.result import Result
    from nestopt.formulations.families import Addition
    from nestopt.formulations.placement.maxload_common import MaxLoadData
    from nestopt.formulations.solvers.adapters import Outcome
    from nestopt.placement.partitioning.maxload.model import MaxLoadProblem

__all__ = ["MaxLoadCpsat", "solve"]

# Ticks in the starting split's load: rounding down n terms moves a load by at most n ticks
_TICKS = 10**9


def solve(
    problem: MaxLoadProblem, options: SolveOptions, additions: tuple[Addition, ...] = ()
) -> Result:
    """Solve a max-load problem by constraint programming."""
    started = time.perf_counter()

    def keeps(data: MaxLoadData) -> bool:
        return not additions or bool(admission(data, MaxLoadCpsat, additions, options))

    data = prepare(problem, options, keeps)
    if (ended := impossible(data, options, "cpsat")) is not None:
        return ended
    model = MaxLoadCpsat(data, additions)
    seconds = options.time_limit - (time.perf_counter() - started)
    outcome = model.solve(options, max(0.01, seconds))
    return finish(data, options, "cpsat", outcome, time.perf_counter() - started, model)


class MaxLoadCpsat(Families):
    """The model's variables and constraint families.

    Parameters
    ----------
    data : MaxLoadData
    additions : tuple of Addition
        Constraints of a user's own.
    left_out : frozenset of str
        Families to do without.

    Attributes
    ----------
    unit : float
        Seconds of the unit in which the model counts time.
    """

    def __init__(
        self,
        data: MaxLoadData,
        additions: tuple[Addition, ...] = (),
        left_out: frozenset[str] = frozenset(),
    ) -> None:
        from ortools.sat.python import cp_model

        self.data = data
        self.additions, self.left_out = additions, left_out
        self.size_of, self.symbols = {}, Counter()
        self.model = cp_model.CpModel()
        everything = sum(data.units.accelerator_time) + sum(data.units.cpu_time)
        everything += 2 * data.stages * sum(t.cost for t in data.units.transfers)
        self.top = data.cutoff if data.cutoff < math.inf else everything
        self.unit = (self.top or 1.0) / _TICKS
        self._add_variables()
        self.model.minimize(self.load)
        self.add_constraints()

    def add_constraints(self) -> None:
        """All constraint families."""
        self.add_assignment()
        self.add_order()
        self.add_device_kinds()
        self.add_memory()
        self.add_transfers()
        self.add_loads()
        self.add_total_work()
        self.add_additions()

    def _ticks(self, seconds: float) -> int:
        return math.floor(seconds / self.unit)

    @property
    def stages(self) -> range:
        """The stages, in pipeline order."""
        return range(self.data.stages)

    def counts(self) -> tuple[int, int]:
        """Variables and constraints so far."""
        return self.symbols.total(), len(self.model.proto.constraints)

    def require(self, constraint: Any, name: str) -> None:
        """Add a constraint of the solver's own kind; a truth value stands for itself."""
        add_to_model(self.model, constraint, name)

    def fix(self, variable: Any, value: int) -> None:
        """Give a variable its value."""
        self.model.add(variable == value)

    def solve(self, options: SolveOptions, time_limit: float) -> Outcome:
        """Run the solver; objective and bound of the outcome are in units of `unit` seconds."""
        return solve_cpsat(
            self.model,
            time_limit=time_limit,
            threads=options.threads,
            seed=options.seed,
            rel_gap=options.rel_gap,
            warm_start=self.choices() if self.data.start else None,
            write_model=options.write_model,
            progress=scaled_progress(options, self.unit),
        )

    def _add_variables(self) -> None:
        data, model = self.data, self.model
        units = data.units
        self.load = model.new_int_var(self._ticks(data.lower), self._ticks(self.top) + 1, "load")
        self.kind: list[Any] = []
        if data.problem.cpus:
            self.kind = [model.new_bool_var(f"kind_{s}") for s in range(data.stages)]
        self.stage: list[Any] = []
        self.accelerator: dict[tuple[int, int], Any] = {}
        self.cpu: dict[tuple[int, int], Any] = {}
        for v in range(len(units)):
            self.stage.append(model.new_int_var(data.first[v], data.last[v], f"stage_{v}"))
            for s in range(data.first[v], data.last[v] + 1):
                if units.on_accelerator[v]:
                    self.accelerator[v, s] = model.new_bool_var(f"accelerator_{v}_{s}")
                if self.kind:
                    self.cpu[v, s] = model.new_bool_var(f"cpu_{v}_{s}")
        self.leaves: dict[tuple[int, int], Any] = {}
        self.enters: dict[tuple[int, int], Any] = {}
        for t, transfer in enumerate(units.transfers):
            ends = (transfer.home, *transfer.users)
            for s in range(min(data.first[v] for v in ends), max(data.last[v] for v in ends) + 1):
                self.leaves[t, s] = model.new_bool_var(f"leaves_{t}_{s}")
                self.enters[t, s] = model.new_bool_var(f"enters_{t}_{s}")
        tables = ("kind", "stage", "accelerator", "cpu", "leaves", "enters")
        self.symbols = Counter({name: len(getattr(self, name)) for name in tables} | {"load": 1})

    def inside(self, unit: int, stage: int) -> Any:
        """Whether a unit lies in a stage."""
        tables = (self.accelerator, self.cpu)
        return sum(table[unit, stage] for table in tables if (unit, stage) in table)

    @family
    def add_assignment(self) -> None:
        r"""Each unit lies in exactly one stage, on one kind of device that can run it.

        .. math:: \mathrm{ExactlyOne}_{s}\ (\mathit{accelerator}_{v,s}, \mathit{cpu}_{v,s}),
            \qquad \mathit{stage}_v = \sum_{s} s\, (\mathit{accelerator}_{v,s} +
            \mathit{cpu}_{v,s}) \qquad \forall v

        ``accelerator[v, s]``, ``cpu[v, s]`` unit v lies in stage s, of that kind; ``stage[v]``
        its number.

        Tight: a clique over stages and kinds, linked to an integer for the order.
        """
        for v, stage in enumerate(self.stage):
            places = [
                (s, table[v, s])
                for table in (self.accelerator, self.cpu)
                for s in range(self.data.first[v], self.data.last[v] + 1)
                if (v, s) in table
            ]
            self.model.add_exactly_one(place for _, place in places).with_name(f"assignment_{v}")
            number = sum(s * place for s, place in places)
            self.model.add(stage == number).with_name(f"assignment_stage_{v}")

    @family
    def add_order(self) -> None:
        r"""Prefixes of the pipeline are ideals; units far apart in work are far apart in stages.

        .. math:: \mathit{stage}_v \ge \mathit{stage}_u + \delta \qquad \forall (u, v, \delta)
            \in \Delta

        ``Delta`` unit v lies at least delta stages after unit u in every split within the cutoff.

        Tight: precedences with distances propagate along paths.
        """
        for u, v, gap in self.data.gaps:
            later = self.model.add(self.stage[v] >= self.stage[u] + gap)
            later.with_name(f"order_{u}_{v}")

    @family
    def add_device_kinds(self) -> None:
        r"""As many stages are CPUs as there are CPUs; a stage is of one kind.

        .. math:: \sum_{s} \mathit{kind}_s = n^{\mathrm{CPU}}, \qquad \mathit{cpu}_{v,s}
            \Rightarrow \mathit{kind}_s, \qquad \mathit{accelerator}_{v,s} \Rightarrow \neg
            \mathit{kind}_s \qquad \forall v, s

        ``kind[s]`` stage s is a CPU.

        Tight: binary clauses.
        """
        if not self.kind:
            return
        kinds = self.model.add(sum(self.kind) == self.data.problem.cpus)
        kinds.with_name("device_kinds")
        for (v, s), chosen in self.cpu.items():
            implied = self.model.add_implication(chosen, self.kind[s])
            implied.with_name(f"device_kinds_cpu_{v}_{s}")
        for (v, s), chosen in self.accelerator.items():
            implied = self.model.add_implication(chosen, ~self.kind[s])
            implied.with_name(f"device_kinds_acc_{v}_{s}")

    @family
    def add_memory(self) -> None:
        r"""An accelerator's units fit into its memory.

        .. math:: \sum_{v} M_v\, \mathit{accelerator}_{v,s} \le C \qquad \forall s

        ``M`` bytes of a unit, ``C`` bytes of an accelerator; CPUs have no limit.

        Tight: a knapsack; solvers find its covers.
        """
        units = self.data.units
        limit = self.data.problem.accelerator_memory
        if sum(units.memory) <= limit:
            return
        exact = [Fraction(value) for value in (*units.memory, limit)]
        scale = math.lcm(*(value.denominator for value in exact))
        if sum(exact) * scale >= 2**62:
            raise InputError(
                "the memory sizes have too many binary digits for CP-SAT's 64-bit integers; "
                "give whole bytes, or use dp or milp"
            )
        sizes = [int(value * scale) for value in exact]
        for s in range(self.data.stages):
            used = sum(sizes[v] * x for (v, r), x in self.accelerator.items() if r == s)
            self.model.add(used <= sizes[-1]).with_name(f"memory_{s}")

    @family
    def add_transfers(self) -> None:
        r"""An accelerator pays for each output that it makes and hands over, or takes.

        .. math:: \mathit{accelerator}_{h,s} \wedge \neg \mathit{accelerator}_{u,s} \Rightarrow
            \mathit{leaves}_{t,s}, \qquad \mathit{accelerator}_{u,s} \wedge \neg
            \mathit{accelerator}_{h,s} \Rightarrow \mathit{enters}_{t,s} \qquad \forall t = (h,
            U),\ u \in U,\ s

        ``leaves[t, s]``, ``enters[t, s]``: stage s pays for transfer t, from unit h to units U.

        Tight: clauses of three literals.
        """
        for t, transfer in enumerate(self.data.units.transfers):
            for s in range(self.data.stages):
                if (t, s) not in self.leaves:
                    continue
                home = self.accelerator.get((transfer.home, s), False)
                for user in transfer.users:
                    there = self.accelerator.get((user, s), False)
                    name = f"{t}_{s}_{user}"
                    if home is not False:
                        paid = self.model.add_bool_or(self.leaves[t, s], ~home, there)
                        paid.with_name(f"transfers_out_{name}")
                    if there is not False:
                        paid = self.model.add_bool_or(self.enters[t, s], ~there, home)
                        paid.with_name(f"transfers_in_{name}")

    @family
    def add_loads(self) -> None:
        r"""No device is busy longer than the largest load.

        .. math:: \mathit{load} \ge \sum_{v} \lfloor \tau_v \rfloor\, \mathit{accelerator}_{v,s}
            + \sum_{t} \lfloor \gamma_t \rfloor\, (\mathit{leaves}_{t,s} +
            \mathit{enters}_{t,s}), \qquad \mathit{load} \ge \sum_{v} \lfloor
            \tau^{\mathrm{CPU}}_v \rfloor\, \mathit{cpu}_{v,s} \qquad \forall s

        ``tau`` ticks of a unit, ``gamma`` of a transfer, rounded down so that the bound is valid.

        Tight: the domain of ``load`` ends at the starting split's.
        """
        for s in range(self.data.stages):
            busy = self._accelerator_busy(s)
            self.model.add(self.load >= busy).with_name(f"loads_acc_{s}")
            if self.kind:
                busy = self._cpu_busy(s)
                self.model.add(self.load >= busy).with_name(f"loads_cpu_{s}")

    @family
    def add_total_work(self) -> None:
        r"""All devices of a kind together (implied; it tightens the relaxation).

        .. math:: n^{\mathrm{acc}}\, \mathit{load} \ge \sum_{s} \mathit{busy}^{\mathrm{acc}}_s,
            \qquad n^{\mathrm{CPU}}\, \mathit{load} \ge \sum_{s} \mathit{busy}^{\mathrm{CPU}}_s

        ``busy`` seconds of compute and transfers of a stage; ``n`` devices of a kind.

        Tight: the mean over devices, which single stages do not show to the relaxation.
        """
        stages = range(self.data.stages)
        problem = self.data.problem
        busy = sum(self._accelerator_busy(s) for s in stages)
        self.model.add(problem.accelerators * self.load >= busy).with_name("total_work_acc")
        if self.kind:
            busy = sum(self._cpu_busy(s) for s in stages)
            self.model.add(problem.cpus * self.load >= busy).with_name("total_work_cpu")

    def _accelerator_busy(self, stage: int) -> Any:
        units = self.data.units
        compute = sum(
            self._ticks(units.accelerator_time[v]) * x
            for (v, s), x in self.accelerator.items()
            if s == stage
        )
        return compute + sum(
            self._ticks(transfer.cost) * (self.leaves[t, stage] + self.enters[t, stage])
            for t, transfer in enumerate(units.transfers)
            if (t, stage) in self.leaves
        )

    def _cpu_busy(self, stage: int) -> Any:
        times = self.data.units.cpu_time
        return sum(self._ticks(times[v]) * x for (v, s), x in self.cpu.items() if s == stage)

    def choices(self) -> list[tuple[Any, int]]:
        """The starting split's stages: variables with their values."""
        data = self.data
        where = data.start_stage
        values: list[tuple[Any, int]] = list(zip(self.stage, where))
        values += [(x, int(s in data.start_cpu)) for s, x in enumerate(self.kind)]
        for (v, s), x in self.accelerator.items():
            values.append((x, int(where[v] == s and s not in data.start_cpu)))
        for (v, s), x in self.cpu.items():
            values.append((x, int(where[v] == s and s in data.start_cpu)))
        return values

    def read(self, outcome: Any) -> Sequence[tuple[str, Sequence[int]]]:
        """Device kind and units of each stage in the incumbent."""
        stages: list[tuple[str, list[int]]] = []
        for s in range(self.data.stages):
            cpu = bool(self.kind) and outcome.value(self.kind[s]) == 1
            stages.append(("cpu" if cpu else "accelerator", []))
        for v, stage in enumerate(self.stage):
            stages[outcome.value(stage)][1].append(v)
        return stages
