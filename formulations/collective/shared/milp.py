"""Copied sums on a time grid as a MILP; the same families as in `cpsat` beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nestopt.formulations.solvers.adapters import Outcome, solve_milp

if TYPE_CHECKING:
    from nestopt.formulations.collective.grid import GridProblem
    from nestopt.formulations.collective.shared.windows import SetWindows

__all__ = ["SharedMilp"]


class SharedMilp:
    """Is there a schedule of at most `horizon` ticks?

    Variables as in `SharedCpsat`: ``send`` binary, ``came``, ``form`` and ``both`` binary, too, as
    a set that is formed by halves is not formed.
    """

    def __init__(self, problem: GridProblem, horizon: int, windows: SetWindows) -> None:
        import pulp

        self.problem, self.horizon, self.windows = problem, horizon, windows
        self.model = pulp.LpProblem("copied_sums", pulp.LpMinimize)
        self.model += pulp.LpAffineExpression()
        self._sum = pulp.lpSum
        self._rows = 0
        self.send = {
            (*key, t): self._flag("send", *key, t)
            for key, starts in windows.sends.items()
            for t in starts
        }
        self.came: dict[tuple[int, int, int, int], Any] = {}
        self.form: dict[tuple[int, int, int, int], Any] = {}
        for (c, mask, v), first in windows.forms.items():
            for t in range(first, horizon + 1):
                self.form[c, mask, v, t] = self._flag("form", c, mask, v, t)
        self.add_arrival()
        self.add_sum_formation()
        self.add_causality()
        self.add_delivery()
        self.add_link_capacity()
        self.add_switch_messages()
        self.add_symmetry_breaking()

    def _flag(self, name: str, *key: int) -> Any:
        label = "_".join(str(k) for k in key)
        return self.model.add_variable(f"{name}_{label}", 0, 1, cat="Integer")

    def _add(self, constraint: Any, family: str) -> None:
        self._rows += 1
        self.model += (constraint, f"{family}_{self._rows}")

    def _come(self, c: int, mask: int, v: int, t: int) -> Any:
        if mask == self.windows.own(c, v):
            return 1 if self.problem.chunks[c].ready[v] <= t else None
        return self.came.get((c, mask, v, t))

    def _formed(self, c: int, mask: int, v: int, t: int) -> Any:
        if mask == self.windows.own(c, v):
            return self._come(c, mask, v, t)
        return self.form.get((c, mask, v, t))

    def add_arrival(self) -> None:
        r"""What has come to a node came in a message.

        .. math:: came_{c,S,v,t} \le came_{c,S,v,t-1} + \sum_{e \to v} send_{c,S,e,t-\tau_e}
        """
        for c, mask, v in self.windows.arriving:
            if not self.problem.multicast[v]:
                continue
            for t in range(self.horizon + 1):
                ways = [self.send[key] for key in self.windows.arrivals(c, mask, v, t)]
                before = self.came.get((c, mask, v, t - 1))
                if not ways and before is None:
                    continue
                came = self._flag("came", c, mask, v, t)
                self.came[c, mask, v, t] = came
                self._add(came <= self._sum(ways) + (0 if before is None else before), "arrival")

    def add_sum_formation(self) -> None:
        r"""A set is formed of disjoint sets that have come.

        .. math:: form_{c,S,v,t} \le came_{c,S,v,t} + \sum_{A \ni \min S} both_{c,S,A,v,t}

        .. math:: both_{c,S,A,v,t} \le came_{c,A,v,t}, \quad
            both_{c,S,A,v,t} \le form_{c,S\setminus A,v,t}
        """
        for (c, mask, v, t), form in self.form.items():
            ways = [self._come(c, mask, v, t)]
            for part, rest in self.windows.splits(c, mask, v):
                one, other = self._come(c, part, v, t), self._formed(c, rest, v, t)
                if one is None or other is None:
                    continue
                both = self._flag("both", c, mask, part, v, t)
                self._add(both <= one, "sum_formation_came")
                self._add(both <= other, "sum_formation_rest")
                ways.append(both)
            self._add(form <= self._sum(w for w in ways if w is not None), "sum_formation")

    def add_causality(self) -> None:
        """A message leaves a node that can copy only when the node can form what is in it."""
        for (c, mask, e, t), send in self.send.items():
            u = int(self.problem.src[e])
            if self.problem.multicast[u]:
                formed = self._formed(c, mask, u, t)
                self._add(send <= (0 if formed is None else formed), "causality")

    def add_delivery(self) -> None:
        """Every target can form the whole at the end."""
        for c, v in self.windows.deliveries():
            formed = self._formed(c, self.windows.full(c), v, self.horizon)
            # out of reach within the horizon: a sum of nothing is no 1
            self._add(self._sum([] if formed is None else [formed]) >= 1, "delivery")

    def add_link_capacity(self) -> None:
        """A link carries one message at a time."""
        for clique in self.windows.conflicts():
            self._add(self._sum(self.send[key] for key in clique) <= 1, "link_capacity")

    def add_switch_messages(self) -> None:
        """A switch that cannot copy sends on each message that it received at most once."""
        for left, come in self.windows.passed_on():
            total = self._sum(self.send[key] for key in come)
            self._add(self._sum(self.send[key] for key in left) <= total, "switch_messages")

    def add_symmetry_breaking(self) -> None:
        """Of chunks that may change places the first is whole at one node no later."""
        for a, b in self.windows.alike():
            v = max(self.problem.chunks[a].targets)
            for t in range(self.horizon + 1):
                later = self.form.get((b, self.windows.full(b), v, t))
                sooner = self.form.get((a, self.windows.full(a), v, t))
                if later is not None and sooner is not None:
                    self._add(later <= sooner, "symmetry_breaking")

    def solve(self, **settings: Any) -> tuple[Outcome, list[tuple[int, int, int, int]]]:
        """The outcome and the messages (chunk, set, link, start)."""
        outcome = solve_milp(self.model, **settings)
        if outcome.values is None:
            return outcome, []
        return outcome, [key for key, x in self.send.items() if outcome.value(x)]
