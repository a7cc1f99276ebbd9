"""Max-load partitioning as a mixed-integer linear program (PuLP).

Stages are numbered in pipeline order, one for each device. ``within[v, s]`` says that unit v lies
in one of the stages 0..s (the stages' prefixes are nested ideals), ``cpu[v, s]`` that it lies in
stage s and that stage is a CPU. Time is counted in thousandths of the starting split's load.

| name | meaning |
| --- | --- |
| `load` | the largest load, the objective (continuous, `unit` seconds) |
| `within[v, s]` | unit v lies in one of the stages 0 to s; `inside(v, s)` is in(v, s) |
| `cpu[v, s]`, `kind[s]` | unit v lies in stage s, a CPU; stage s is a CPU |
| `leaves[t, s]`, `enters[t, s]` | stage s pays for transfer t (0 to 1) |
"""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from nestopt.formulations.families import Families, family
from nestopt.formulations.placement.maxload_admission import admission
from nestopt.formulations.placement.maxload_common import (
    finish,
    impossible,
    prepare,
    scaled_progress,
)
from nestopt.formulations.solvers.adapters import solve_milp
from nestopt.formulations.solvers.own import add_to_program

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nestopt.core.options import SolveOptions
    from nestopt.core.result import Result
    from nestopt.formulations.families import Addition
    from nestopt.formulations.placement.maxload_common import MaxLoadData
    from nestopt.formulations.solvers.adapters import Outcome
    from nestopt.placement.partitioning.maxload.model import MaxLoadProblem

__all__ = ["MaxLoadMilp", "solve"]


def solve(
    problem: MaxLoadProblem, options: SolveOptions, additions: tuple[Addition, ...] = ()
) -> Result:
    """Solve a max-load problem by mixed-integer linear programming."""
    started = time.perf_counter()

    def keeps(data: MaxLoadData) -> bool:
        return not additions or bool(admission(data, MaxLoadMilp, additions, options))

    data = prepare(problem, options, keeps)
    if (ended := impossible(data, options, "milp")) is not None:
        return ended
    model = MaxLoadMilp(data, additions)
    seconds = options.time_limit - (time.perf_counter() - started)
    outcome = model.solve(options, max(0.01, seconds))
    return finish(data, options, "milp", outcome, time.perf_counter() - started, model)


class MaxLoadMilp(Families):
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
        import pulp

        self.data = data
        self.additions, self.left_out = additions, left_out
        self.size_of, self.symbols = {}, Counter()
        self.unit = (data.cutoff if 0 < data.cutoff < float("inf") else data.lower or 1.0) / 1e3
        self.sum = pulp.lpSum
        self.program = pulp.LpProblem("maxload", pulp.LpMinimize)
        self._add_variables()
        self.program += self.load
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

    @property
    def stages(self) -> range:
        """The stages, in pipeline order."""
        return range(self.data.stages)

    def counts(self) -> tuple[int, int]:
        """Variables and constraints so far."""
        return self.symbols.total(), self.program.numConstraints()

    def require(self, constraint: Any, name: str) -> None:
        """Add a constraint of the solver's own kind; a truth value stands for itself."""
        add_to_program(self.program, constraint, name)

    def fix(self, variable: Any, value: int) -> None:
        """Give a variable its value."""
        variable.lowBound = variable.upBound = value

    def solve(self, options: SolveOptions, time_limit: float) -> Outcome:
        """Run the solver; objective and bound of the outcome are in units of `unit` seconds."""
        return solve_milp(
            self.program,
            backend=options.backend,
            time_limit=time_limit,
            threads=options.threads,
            seed=options.seed,
            rel_gap=options.rel_gap,
            warm_start=self.start() if self.data.start else None,
            write_model=options.write_model,
            progress=scaled_progress(options, self.unit),
        )

    def _add_variables(self) -> None:
        data, program = self.data, self.program
        units, stages = data.units, range(data.stages)
        self.load = program.add_variable("load", data.lower / self.unit)
        self.kind: dict[int, Any] = {}
        self.within: dict[tuple[int, int], Any] = {}
        self.cpu: dict[tuple[int, int], Any] = {}
        if data.problem.cpus:
            self.kind = {s: program.add_variable(f"kind_{s}", 0, 1, cat="Integer") for s in stages}
        for v in range(len(units)):
            for s in range(data.first[v], data.last[v]):
                self.within[v, s] = program.add_variable(f"within_{v}_{s}", 0, 1, cat="Integer")
            for s in range(data.first[v], data.last[v] + 1):
                if self.kind:
                    self.cpu[v, s] = program.add_variable(f"cpu_{v}_{s}", 0, 1, cat="Integer")
        self.leaves: dict[tuple[int, int], Any] = {}
        self.enters: dict[tuple[int, int], Any] = {}
        for t, transfer in enumerate(units.transfers):
            ends = (transfer.home, *transfer.users)
            for s in range(min(data.first[v] for v in ends), max(data.last[v] for v in ends) + 1):
                self.leaves[t, s] = program.add_variable(f"leaves_{t}_{s}", 0, 1)
                self.enters[t, s] = program.add_variable(f"enters_{t}_{s}", 0, 1)
        tables = ("kind", "within", "cpu", "leaves", "enters")
        self.symbols = Counter({name: len(getattr(self, name)) for name in tables} | {"load": 1})

    def _prefix(self, unit: int, stage: int) -> Any:
        """Whether a unit lies in one of the stages up to `stage`."""
        if stage >= self.data.last[unit]:
            return 1
        return self.within.get((unit, stage), 0)

    def inside(self, unit: int, stage: int) -> Any:
        """Whether a unit lies in a stage."""
        return self._prefix(unit, stage) - self._prefix(unit, stage - 1)

    def _on_accelerator(self, unit: int, stage: int) -> Any:
        """Whether a unit lies in a stage, which is an accelerator."""
        return self.inside(unit, stage) - self.cpu.get((unit, stage), 0)

    @family
    def add_assignment(self) -> None:
        r"""Each unit lies in exactly one stage, on one kind of device that can run it.

        .. math:: \mathit{in}_{v,s} = \mathit{within}_{v,s} - \mathit{within}_{v,s-1}, \qquad
            \mathit{acc}_{v,s} = \mathit{in}_{v,s} - \mathit{cpu}_{v,s} \ge 0 \qquad \forall v,
            s

        ``within[v, s]`` unit v lies in one of the stages 0 to s; ``cpu[v, s]`` it lies in s, a
        CPU; of a unit that no accelerator can run ``acc`` is 0.

        Tight: prefix variables; the stages' prefixes are nested ideals.
        """
        data = self.data
        for v in range(len(data.units)):
            for s in range(data.first[v], data.last[v] + 1):
                share = self._on_accelerator(v, s)
                if data.units.on_accelerator[v]:
                    self._at_least(share, 0, f"assignment_{v}_{s}")
                else:
                    self._equal(share, 0, f"assignment_{v}_{s}")

    @family
    def add_order(self) -> None:
        r"""Prefixes of the pipeline are ideals; units far apart in work are far apart in stages.

        .. math:: \mathit{within}_{v,s+\delta} \le \mathit{within}_{u,s} \qquad \forall (u, v,
            \delta) \in \Delta,\ s

        ``Delta`` unit v lies at least delta stages after unit u in every split within the cutoff.

        Tight: totally unimodular; the distances come from the work that lies between.
        """
        for u, v, gap in self.data.gaps:
            for s in range(self.data.stages - gap):
                self._at_least(
                    self._prefix(u, s) - self._prefix(v, s + gap), 0, f"order_{u}_{v}_{s}"
                )

    @family
    def add_device_kinds(self) -> None:
        r"""As many stages are CPUs as there are CPUs; a stage is of one kind.

        .. math:: \sum_{s} \mathit{kind}_s = n^{\mathrm{CPU}}, \qquad \mathit{cpu}_{v,s} \le
            \mathit{kind}_s, \qquad \mathit{acc}_{v,s} \le 1 - \mathit{kind}_s \qquad \forall v,
            s

        ``kind[s]`` stage s is a CPU.

        Tight: each unit by itself, without a constant.
        """
        data = self.data
        if not self.kind:
            return
        self._equal(self.sum(self.kind.values()), data.problem.cpus, "device_kinds")
        for (v, s), chosen in self.cpu.items():
            self._at_least(self.kind[s] - chosen, 0, f"device_kinds_cpu_{v}_{s}")
            self._at_least(
                1 - self.kind[s] - self._on_accelerator(v, s), 0, f"device_kinds_acc_{v}_{s}"
            )

    @family
    def add_memory(self) -> None:
        r"""An accelerator's units fit into its memory.

        .. math:: \sum_{v} M_v\, \mathit{acc}_{v,s} \le C \qquad \forall s

        ``M`` bytes of a unit, ``C`` bytes of an accelerator; CPUs have no limit.

        Tight: a knapsack; solvers find its covers.
        """
        data = self.data
        limit = data.problem.accelerator_memory
        if sum(data.units.memory) <= limit:
            return
        for s in range(data.stages):
            used = self.sum(
                memory / limit * self._on_accelerator(v, s)
                for v, memory in enumerate(data.units.memory)
                if data.units.on_accelerator[v]
            )
            self._at_least(1 - used, 0, f"memory_{s}")

    @family
    def add_transfers(self) -> None:
        r"""An accelerator pays for each output that it makes and hands over, or takes.

        .. math:: \mathit{leaves}_{t,s} \ge \mathit{acc}_{h,s} - \mathit{acc}_{u,s}, \qquad
            \mathit{enters}_{t,s} \ge \mathit{acc}_{u,s} - \mathit{acc}_{h,s} \qquad \forall t =
            (h, U),\ u \in U,\ s

        ``leaves[t, s]``, ``enters[t, s]`` (0 to 1): stage s pays for transfer t, from unit h to
        units U.

        Tight: a difference of binaries for each user; the maximum needs no binary.
        """
        for t, transfer in enumerate(self.data.units.transfers):
            for s in range(self.data.stages):
                if (t, s) not in self.leaves:
                    continue
                home = self._on_accelerator(transfer.home, s)
                for user in transfer.users:
                    there = self._on_accelerator(user, s)
                    name = f"{t}_{s}_{user}"
                    self._at_least(self.leaves[t, s] - home + there, 0, f"transfers_out_{name}")
                    self._at_least(self.enters[t, s] - there + home, 0, f"transfers_in_{name}")

    @family
    def add_loads(self) -> None:
        r"""No device is busy longer than the largest load, and no stage does both kinds of work.

        .. math:: \mathit{load} \ge \mathit{busy}^{\mathrm{acc}}_s = \sum_{v} \tau_v\,
            \mathit{acc}_{v,s} + \sum_{t} \gamma_t\, (\mathit{leaves}_{t,s} +
            \mathit{enters}_{t,s}), \qquad \mathit{load} \ge \mathit{busy}^{\mathrm{CPU}}_s =
            \sum_{v} \tau^{\mathrm{CPU}}_v\, \mathit{cpu}_{v,s} \qquad \forall s

        .. math:: \mathit{busy}^{\mathrm{acc}}_s \le U\, (1 - \mathit{kind}_s), \qquad
            \mathit{busy}^{\mathrm{CPU}}_s \le U\, \mathit{kind}_s \qquad \forall s

        ``tau`` seconds of a unit, ``gamma`` of a transfer; ``U`` load of the starting split
        (without one the second line is missing: it is implied by the kinds).

        Tight: U is the least constant known.
        """
        data = self.data
        top = data.cutoff / self.unit
        for s in range(data.stages):
            busy = self._accelerator_busy(s)
            self._at_least(self.load - busy, 0, f"loads_acc_{s}")
            if self.kind:
                busy_cpu = self._cpu_busy(s)
                self._at_least(self.load - busy_cpu, 0, f"loads_cpu_{s}")
                if top < float("inf"):
                    self._at_least(top * (1 - self.kind[s]) - busy, 0, f"loads_kind_acc_{s}")
                    self._at_least(top * self.kind[s] - busy_cpu, 0, f"loads_kind_cpu_{s}")

    @family
    def add_total_work(self) -> None:
        r"""All devices of a kind together (implied; it tightens the relaxation).

        .. math:: n^{\mathrm{acc}}\, \mathit{load} \ge \sum_{s} \mathit{busy}^{\mathrm{acc}}_s,
            \qquad n^{\mathrm{CPU}}\, \mathit{load} \ge \sum_{s} \mathit{busy}^{\mathrm{CPU}}_s

        ``busy`` seconds of compute and transfers of a stage; ``n`` devices of a kind.

        Tight: the mean over devices, which single stages do not show to the relaxation.
        """
        data = self.data
        stages = range(data.stages)
        everything = self.sum(self._accelerator_busy(s) for s in stages)
        self._at_least(data.problem.accelerators * self.load - everything, 0, "total_work_acc")
        if self.kind:
            everything = self.sum(self._cpu_busy(s) for s in stages)
            self._at_least(data.problem.cpus * self.load - everything, 0, "total_work_cpu")

    def _accelerator_busy(self, stage: int) -> Any:
        units = self.data.units
        compute = self.sum(
            time / self.unit * self._on_accelerator(v, stage)
            for v, time in enumerate(units.accelerator_time)
            if units.on_accelerator[v] and self.data.first[v] <= stage <= self.data.last[v]
        )
        return compute + self.sum(
            transfer.cost / self.unit * (self.leaves[t, stage] + self.enters[t, stage])
            for t, transfer in enumerate(units.transfers)
            if (t, stage) in self.leaves
        )

    def _cpu_busy(self, stage: int) -> Any:
        return self.sum(
            self.data.units.cpu_time[v] / self.unit * chosen
            for (v, s), chosen in self.cpu.items()
            if s == stage
        )

    def _at_least(self, expression: Any, bound: float, name: str) -> None:
        if not isinstance(expression, int | float):
            self.program += (expression >= bound, name)

    def _equal(self, expression: Any, bound: float, name: str) -> None:
        self.program += (expression == bound, name)

    def choices(self) -> list[tuple[Any, int]]:
        """The starting split's stages: variables with their values."""
        where, cpus = self.data.start_stage, self.data.start_cpu
        found = [(x, int(s in cpus)) for s, x in self.kind.items()]
        found += [(x, int(where[v] <= s)) for (v, s), x in self.within.items()]
        return found + [(x, int(where[v] == s and s in cpus)) for (v, s), x in self.cpu.items()]

    def start(self) -> dict[str, float]:
        """Values of the variables in the starting split."""
        data = self.data
        where = data.start_stage
        values = {"load": data.cutoff / self.unit}
        values |= {x.name: float(value) for x, value in self.choices()}
        for t, transfer in enumerate(data.units.transfers):
            ends = {where[user] for user in transfer.users}
            home = where[transfer.home]
            for s in range(data.stages):
                if (t, s) not in self.leaves:
                    continue
                paying = s not in data.start_cpu
                values[self.leaves[t, s].name] = float(paying and s == home and ends != {home})
                values[self.enters[t, s].name] = float(paying and s != home and s in ends)
        return values

    def read(self, outcome: Any) -> Sequence[tuple[str, Sequence[int]]]:
        """Device kind and units of each stage in the incumbent."""
        data = self.data
        stages: list[tuple[str, list[int]]] = []
        for s in range(data.stages):
            cpu = bool(self.kind) and outcome.value(self.kind[s]) == 1
            stages.append(("cpu" if cpu else "accelerator", []))
        for v in range(len(data.units)):
            passed = sum(
                1 - outcome.value(self.within[v, s]) for s in range(data.first[v], data.last[v])
            )
            stages[data.first[v] + passed][1].append(v)
        return stages
