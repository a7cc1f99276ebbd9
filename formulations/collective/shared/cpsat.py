"""Copied sums on a time grid as a CP-SAT model; the same families as in `milp` beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nestopt.formulations.solvers.adapters import Outcome, solve_cpsat

if TYPE_CHECKING:
    from nestopt.formulations.collective.grid import GridProblem
    from nestopt.formulations.collective.shared.windows import SetWindows

__all__ = ["SharedCpsat"]


class SharedCpsat:
    """Is there a schedule of at most `horizon` ticks?

    Variables, all Boolean: ``send[c, S, e, t]``, the set S of chunk c starts on link e at tick t;
    ``came[c, S, v, t]``, it has come to node v by tick t; ``form[c, S, v, t]``, node v can form it
    at tick t; ``both[c, S, A, v, t]``, by adding A, which came, to the rest.
    """

    def __init__(self, problem: GridProblem, horizon: int, windows: SetWindows) -> None:
        from ortools.sat.python import cp_model

        self.problem, self.horizon, self.windows = problem, horizon, windows
        self.model = cp_model.CpModel()
        self.send = {
            (*key, t): self.model.new_bool_var(f"send{[*key, t]}")
            for key, starts in windows.sends.items()
            for t in starts
        }
        self.came: dict[tuple[int, int, int, int], Any] = {}
        self.form: dict[tuple[int, int, int, int], Any] = {}
        for (c, mask, v), first in windows.forms.items():
            for t in range(first, horizon + 1):
                self.form[c, mask, v, t] = self.model.new_bool_var(f"form{[c, mask, v, t]}")
        self.add_arrival()
        self.add_sum_formation()
        self.add_causality()
        self.add_delivery()
        self.add_link_capacity()
        self.add_switch_messages()
        self.add_symmetry_breaking()

    def _come(self, c: int, mask: int, v: int, t: int) -> Any:
        """Whether a set has come to a node: a literal, True, or None for never."""
        if mask == self.windows.own(c, v):
            return self.problem.chunks[c].ready[v] <= t or None
        return self.came.get((c, mask, v, t))

    def add_arrival(self) -> None:
        r"""What has come to a node came in a message.

        .. math:: came_{c,S,v,t} \Rightarrow came_{c,S,v,t-1} \vee
            \bigvee_{e \to v} send_{c,S,e,t-\tau_e}
        """
        for c, mask, v in self.windows.arriving:
            if not self.problem.multicast[v]:
                continue
            for t in range(self.horizon + 1):
                ways = [self.send[key] for key in self.windows.arrivals(c, mask, v, t)]
                before = self.came.get((c, mask, v, t - 1))
                if not ways and before is None:
                    continue
                came = self.model.new_bool_var(f"came{[c, mask, v, t]}")
                self.came[c, mask, v, t] = came
                self.model.add_bool_or([*ways, *([] if before is None else [before]), ~came])

    def add_sum_formation(self) -> None:
        r"""A set is formed of disjoint sets that have come.

        .. math:: form_{c,S,v,t} \Rightarrow came_{c,S,v,t} \vee
            \bigvee_{A \ni \min S} (came_{c,A,v,t} \wedge form_{c,S \setminus A,v,t})
        """
        for (c, mask, v, t), form in self.form.items():
            ways = [self._come(c, mask, v, t)]
            for part, rest in self.windows.splits(c, mask, v):
                one, other = self._come(c, part, v, t), self._formed(c, rest, v, t)
                if one is None or other is None:
                    continue
                if one is True or other is True:
                    ways.append(other if one is True else one)
                    continue
                both = self.model.new_bool_var(f"both{[c, mask, part, v, t]}")
                self.model.add_implication(both, one)
                self.model.add_implication(both, other)
                ways.append(both)
            if not any(way is True for way in ways):
                self.model.add_bool_or([*(way for way in ways if way is not None), ~form])

    def _formed(self, c: int, mask: int, v: int, t: int) -> Any:
        """Whether a node can form a set: a literal, True, or None for never."""
        if mask == self.windows.own(c, v):
            return self._come(c, mask, v, t)
        return self.form.get((c, mask, v, t))

    def add_causality(self) -> None:
        """A message leaves a node that can copy only when the node can form what is in it."""
        for (c, mask, e, t), send in self.send.items():
            u = int(self.problem.src[e])
            if not self.problem.multicast[u]:
                continue
            formed = self._formed(c, mask, u, t)
            if formed is None:
                self.model.add_bool_and([~send])
            elif formed is not True:
                self.model.add_implication(send, formed)

    def add_delivery(self) -> None:
        """Every target can form the whole at the end."""
        for c, v in self.windows.deliveries():
            formed = self._formed(c, self.windows.full(c), v, self.horizon)
            self.model.add_bool_or([] if formed is None else [formed])

    def add_link_capacity(self) -> None:
        """A link carries one message at a time."""
        for clique in self.windows.conflicts():
            self.model.add_at_most_one(self.send[key] for key in clique)

    def add_switch_messages(self) -> None:
        """A switch that cannot copy sends on each message that it received at most once."""
        for left, come in self.windows.passed_on():
            self.model.add(sum(self.send[k] for k in left) <= sum(self.send[k] for k in come))

    def add_symmetry_breaking(self) -> None:
        """Of chunks that may change places the first is whole at one node no later."""
        for a, b in self.windows.alike():
            v = max(self.problem.chunks[a].targets)
            for t in range(self.horizon + 1):
                later = self.form.get((b, self.windows.full(b), v, t))
                sooner = self.form.get((a, self.windows.full(a), v, t))
                if later is not None and sooner is not None:
                    self.model.add_implication(later, sooner)

    def solve(self, **settings: Any) -> tuple[Outcome, list[tuple[int, int, int, int]]]:
        """The outcome and the messages (chunk, set, link, start)."""
        outcome = solve_cpsat(self.model, **settings)
        if outcome.values is None:
            return outcome, []
        return outcome, [key for key, x in self.send.items() if outcome.value(x)]
