"""The collective problem on a time grid as a mixed-integer linear program.

Is there a schedule of at most `horizon` ticks? The families of constraints have the names that they
have in `nestopt.formulations.collective.cpsat`, so that the two files read side by side.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from nestopt.formulations.collective.grid import GridProblem, Send
from nestopt.formulations.collective.windows import Windows
from nestopt.formulations.families import Families, family
from nestopt.formulations.solvers.adapters import Outcome, solve_milp
from nestopt.formulations.solvers.own import add_to_program

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from nestopt.formulations.collective.symmetry import Symmetry
    from nestopt.formulations.families import Addition

__all__ = ["CollectiveMilp"]


class CollectiveMilp(Families):
    """Feasibility of a `GridProblem` within a horizon.

    Variables (each only at the ticks where it can be true, see `Windows`); the first three are
    binary, the last two lie in [0, 1] and are integer whenever the others are:

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
        import pulp

        self.problem, self.symmetries, self._stop = problem, symmetries, stop
        self.additions, self.left_out = additions, left_out
        self.size_of, self.symbols = {}, Counter()
        self.horizon = horizon
        self.windows = Windows(problem, horizon)
        self.model = pulp.LpProblem("collective", pulp.LpMinimize)
        self.model += pulp.LpAffineExpression()
        self._sum = pulp.lpSum
        self.send = {k: self._flag("send", k) for k in self.windows.sends()}
        self.part = {k: self._flag("part", k) for k in self.windows.parts()}
        self.whole = {k: self._flag("whole", k) for k in self.windows.wholes()}
        self.hold = {k: self._share("hold", k) for k in self.windows.holds()}
        self.done = {k: self._share("done", k) for k in self.windows.dones()}
        for name in ("send", "part", "whole", "hold", "done"):
            self.symbols[name] = len(getattr(self, name))
        self.add_constraints()

    def _flag(self, name: str, key: tuple[int, int, int]) -> Any:
        return self.model.add_variable(f"{name}_{key[0]}_{key[1]}_{key[2]}", 0, 1, cat="Integer")

    def _share(self, name: str, key: tuple[int, int, int]) -> Any:
        return self.model.add_variable(f"{name}_{key[0]}_{key[1]}_{key[2]}", 0, 1)

    def _add(self, constraint: Any, name: str) -> None:
        self.model += (constraint, name)

    def stop(self) -> None:
        """Raise what `stop` raises once the time is over."""
        self._stop()

    @property
    def program(self) -> Any:
        """The `pulp.LpProblem`."""
        return self.model

    def counts(self) -> tuple[int, int]:
        """Variables and constraints so far."""
        return self.symbols.total(), self.model.numConstraints()

    def require(self, constraint: Any, name: str) -> None:
        """Add a constraint of the solver's own kind; a truth value stands for itself."""
        add_to_program(self.model, constraint, name)

    def fix(self, variable: Any, value: int) -> None:
        """Give a variable its value."""
        variable.lowBound = variable.upBound = value

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

        .. math:: \sum_{t} \mathit{arrive}_{c,v,t} = 1 \qquad \forall c,\ v \in \mathrm{post}(c)

        ``arrive[c, v, t]`` stands for the sends of chunk c that arrive at v at tick t, and for
        ``whole[c, v, t]``.

        Tight: exactly once, in place of at least once: a second copy is never needed.
        """
        for c, v in self.windows.deliveries():
            self._add(self._arrivals(c, v) == 1, f"delivery_{c}_{v}")

    @family
    def add_single_arrival(self) -> None:
        r"""A node that can multicast receives a chunk at most once.

        .. math:: \sum_{t} \mathit{arrive}_{c,v,t} \le 1 \qquad \forall c,\ v \notin
            \mathrm{post}(c)

        Nodes that relay the chunk but need not hold it.

        Tight: one clique over all links and ticks.
        """
        for c, v in self.windows.relays():
            arrivals = self._arrivals(c, v)
            if len(arrivals) > 1:
                self._add(arrivals <= 1, f"single_arrival_{c}_{v}")

    @family
    def add_holding(self) -> None:
        r"""A node holds a chunk from the tick at which it arrives (or becomes whole) on.

        .. math:: \mathit{hold}_{c,v,t} = \mathit{hold}_{c,v,t-1} + \mathit{arrive}_{c,v,t}
            \qquad \forall c, v, t

        ``hold[c, v, t]`` node v holds chunk c at tick t; sources hold theirs from the beginning.

        Tight: an equation, so that ``hold`` is integer whenever the sends are.
        """
        for (c, v, t), hold in self.hold.items():
            gains = self._arrivals(c, v, t) + self.hold.get((c, v, t - 1), 0)
            self._add(hold == gains, f"holding_{c}_{v}_{t}")

    @family
    def add_causality(self) -> None:
        r"""A copy leaves a node only while the node holds the chunk.

        .. math:: \mathit{send}_{c,e,t} \le \mathit{hold}_{c,\mathrm{src}(e),t} \qquad \forall
            c, e, t

        Switches that cannot multicast are in the family of switch copies.

        Tight: one state variable in place of a sum over all earlier arrivals.
        """
        for (c, e, t), send in self.send.items():
            u = int(self.problem.src[e])
            if self.problem.multicast[u] and not self.windows.holds_initially(c, u, t):
                self._add(send <= self.hold[c, u, t], f"causality_{c}_{e}_{t}")

    @family
    def add_link_capacity(self) -> None:
        r"""A link carries one chunk at a time.

        .. math:: \sum_{c} \sum_{t - o_{c,e} < s \le t} (\mathit{send}_{c,e,s} +
            \mathit{part}_{c,e,s}) \le 1 \qquad \forall e, t

        ``o`` ticks that a send occupies its link. Cliques within another one are left out.

        Tight: time-indexed cliques: the strongest form of a disjunctive resource.
        """
        for index, clique in enumerate(self.windows.conflicts()):
            total = self._sum(self._binary(*key) for key in clique)
            self._add(total <= 1, f"link_capacity_{clique[0][2]}_{index}")

    @family
    def add_port_capacity(self) -> None:
        r"""Implied: a node holds no more chunks at the end than its links can have brought.

        .. math:: \sum_{c:\ v \notin \mathrm{pre}(c)} \mathit{hold}_{c,v,H} \le
            \sum_{e \in \mathrm{in}(v)} \left( 1 + \left\lfloor
            \frac{H - d_e - f_e}{o_e} \right\rfloor \right) \qquad \forall v

        ``f`` the first tick at which anything can start on the link, ``o`` and ``d`` the shortest
        occupancy and transfer of any chunk, in ticks. Sums, which need not arrive, are left out.

        Tight: implied by the cliques of the links; one row in place of all of them.
        """
        for index, (keys, room) in enumerate(self.windows.ports()):
            total = self._sum(self.hold[k] for k in keys)
            self._add(total <= room, f"port_capacity_{keys[0][1]}_{index}")

    @family
    def add_switch_copies(self) -> None:
        r"""A switch that cannot multicast sends on each copy that it received at most once.

        .. math:: \sum_{e \in \mathrm{out}(v),\ s \le t} \mathit{send}_{c,e,s} \le \sum_{s \le
            t} \mathit{arrive}_{c,v,s} \qquad \forall c, v, t

        Counted by tick, so that the switch never gives what it has not got yet.

        Tight: a cumulated flow balance, with consecutive ones.
        """
        for index, (leaving, arrived) in enumerate(self.windows.switch_balances(partial=False)):
            left = self._sum(self.send[k] for k in leaving)
            come = self._sum(self.send[k] for k in arrived)
            self._add(left <= come, f"switch_copies_{index}")

    @family
    def add_sum_formation(self) -> None:
        r"""Every sum becomes whole at exactly one node; every other contributor passes on once.

        .. math:: \sum_{v,t} \mathit{whole}_{c,v,t} = 1 \quad \forall c \in \mathrm{sums},
            \qquad \sum_{t} \mathit{event}_{c,v,t} = 1 \quad \forall v \in \mathrm{pre}(c),
            \qquad \sum_{t} \mathit{event}_{c,v,t} \le 1 \quad \forall v \notin \mathrm{pre}(c)

        ``event[c, v, t]`` stands for the parts of sum c that leave v at tick t, and for
        ``whole[c, v, t]``.

        Tight: the parts of a sum form an in-tree: one way out of every contributor.
        """
        for c in self.windows.sums:
            places = self._sum(self.whole[k] for k in self.windows.wholes_of(c))
            self._add(places == 1, f"sum_formation_{c}")
            for v in self.windows.adders(c):
                events = self._events(c, v)
                if v in self.problem.chunks[c].ready:
                    self._add(events == 1, f"sum_formation_{c}_{v}")
                elif len(events):
                    self._add(events <= 1, f"sum_formation_{c}_{v}")

    @family
    def add_sum_progress(self) -> None:
        r"""A node is done with a sum once it has passed on its part or has the whole.

        .. math:: \mathit{done}_{c,v,t} = \mathit{done}_{c,v,t-1} + \mathit{event}_{c,v,t}
            \qquad \forall c \in \mathrm{sums}, v, t

        ``done[c, v, t]`` by tick t node v has passed on what it had of sum c, or has it whole.

        Tight: an equation, so that ``done`` is integer whenever the parts are.
        """
        for (c, v, t), done in self.done.items():
            gains = self._events(c, v, t) + self.done.get((c, v, t - 1), 0)
            self._add(done == gains, f"sum_progress_{c}_{v}_{t}")

    @family
    def add_no_late_contribution(self) -> None:
        r"""A part arrives only where it can still be added, and is then passed on or made whole.

        .. math:: \mathit{part}_{c,e,t} + \mathit{done}_{c,v,t+d_{c,e}-1} \le 1, \qquad
            \mathit{part}_{c,e,t} \le \mathit{done}_{c,v,H} \qquad \forall c, e, t,\ v =
            \mathrm{dst}(e)

        ``d`` ticks from the start of a send to its arrival; ``H`` the horizon.

        Tight: one state variable in place of all pairs of parts.
        """
        for (c, e, t), part in self.part.items():
            v = int(self.problem.dst[e])
            if not self.problem.reduces[v]:
                continue
            arrival = t + self.windows.transfer(c, e)
            before = self.done.get((c, v, arrival - 1))
            if before is not None:
                self._add(part + before <= 1, f"no_late_contribution_{c}_{e}_{t}")
            final = self.done[c, v, self.windows.horizon]
            self._add(part <= final, f"no_lost_contribution_{c}_{e}_{t}")

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
        for index, (leaving, arrived) in enumerate(self.windows.switch_balances(partial=True)):
            left = self._sum(self.part[k] for k in leaving)
            come = self._sum(self.part[k] for k in arrived)
            self._add(left <= come, f"switch_parts_{index}")
        for index, (leaving, arrived) in enumerate(self.windows.switch_totals()):
            left = self._sum(self.part[k] for k in leaving)
            come = self._sum(self.part[k] for k in arrived)
            self._add(left == come, f"switch_part_totals_{index}")

    @family
    def add_symmetry_breaking(self) -> None:
        r"""Of schedules that are images of each other only those survive that lead at one place.

        .. math:: \mathit{hold}_{c',v',t} \le \mathit{hold}_{c,v,t} \qquad \forall t,\ ((c, v),
            (c', v')) \in \Sigma

        For a symmetry that maps (chunk, node) to (chunk', node'), the chunk is at the node no
        later than chunk' at node'. Switched off with constraints of one's own.

        Tight: Schreier-Sims inequalities on states, which have no constant.
        """
        for index, ((c, v), (d, w)) in enumerate(self.symmetries):
            for t in range(self.windows.horizon + 1):
                image = self.hold.get((d, w, t))
                if image is None or self.windows.holds_initially(c, v, t):
                    continue
                lead = self.hold.get((c, v, t), 0)
                self._add(image <= lead, f"symmetry_breaking_{index}_{t}")

    def _binary(self, partial: bool, c: int, e: int, t: int) -> Any:
        return (self.part if partial else self.send)[c, e, t]

    def _arrivals(self, c: int, v: int, t: int | None = None) -> Any:
        """Number of ways in which chunk c comes to be whole at node v (at tick t)."""
        found = [self.send[k] for k in self.windows.arrivals(c, v, t)]
        return self._sum(found + [self.whole[k] for k in self.windows.wholes_of(c, v, t)])

    def _events(self, c: int, v: int, t: int | None = None) -> Any:
        """Number of ways in which node v is done with the sum c (at tick t)."""
        found = [self.part[k] for k in self.windows.departures(c, v, t)]
        return self._sum(found + [self.whole[k] for k in self.windows.wholes_of(c, v, t)])

    def solve(self, hint: Iterable[Send] = (), **settings: Any) -> tuple[Outcome, list[Send]]:
        """Look for a schedule; the sends are empty without one.

        Parameters
        ----------
        hint : iterable of Send
            Sends to try first.
        **settings
            Passed to `solve_milp`.
        """
        warm = None
        chosen = {(s.partial, s.chunk, s.link, s.start) for s in hint}
        if chosen:
            warm = {x.name: float((False, *k) in chosen) for k, x in self.send.items()}
            warm |= {x.name: float((True, *k) in chosen) for k, x in self.part.items()}
        outcome = solve_milp(self.model, warm_start=warm, **settings)
        if outcome.values is None:
            return outcome, []
        sends = [Send(*k) for k, x in self.send.items() if outcome.value(x)]
        sends += [Send(*k, partial=True) for k, x in self.part.items() if outcome.value(x)]
        return outcome, sends
