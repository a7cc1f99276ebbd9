"""SCCL's question: is there an algorithm of S steps and R rounds for C chunks an NPU?

An algorithm has S steps; step t lasts r_t >= 1 rounds, R in all. In step t a link of multiplicity w
carries at most w * r_t chunks, and a chunk that is sent in a step was at its source before that
step. Fewer steps cost less latency, fewer rounds a chunk less bandwidth: the answers for growing S
and R are the Pareto front between the two.

References
----------
Z. Cai et al., Synthesizing optimal collective algorithms, PPoPP 2021.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from nestopt.collective.model.schedule import COPY, REDUCE, Schedule
from nestopt.core.errors import InputError, UsageError
from nestopt.core.result import Limit, Reason, Result, Termination, instance_record
from nestopt.formulations.solvers.adapters import Outcome, solve_cpsat

if TYPE_CHECKING:
    from nestopt.collective.model.instance import CollectiveInstance
    from nestopt.core.options import SolveOptions

__all__ = ["StepModel", "StepSend", "solve_sccl", "step_outcome"]


@dataclass(frozen=True, slots=True)
class StepSend:
    """A chunk crosses from one node to another in a step."""

    chunk: int
    source: int
    target: int
    step: int


class StepModel:
    """The CP-SAT model of one question (S, R); reductions are asked of the time-reversed instance.

    Variables: ``send[c, (u, w), t]``, ``hold[c, v, t]`` (chunk c is at v before step t), and
    ``rounds[t]``.
    """

    def __init__(self, instance: CollectiveInstance, steps: int, rounds: int) -> None:
        from ortools.sat.python import cp_model

        self.instance, self.steps, self.rounds_total = instance, steps, rounds
        self.model = cp_model.CpModel()
        self.width = multiplicities(instance)
        collective = instance.collective
        self.starts, self.ends = (
            collective.source.tolist(),
            [collective.post(c).tolist() for c in range(collective.num_chunks)],
        )
        self.nodes = range(instance.topology.num_nodes)
        self.hold: dict[tuple[int, int, int], Any] = {}
        self.send: dict[tuple[int, tuple[int, int], int], Any] = {}
        most = max(1, rounds - steps + 1)
        self.rounds = [self.model.new_int_var(1, most, f"rounds[{t}]") for t in range(steps)]
        self.add_variables()
        self.add_total_rounds()
        self.add_holding()
        self.add_causality()
        self.add_link_capacity()
        self.add_delivery()
        self.add_symmetry_breaking()

    def add_variables(self) -> None:
        """Holds for every chunk, node and step; sends away from where the chunk starts."""
        for c, start in enumerate(self.starts):
            for t in range(self.steps + 1):
                for v in self.nodes:
                    self.hold[c, v, t] = self.model.new_bool_var(f"hold[{c},{v},{t}]")
                for pair in self.width if t < self.steps else ():
                    if pair[1] != start:
                        name = f"send[{c},{pair[0]}-{pair[1]},{t}]"
                        self.send[c, pair, t] = self.model.new_bool_var(name)

    def add_total_rounds(self) -> None:
        """The rounds of the steps add up to R."""
        self.model.add(sum(self.rounds) == self.rounds_total)

    def add_holding(self) -> None:
        """A node holds a chunk that it started with or that came in an earlier step, once."""
        for c, start in enumerate(self.starts):
            for v in self.nodes:
                self.model.add(self.hold[c, v, 0] == int(v == start))
                for t in range(self.steps):
                    came = [
                        self.send[c, pair, t]
                        for pair in self.width
                        if pair[1] == v and (c, pair, t) in self.send
                    ]
                    self.model.add(self.hold[c, v, t + 1] == self.hold[c, v, t] + sum(came))

    def add_causality(self) -> None:
        """A chunk that is sent in a step was at its source before that step."""
        for (c, pair, t), send in self.send.items():
            self.model.add_implication(send, self.hold[c, pair[0], t])

    def add_link_capacity(self) -> None:
        """A link of multiplicity w carries at most w times the step's rounds."""
        for pair, width in self.width.items():
            for t in range(self.steps):
                load = [x for (_, p, s), x in self.send.items() if p == pair and s == t]
                self.model.add(sum(load) <= width * self.rounds[t])

    def add_delivery(self) -> None:
        """Every target holds its chunk at the end."""
        for c, targets in enumerate(self.ends):
            for v in targets:
                self.model.add(self.hold[c, v, self.steps] == 1)

    def add_symmetry_breaking(self) -> None:
        """Of chunks with the same source and targets the first is nowhere later at one target."""
        for c, (start, ends) in enumerate(zip(self.starts, self.ends)):
            if c and self.starts[c - 1] == start and self.ends[c - 1] == ends:
                v = next((v for v in ends if v != start), start)
                for t in range(self.steps):
                    self.model.add_implication(self.hold[c, v, t], self.hold[c - 1, v, t])

    def solve(self, **settings: Any) -> tuple[Outcome, list[StepSend], list[int]]:
        """The outcome, the sends and the rounds of each step (empty without an algorithm)."""
        outcome = solve_cpsat(self.model, **settings)
        if outcome.values is None:
            return outcome, [], []
        sends = [StepSend(c, *p, t) for (c, p, t), x in self.send.items() if outcome.value(x)]
        return outcome, sends, [outcome.value(r) for r in self.rounds]


def multiplicities(instance: CollectiveInstance) -> dict[tuple[int, int], int]:
    """Links between each pair of nodes, in units of the greatest bandwidth that divides all."""
    topology = instance.topology
    unit = int(np.gcd.reduce(topology.bandwidth))
    width: dict[tuple[int, int], int] = {}
    rows = zip(topology.src.tolist(), topology.dst.tolist(), topology.bandwidth.tolist())
    for u, w, bandwidth in rows:
        width[u, w] = width.get((u, w), 0) + bandwidth // unit
    return width


def step_outcome(
    instance: CollectiveInstance, steps: int, rounds: int, **settings: Any
) -> tuple[Outcome, list[StepSend], list[int]]:
    """Answer one question; `Reason.OPTIMAL` means feasible, `Reason.INFEASIBLE` that it is not.

    Raises
    ------
    InputError
        If the collective mixes directions (All-Reduce, or reductions beside others), if a switch
        cannot multicast, or if there are fewer rounds than steps.
    """
    from nestopt.collective.bounds import reverse_instance

    parts = instance.collective.parts
    backward = all(p.reduction and p.pattern != "all-reduce" for p in parts)
    if any(p.reduction for p in parts) and not backward:
        raise InputError("the step model takes copies or reductions, not both", field="collective")
    if rounds < steps or steps < 1:
        raise InputError(f"{rounds} rounds for {steps} steps; a step has at least one round")
    work = reverse_instance(instance) if backward else instance
    if not work.topology.multicast.all():
        raise InputError("the step model needs switches that can multicast", field="topology")
    return StepModel(work, steps, rounds).solve(**settings)


def solve_sccl(instance: CollectiveInstance, options: SolveOptions) -> Result:
    """Ask SCCL's question and time the algorithm that answers it on the instance's own links.

    ``--set`` keys: ``steps``, ``rounds`` (both needed). The makespan of the schedule is that of the
    link model, every send as early as it can start; ``stats["answer"]`` is ``feasible``,
    ``infeasible`` or ``unknown``. What is proved infeasible is the question, not the instance: the
    reason says so.
    """
    from nestopt.collective.bounds import best_bound
    from nestopt.collective.judge.check import check_schedule

    begin = time.perf_counter()
    numbers = []
    for key in ("steps", "rounds"):
        given = options.set.get(key, "")
        if not given.isdigit() or int(given) < 1:
            raise UsageError(f"--set {key}={given}: expected a positive whole number")
        numbers.append(int(given))
    steps, rounds = numbers
    outcome, sends, lengths = step_outcome(
        instance,
        steps,
        rounds,
        time_limit=options.time_limit,
        threads=options.threads,
        seed=options.seed,
        write_model=options.write_model,
    )
    answers = {Reason.OPTIMAL: "feasible", Reason.INFEASIBLE: "infeasible"}
    answer = answers.get(outcome.termination.reason, "unknown")
    result = Result(
        problem="collective",
        instance=instance_record(instance),
        method="sccl",
        termination=outcome.termination,
        objective=None,
        bound=0,
        seconds=0.0,
        seed=options.seed,
        threads=options.threads,
        stats={"steps": steps, "rounds": rounds, "answer": answer, "rounds_of_steps": lengths},
    )
    if answer == "infeasible":
        result.termination = Termination(Reason.INFEASIBLE)
        result.bound = math.inf
        result.infeasible_because = (f"no algorithm has {steps} steps and {rounds} rounds",)
    elif answer == "feasible":
        bound = best_bound(instance)
        schedule = timed(instance, sends)
        check_schedule(instance, schedule)
        result.objective, result.bound = (
            schedule.makespan_ps,
            min(bound["value"], schedule.makespan_ps),
        )
        result.solution_json = schedule.to_json()
        result.witness = bound["witness"] | {"name": bound["name"]}
        if result.objective > result.bound:
            result.termination = Termination(Reason.FEASIBLE, Limit.ITERATIONS)
    result.seconds = time.perf_counter() - begin
    return result


def timed(instance: CollectiveInstance, sends: list[StepSend]) -> Schedule:
    """The sends of an algorithm on the instance's links, step by step, the idlest link first."""
    from nestopt.collective.bounds import reverse_instance

    backward = instance.collective.has_reduction
    work = reverse_instance(instance) if backward else instance
    topology, sizes = work.topology, work.collective.chunk_sizes
    between: dict[tuple[int, int], list[int]] = {}
    for e, pair in enumerate(zip(topology.src.tolist(), topology.dst.tolist())):
        between.setdefault(pair, []).append(e)
    free = np.zeros(topology.num_links, dtype=np.int64)
    there: dict[tuple[int, int], int] = {}
    links, starts, ends = [], [], []
    ordered = _useful(work, sends)
    for s in ordered:
        size = int(sizes[s.chunk])
        occupancy, transfer = work.occupancy_ps(size), work.transfer_ps(size)
        known = there.get((s.chunk, s.source), 0)
        e = min(
            between[s.source, s.target],
            key=lambda i: (max(known, int(free[i])) + int(transfer[i]), i),
        )
        start = max(known, int(free[e]))
        free[e] = start + int(occupancy[e])
        there[s.chunk, s.target] = start + int(transfer[e])
        links.append(e)
        starts.append(start)
        ends.append(start + int(transfer[e]))
    makespan = max(ends, default=0)
    return Schedule.of(
        [s.chunk for s in ordered],
        links,
        [makespan - end for end in ends] if backward else starts,
        makespan,
        [REDUCE if backward else COPY] * len(ordered),
    )


def _useful(work: CollectiveInstance, sends: list[StepSend]) -> list[StepSend]:
    """The sends in order of their step, without copies to nodes that neither need nor forward."""
    targets = [set(work.collective.post(c).tolist()) for c in range(work.collective.num_chunks)]
    kept = sorted(sends, key=lambda s: (s.step, s.chunk, s.source, s.target))
    while True:
        forwarded = {(s.chunk, s.source) for s in kept}
        useful = [
            s for s in kept if s.target in targets[s.chunk] or (s.chunk, s.target) in forwarded
        ]
        if len(useful) == len(kept):
            return kept
        kept = useful
