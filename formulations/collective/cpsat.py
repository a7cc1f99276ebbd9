"""The collective problem on a time grid as a CP-SAT model.

Is there a schedule of at most `horizon` ticks? The families of constraints have the names that they
have in `nestopt.formulations.collective.milp`, so that the two files read side by side.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from nestopt.formulations.collective.grid import GridProblem, Send
from nestopt.formulations.collective.windows import Windows
from nestopt.formulations.families import Families, family
from nestopt.formulations.solvers.adapters import Outcome, solve_cpsat
from nestopt.formulations.solvers.own import add_to_model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from nestopt.formulations.collective.symmetry import Symmetry
    from nestopt.formulations.families import Addition

__all__ = ["CollectiveCpsat"]


class CollectiveCpsat(Families):
    """Feasibility of a `GridProblem` within a horizon.

    Variables (each only at the ticks where it can be true, see `Windows`), all Boolean:

    - ``send[c, e, t]``: a copy of chunk c (of a sum: of the whole) starts on link e at tick t;
    - ``part[c, e, t]``: what the source of e has of the sum c starts to move over e at tick t;
    - ``whole[c, v, t]``: the sum c becomes whole at node v at tick t;
    - ``hold[c, v, t]``: node v holds chunk c (the whole sum) at tick t;
    - ``done[c, v, t]``: by tick t node v has passed on what it had of the sum c, or has it whole.
    """

    def __init__(
        self,
        problem: GridProblem,
        horizon: int,
        symmetries: Sequence[Symmetry] = (),
        stop: Callable[[], None] = lambda: None,
        additions: tuple[Addition, ...] = (),
        left_out: frozenset[str] = frozenset(),
    ) -> None:
        from ortools.sat.python import cp_model

        self.problem, self.symmetries, self._stop = problem, symmetries, stop
        self.additions, self.left_out = additions, left_out
        self.size_of, self.symbols = {}, Counter()
        self.horizon = horizon
        self.windows = Windows(problem, horizon)
        self.model = cp_model.CpModel()
        self.send = {k: self._flag("send", k) for k in self.windows.sends()}
        self.part = {k: self._flag("part", k) for k in self.windows.parts()}
        self.whole = {k: self._flag("whole", k) for k in self.windows.wholes()}
        self.hold = {k: self._flag("hold", k) for k in self.windows.holds()}
        self.done = {k: self._flag("done", k) for k in self.windows.dones()}
        for name in ("send", "part", "whole", "hold", "done"):
            self.symbols[name] = len(getattr(self, name))
        self.add_constraints()

    def _flag(self, name: str, key: tuple[int, int, int]) -> Any:
        return self.model.new_bool_var(f"{name}[{key[0]},{key[1]},{key[2]}]")

    def stop(self) -> None:
        """Raise what `stop` raises once the time is over."""
        self._stop()

    def counts(self) -> tuple[int, int]:
        """Variables and constraints so far."""
        return self.symbols.total(), len(self.model.proto.constraints)

    def require(self, constraint: Any, name: str) -> None:
        """Add a constraint of the solver's own kind; a truth value stands for itself."""
        add_to_model(self.model, constraint, name)

    def fix(self, variable: Any, value: int) -> None:
        """Give a variable its value."""
        self.model.add(variable == value)

    def add_constraints(self) -> None:
        """All constraint families."""
        self.add_delivery()
        self.add_single_arrival()
        self.add_holding()
        self.add_causality()
        self.add_link_capacity()
        self.add_port_capacity()
        self.add_switch_copies()
        self.add_sum_formation()
        self.add_sum_progress()
        self.add_no_late_contribution()
        self.add_switch_parts()
        self.add_symmetry_breaking()
        self.add_additions()
        self.stop()

    @family
    def add_delivery(self) -> None:
        r"""Every target holds its chunk at the end.

        .. math:: \mathrm{ExactlyOne}_{t}\ \mathit{arrive}_{c,v,t} \qquad \forall c,\ v \in
            \mathrm{post}(c)

        ``arrive[c, v, t]`` stands for the sends of chunk c that arrive at v at tick t, and for
        ``whole[c, v, t]``.

        Tight: exactly one of the literals, a clique and a clause at once.
        """
        for c, v in self.windows.deliveries():
            arrivals = self._arrivals(c, v)
            self.model.add_exactly_one(arrivals) if arrivals else self.model.add_bool_or([])

    @family
    def add_single_arrival(self) -> None:
        r"""A node that can multicast receives a chunk at most once.

        .. math:: \mathrm{AtMostOne}_{t}\ \mathit{arrive}_{c,v,t} \qquad \forall c,\ v \notin
            \mathrm{post}(c)

        Nodes that relay the chunk but need not hold it.

        Tight: one clique over all links and ticks.
        """
        for c, v in self.windows.relays():
            self.model.add_at_most_one(self._arrivals(c, v))

    @family
    def add_holding(self) -> None:
        r"""A node holds a chunk from the tick at which it arrives (or becomes whole) on.

        .. math:: \mathit{hold}_{c,v,t} \Leftrightarrow \mathit{hold}_{c,v,t-1} \vee \bigvee
            \mathit{arrive}_{c,v,t} \qquad \forall c, v, t

        ``hold[c, v, t]`` node v holds chunk c at tick t; sources hold theirs from the beginning.

        Tight: both directions as clauses; what holds now holds later.
        """
        for (c, v, t), hold in self.hold.items():
            gains = self._arrivals(c, v, t)
            before = self.hold.get((c, v, t - 1))
            if before is not None:
                self.model.add_implication(before, hold)
                gains.append(before)
            for gain in gains:
                self.model.add_implication(gain, hold)
            self.model.add_bool_or([*gains, hold.negated()])

    @family
    def add_causality(self) -> None:
        r"""A copy leaves a node only while the node holds the chunk.

        .. math:: \mathit{send}_{c,e,t} \Rightarrow \mathit{hold}_{c,\mathrm{src}(e),t} \qquad
            \forall c, e, t

        Switches that cannot multicast are in the family of switch copies.

        Tight: a binary clause for each send.
        """
        for (c, e, t), send in self.send.items():
            u = int(self.problem.src[e])
            if self.problem.multicast[u] and not self.windows.holds_initially(c, u, t):
                self.model.add_implication(send, self.hold[c, u, t])

    @family
    def add_link_capacity(self) -> None:
        r"""A link carries one chunk at a time.

        .. math:: \mathrm{AtMostOne}_{c,\ t - o_{c,e} < s \le t}\ (\mathit{send}_{c,e,s},
            \mathit{part}_{c,e,s}) \qquad \forall e, t

        ``o`` ticks that a send occupies its link. Cliques within another one are left out.

        Tight: time-indexed cliques: the strongest form of a disjunctive resource.
        """
        for clique in self.windows.conflicts():
            self.model.add_at_most_one(self._literal(*key) for key in clique)

    @family
    def add_port_capacity(self) -> None:
        r"""Implied: a node holds no more chunks at the end than its links can have brought.

        .. math:: \sum_{c:\ v \notin \mathrm{pre}(c)} \mathit{hold}_{c,v,H} \le
            \sum_{e \in \mathrm{in}(v)} \left( 1 + \left\lfloor
            \frac{H - d_e - f_e}{o_e} \right\rfloor \right) \qquad \forall v

        ``f`` the first tick at which anything can start on the link, ``o`` and ``d`` the shortest
        occupancy and transfer of any chunk, in ticks. Sums, which need not arrive, are left out.

        Tight: a pigeonhole that clauses alone refute only case by case; as one row it is seen at
        once.
        """
        for keys, room in self.windows.ports():
            self.model.add(sum(self.hold[k] for k in keys) <= room)

    @family
    def add_switch_copies(self) -> None:
        r"""A switch that cannot multicast sends on each copy that it received at most once.

        .. math:: \sum_{e \in \mathrm{out}(v),\ s \le t} \mathit{send}_{c,e,s} \le \sum_{s \le
            t} \mathit{arrive}_{c,v,s} \qquad \forall c, v, t

        Counted by tick, so that the switch never gives what it has not got yet.

        Tight: a cumulated flow balance, with consecutive ones.
        """
        for leaving, arrived in self.windows.switch_balances(partial=False):
            self.model.add(sum(self.send[k] for k in leaving) <= sum(self.send[k] for k in arrived))

    @family
    def add_sum_formation(self) -> None:
        r"""Every sum becomes whole at exactly one node; every other contributor passes on once.

        .. math:: \mathrm{ExactlyOne}_{v,t}\ \mathit{whole}_{c,v,t} \quad \forall c \in
            \mathrm{sums}, \qquad \mathrm{ExactlyOne}_{t}\ \mathit{event}_{c,v,t} \quad \forall
            v \in \mathrm{pre}(c), \qquad \mathrm{AtMostOne}_{t}\ \mathit{event}_{c,v,t} \quad
            \forall v \notin \mathrm{pre}(c)

        ``event[c, v, t]`` stands for the parts of sum c that leave v at tick t, and for
        ``whole[c, v, t]``.

        Tight: the parts of a sum form an in-tree: one way out of every contributor.
        """
        for c in self.windows.sums:
            self.model.add_exactly_one(self.whole[k] for k in self.windows.wholes_of(c))
            for v in self.windows.adders(c):
                events = self._events(c, v)
                if v in self.problem.chunks[c].ready:
                    self.model.add_exactly_one(events)
                else:
                    self.model.add_at_most_one(events)

    @family
    def add_sum_progress(self) -> None:
        r"""A node is done with a sum once it has passed on its part or has the whole.

        .. math:: \mathit{done}_{c,v,t} \Leftrightarrow \mathit{done}_{c,v,t-1} \vee \bigvee
            \mathit{event}_{c,v,t} \qquad \forall c \in \mathrm{sums}, v, t

        ``done[c, v, t]`` by tick t node v has passed on what it had of sum c, or has it whole.

        Tight: both directions as clauses.
        """
        for (c, v, t), done in self.done.items():
            gains = self._events(c, v, t)
            before = self.done.get((c, v, t - 1))
            if before is not None:
                self.model.add_implication(before, done)
                gains.append(before)
            for gain in gains:
                self.model.add_implication(gain, done)
            self.model.add_bool_or([*gains, done.negated()])

    @family
    def add_no_late_contribution(self) -> None:
        r"""A part arrives only where it can still be added, and is then passed on or made whole.

        .. math:: \mathit{part}_{c,e,t} \Rightarrow \neg \mathit{done}_{c,v,t+d_{c,e}-1}, \qquad
            \mathit{part}_{c,e,t} \Rightarrow \mathit{done}_{c,v,H} \qquad \forall c, e, t,\ v =
            \mathrm{dst}(e)

        ``d`` ticks from the start of a send to its arrival; ``H`` the horizon.

        Tight: binary clauses on a state variable in place of all pairs of parts.
        """
        for (c, e, t), part in self.part.items():
            v = int(self.problem.dst[e])
            if not self.problem.reduces[v]:
                continue
            arrival = t + self.windows.transfer(c, e)
            before = self.done.get((c, v, arrival - 1))
            if before is not None:
                self.model.add_implication(part, before.negated())
            self.model.add_implication(part, self.done[c, v, self.windows.horizon])

    @family
    def add_switch_parts(self) -> None:
        r"""A switch that cannot add sends on every part that it received, each by itself.

        .. math:: \sum_{e \in \mathrm{out}(v),\ s \le t} \mathit{part}_{c,e,s} \le \sum_{e \in
            \mathrm{in}(v),\ s + d_{c,e} \le t} \mathit{part}_{c,e,s}, \qquad \sum_{e \in
            \mathrm{out}(v),\ s} \mathit{part}_{c,e,s} = \sum_{e \in \mathrm{in}(v),\ s}
            \mathit{part}_{c,e,s} \qquad \forall c, v, t

        In the end nothing stays in the switch.

        Tight: a cumulated flow balance, with consecutive ones.
        """
        for leaving, arrived in self.windows.switch_balances(partial=True):
            self.model.add(sum(self.part[k] for k in leaving) <= sum(self.part[k] for k in arrived))
        for leaving, arrived in self.windows.switch_totals():
            self.model.add(sum(self.part[k] for k in leaving) == sum(self.part[k] for k in arrived))

    @family
    def add_symmetry_breaking(self) -> None:
        r"""Of schedules that are images of each other only those survive that lead at one place.

        .. math:: \mathit{hold}_{c',v',t} \Rightarrow \mathit{hold}_{c,v,t} \qquad \forall t,\
            ((c, v), (c', v')) \in \Sigma

        For a symmetry that maps (chunk, node) to (chunk', node'), the chunk is at the node no
        later than chunk' at node'. Switched off with constraints of one's own.

        Tight: binary clauses on states.
        """
        for (c, v), (d, w) in self.symmetries:
            for t in range(self.windows.horizon + 1):
                image = self.hold.get((d, w, t))
                if image is None or self.windows.holds_initially(c, v, t):
                    continue
                lead = self.hold.get((c, v, t))
                self.model.add_bool_or([image.negated()] + ([] if lead is None else [lead]))

    def minimize_late(self, target: int) -> None:
        """Minimize the number of copies that arrive after tick `target`."""
        late = [x for (c, e, t), x in self.send.items() if t + self.windows.transfer(c, e) > target]
        self.model.minimize(sum(late))

    def _literal(self, partial: bool, c: int, e: int, t: int) -> Any:
        return (self.part if partial else self.send)[c, e, t]

    def _arrivals(self, c: int, v: int, t: int | None = None) -> list[Any]:
        """Literals by which chunk c comes to be whole at node v (at tick t)."""
        found = [self.send[k] for k in self.windows.arrivals(c, v, t)]
        return found + [self.whole[k] for k in self.windows.wholes_of(c, v, t)]

    def _events(self, c: int, v: int, t: int | None = None) -> list[Any]:
        """Literals by which node v is done with the sum c (at tick t)."""
        found = [self.part[k] for k in self.windows.departures(c, v, t)]
        return found + [self.whole[k] for k in self.windows.wholes_of(c, v, t)]

    def solve(self, hint: Iterable[Send] = (), **settings: Any) -> tuple[Outcome, list[Send]]:
        """Look for a schedule; the sends are empty without one.

        Parameters
        ----------
        hint : iterable of Send
            Sends to try first.
        **settings
            Passed to `solve_cpsat`.
        """
        warm = None
        chosen = {(s.partial, s.chunk, s.link, s.start) for s in hint}
        if chosen:
            warm = [(x, int((False, *k) in chosen)) for k, x in self.send.items()]
            warm += [(x, int((True, *k) in chosen)) for k, x in self.part.items()]
        outcome = solve_cpsat(self.model, warm_start=warm, **settings)
        if outcome.values is None:
            return outcome, []
        sends = [Send(*k) for k, x in self.send.items() if outcome.value(x)]
        sends += [Send(*k, partial=True) for k, x in self.part.items() if outcome.value(x)]
        return outcome, sends
