"""The collective problem as a CP-SAT scheduling model: optional intervals instead of a time grid.

Exact whatever the durations are, since its times are not enumerated; on equal links the grid is
quicker. The families of constraints have the names that they have in the grid models.

| name | meaning |
| --- | --- |
| `used[h]`, `start[h]`, `arrival[h]` | hop h is taken; when it starts; when it arrives |
| `at[c, v]` | tick from which node v holds chunk c |
| `leave[c, v]` | tick at which node v has all parts of sum c that it will ever get |
| `root[c, v]` | sum c becomes whole at node v |
| `makespan` | the objective, ticks |
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nestopt.formulations.collective.grid import FAR, Chunk, GridProblem, Send
from nestopt.formulations.families import Families, family
from nestopt.formulations.solvers.adapters import Outcome, solve_cpsat
from nestopt.formulations.solvers.own import add_to_model

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from nestopt.formulations.families import Addition

__all__ = ["CollectiveIntervals"]


@dataclass(frozen=True, slots=True)
class _Hop:
    """One way of a chunk between two nodes that can hold it, through switches that only pass on."""

    chunk: int
    links: tuple[int, ...]
    tail: int
    head: int
    used: Any
    starts: tuple[Any, ...]
    arrival: Any


class CollectiveIntervals(Families):
    """Least makespan of a `GridProblem` between two numbers of ticks.

    Variables:

    - ``used`` and ``starts`` of every hop: whether, and when a chunk starts on each of its links;
    - ``at[c, v]``: when node v holds chunk c (of a sum: the whole of it);
    - ``leave[c, v]``: when node v has all parts of the sum c that it will ever get;
    - ``root[c, v]``: whether the sum c becomes whole at node v;
    - ``makespan``.
    """

    def __init__(
        self,
        problem: GridProblem,
        low: int,
        high: int,
        additions: tuple[Addition, ...] = (),
        left_out: frozenset[str] = frozenset(),
    ) -> None:
        from ortools.sat.python import cp_model

        self.additions, self.left_out = additions, left_out
        self.size_of, self.symbols = {}, Counter()
        self.problem, self.horizon = problem, high
        self.model = cp_model.CpModel()
        self.makespan = self.model.new_int_var(low, high, "makespan")
        self.out_of = problem.out_of()
        self.sums = [c for c, chunk in enumerate(problem.chunks) if chunk.is_sum]
        self.first = [self._first(chunk) for chunk in problem.chunks]
        self.intervals: dict[int, list[Any]] = {}
        self.at: dict[tuple[int, int], Any] = {}
        self.leave: dict[tuple[int, int], Any] = {}
        self.root: dict[tuple[int, int], Any] = {}
        self.copies: list[_Hop] = []
        self.parts: list[_Hop] = []
        for c, chunk in enumerate(problem.chunks):
            self._add_chunk(c, chunk)
        self.copies_into = _by_end(self.copies, head=True)
        self.parts_into = _by_end(self.parts, head=True)
        self.parts_out_of = _by_end(self.parts, head=False)
        self.symbols = Counter(
            at=len(self.at), leave=len(self.leave), root=len(self.root), makespan=1,
            used=len(self.copies) + len(self.parts),
            starts=sum(len(hop.links) for hop in (*self.copies, *self.parts)),
        )  # fmt: skip
        self.add_constraints()
        self.model.minimize(self.makespan)

    def _first(self, chunk: Chunk) -> list[int]:
        if not chunk.is_sum:
            return self.problem.earliest(chunk)
        ways = []
        for v, tick in chunk.ready.items():
            ways.append(self.problem.earliest(Chunk(0, chunk.size, {v: tick}, chunk.targets)))
        return [max(times) for times in zip(*ways)]

    def _add_chunk(self, c: int, chunk: Chunk) -> None:
        problem, model, top = self.problem, self.model, self.horizon
        for v in range(problem.num_nodes):
            if self.first[c][v] <= top:
                fixed = not chunk.is_sum and v in chunk.ready
                last = chunk.ready[v] if fixed else top
                first = chunk.ready[v] if fixed else self.first[c][v]
                self.at[c, v] = model.new_int_var(first, last, f"at[{c},{v}]")
        if not (chunk.is_sum and len(chunk.targets) == 1):
            for links in self._ways(c, problem.multicast):
                head = int(problem.dst[links[-1]])
                if chunk.is_sum or head not in chunk.ready:
                    self.copies += self._new_hop(c, links, self.first[c], "send")
        if not chunk.is_sum:
            return
        earliest = problem.earliest(chunk)
        able = problem.reduces & problem.multicast
        for v in range(problem.num_nodes):
            if earliest[v] > top:
                continue
            self.leave[c, v] = model.new_int_var(earliest[v], top, f"leave[{c},{v}]")
            if (c, v) in self.at and able[v] and (chunk.targets == {v} or len(chunk.targets) > 1):
                self.root[c, v] = model.new_bool_var(f"root[{c},{v}]")
        for links in self._ways(c, problem.reduces):
            if chunk.targets != {int(problem.src[links[0]])}:
                self.parts += self._new_hop(c, links, earliest, "part")

    def _ways(self, c: int, holds: Any) -> Iterator[tuple[int, ...]]:
        """Paths between nodes that can hold a chunk, all nodes between them being others."""
        problem = self.problem
        for start in range(problem.num_nodes):
            if not holds[start]:
                continue
            stack: list[tuple[tuple[int, ...], frozenset[int]]] = [((), frozenset([start]))]
            while stack:
                links, seen = stack.pop()
                here = int(problem.dst[links[-1]]) if links else start
                for e in self.out_of[here]:
                    w = int(problem.dst[e])
                    if w in seen:
                        continue
                    if holds[w]:
                        yield (*links, e)
                    else:
                        stack.append(((*links, e), seen | {w}))

    def _new_hop(self, c: int, links: tuple[int, ...], first: list[int], name: str) -> list[_Hop]:
        problem, model, size = self.problem, self.model, self.problem.chunks[c].size
        tail, head = int(problem.src[links[0]]), int(problem.dst[links[-1]])
        total = sum(int(problem.transfer[size, e]) for e in links)
        if first[tail] >= FAR or first[tail] + total > self.horizon:
            return []
        label = f"{name}[{c},{'-'.join(str(e) for e in links)}]"
        used = model.new_bool_var(label)
        starts = []
        before, after = first[tail], total
        for e in links:
            start = model.new_int_var(before, self.horizon - after, f"{label}@{e}")
            length = int(problem.occupancy[size, e])
            interval = model.new_optional_fixed_size_interval_var(
                start, length, used, f"{label}|{e}"
            )
            self.intervals.setdefault(e, []).append(interval)
            before += int(problem.transfer[size, e])
            after -= int(problem.transfer[size, e])
            starts.append(start)
        arrival = starts[-1] + int(problem.transfer[size, links[-1]])
        for e, start, following in zip(links, starts, starts[1:]):
            model.add(following >= start + int(problem.transfer[size, e]))
        return [_Hop(c, links, tail, head, used, tuple(starts), arrival)]

    def add_constraints(self) -> None:
        """All families."""
        self.add_delivery()
        self.add_single_arrival()
        self.add_holding()
        self.add_causality()
        self.add_link_capacity()
        self.add_sum_formation()
        self.add_sum_progress()
        self.add_no_late_contribution()
        self.add_makespan()
        self.add_additions()

    def counts(self) -> tuple[int, int]:
        """Variables and constraints so far."""
        return self.symbols.total(), len(self.model.proto.constraints)

    def require(self, constraint: Any, name: str) -> None:
        """Add a constraint of CP-SAT's; a truth value stands for itself."""
        add_to_model(self.model, constraint, name)

    @family
    def add_delivery(self) -> None:
        r"""Every target holds its chunk at the end.

        .. math:: \bigvee_{h \to (c,v)} \mathit{used}_h \vee \mathit{root}_{c,v} \qquad \forall
            c,\ v \in \mathrm{post}(c)

        ``used[h]`` hop h is taken; ``root[c, v]`` the sum c becomes whole at v.

        Tight: a clause; that it is one hop at most is the next family.
        """
        for c, chunk in enumerate(self.problem.chunks):
            for v in chunk.targets:
                if chunk.is_sum or v not in chunk.ready:
                    ways = [hop.used for hop in self.copies_into.get((c, v), [])]
                    if (c, v) in self.root:
                        ways.append(self.root[c, v])
                    self.model.add_bool_or(ways)

    @family
    def add_single_arrival(self) -> None:
        r"""A node receives a chunk at most once, and not if the sum becomes whole there.

        .. math:: \mathrm{AtMostOne}\ (\mathit{used}_h:\ h \to (c, v);\ \mathit{root}_{c,v})
            \qquad \forall c, v

        Tight: one clique.
        """
        for (c, v), hops in self.copies_into.items():
            ways = [hop.used for hop in hops]
            if (c, v) in self.root:
                ways.append(self.root[c, v])
            self.model.add_at_most_one(ways)

    @family
    def add_holding(self) -> None:
        r"""A node holds a chunk from its arrival on.

        .. math:: \mathit{used}_h \Rightarrow \mathit{at}_{c,v} \ge \mathit{arrival}_h \qquad
            \forall h \to (c, v)

        ``at[c, v]`` tick from which node v holds chunk c.

        Tight: one time for each chunk and node, not for each hop.
        """
        for hop in self.copies:
            held = self.at[hop.chunk, hop.head]
            self.model.add(held >= hop.arrival).only_enforce_if(hop.used)

    @family
    def add_causality(self) -> None:
        r"""A copy leaves a node only while the node holds the chunk.

        .. math:: \mathit{used}_h \Rightarrow \mathit{start}_h \ge \mathit{at}_{c,u}, \qquad
            \mathit{used}_h \Rightarrow \bigvee_{h' \to (c,u)} \mathit{used}_{h'} \vee
            \mathit{root}_{c,u} \qquad \forall h = (c, u \to v)

        Tight: times forbid circles, since every hop takes at least a tick.
        """
        for hop in self.copies:
            c, u = hop.chunk, hop.tail
            chunk = self.problem.chunks[c]
            self.model.add(hop.starts[0] >= self.at[c, u]).only_enforce_if(hop.used)
            if chunk.is_sum or u not in chunk.ready:
                ways = [other.used for other in self.copies_into.get((c, u), [])]
                if (c, u) in self.root:
                    ways.append(self.root[c, u])
                self.model.add_bool_or([*ways, hop.used.negated()])

    @family
    def add_link_capacity(self) -> None:
        r"""A link carries one chunk at a time.

        .. math:: \mathrm{NoOverlap}\ ([\mathit{start}_h, \mathit{start}_h + o_{c,e})\
            \text{if}\ \mathit{used}_h) \qquad \forall e

        ``o`` ticks that a send occupies its link.

        Tight: a disjunctive resource of optional intervals, with edge finding in place of a time
        grid.
        """
        for e, intervals in self.intervals.items():
            taken = [
                self.model.new_fixed_size_interval_var(low, high - low, f"busy[{e},{low}]")
                for low, high in self.problem.busy.get(e, ())
            ]
            if len(intervals) + len(taken) > 1:
                self.model.add_no_overlap(intervals + taken)

    @family
    def add_sum_formation(self) -> None:
        r"""Every sum becomes whole at exactly one node; every other contributor passes on once.

        .. math:: \mathrm{ExactlyOne}_{v}\ \mathit{root}_{c,v}, \qquad \mathrm{ExactlyOne}\
            (\mathit{used}_h:\ h \text{ a part out of } (c, v);\ \mathit{root}_{c,v}) \quad
            \forall v \in \mathrm{pre}(c) \qquad \forall c \in \mathrm{sums}

        Nodes that contribute nothing pass on at most once.

        Tight: the parts of a sum form an in-tree: one way out of every contributor.
        """
        for c in self.sums:
            self.model.add_exactly_one(x for (d, _), x in self.root.items() if d == c)
            for (d, v), _leave in self.leave.items():
                if d != c or not self.problem.reduces[v]:
                    continue
                events = [hop.used for hop in self.parts_out_of.get((c, v), [])]
                if (c, v) in self.root:
                    events.append(self.root[c, v])
                if v in self.problem.chunks[c].ready:
                    self.model.add_exactly_one(events)
                else:
                    self.model.add_at_most_one(events)

    @family
    def add_sum_progress(self) -> None:
        r"""A part leaves a node, or the sum is whole there, when the node is done gathering.

        .. math:: \mathit{used}_h \Rightarrow \mathit{start}_h \ge \mathit{leave}_{c,u}, \qquad
            \mathit{root}_{c,v} \Rightarrow \mathit{at}_{c,v} \ge \mathit{leave}_{c,v}

        ``leave[c, v]`` tick at which node v has all parts of sum c that it will ever get.

        Tight: one time for each sum and node.
        """
        for hop in self.parts:
            ready = self.leave[hop.chunk, hop.tail]
            self.model.add(hop.starts[0] >= ready).only_enforce_if(hop.used)
        for (c, v), root in self.root.items():
            self.model.add(self.at[c, v] >= self.leave[c, v]).only_enforce_if(root)

    @family
    def add_no_late_contribution(self) -> None:
        r"""A part arrives only where it can still be added, and is then passed on or made whole.

        .. math:: \mathit{used}_h \Rightarrow \mathit{leave}_{c,v} \ge \mathit{arrival}_h,
            \qquad \mathit{used}_h \Rightarrow \bigvee \mathit{event}_{c,v} \qquad \forall h \to
            (c, v)

        ``event`` stands for the parts of c that leave v, and for ``root[c, v]``.

        Tight: a precedence and a clause for each part.
        """
        for hop in self.parts:
            c, v = hop.chunk, hop.head
            if (c, v) not in self.leave:
                self.model.add(hop.used == 0)
                continue
            self.model.add(self.leave[c, v] >= hop.arrival).only_enforce_if(hop.used)
            events = [other.used for other in self.parts_out_of.get((c, v), [])]
            if (c, v) in self.root:
                events.append(self.root[c, v])
            self.model.add_bool_or([*events, hop.used.negated()])

    @family
    def add_makespan(self) -> None:
        r"""The makespan is no less than any arrival, nor than the moment a target is served.

        .. math:: \mathit{makespan} \ge \mathit{at}_{c,v} \qquad \forall c,\ v \in
            \mathrm{post}(c)

        Tight: only targets count; what else arrives later serves no purpose.
        """
        for c, chunk in enumerate(self.problem.chunks):
            for v in chunk.targets:
                if (c, v) in self.at:
                    self.model.add(self.makespan >= self.at[c, v])
                else:
                    # out of reach within the horizon
                    self.model.add_bool_or([])

    def minimize_late(self, target: int) -> None:
        """Minimize the number of targets that are served after tick `target`, not the makespan."""
        late = []
        for (c, v), at in self.at.items():
            if v in self.problem.chunks[c].targets and v not in self.problem.chunks[c].ready:
                late.append(self.model.new_bool_var(f"late[{c},{v}]"))
                self.model.add(at <= target).only_enforce_if(late[-1].negated())
        self.model.clear_objective()
        self.model.minimize(sum(late))

    def solve(self, hint: Iterable[Send] = (), **settings: Any) -> tuple[Outcome, list[Send]]:
        """Look for the least makespan; the sends are empty without a schedule.

        Parameters
        ----------
        hint : iterable of Send
            Sends to try first (of hops of one link).
        **settings
            Passed to `solve_cpsat`.
        """
        chosen = {(s.partial, s.chunk, s.link): s.start for s in hint}
        warm: list[tuple[Any, int]] | None = [] if chosen else None
        if warm is not None:
            for partial, hops in ((False, self.copies), (True, self.parts)):
                for hop in hops:
                    start = chosen.get((partial, hop.chunk, hop.links[0]))
                    warm.append((hop.used, int(start is not None and len(hop.links) == 1)))
                    if start is not None and len(hop.links) == 1:
                        warm.append((hop.starts[0], start))
        outcome, sends = solve_cpsat(self.model, warm_start=warm, **settings), []
        if outcome.values is None:
            return outcome, []
        for partial, hops in ((False, self.copies), (True, self.parts)):
            for hop in hops:
                if outcome.value(hop.used):
                    for e, start in zip(hop.links, hop.starts):
                        sends.append(Send(hop.chunk, e, outcome.value(start), partial))
        return outcome, sends


def _by_end(hops: list[_Hop], *, head: bool) -> dict[tuple[int, int], list[_Hop]]:
    grouped: dict[tuple[int, int], list[_Hop]] = {}
    for hop in hops:
        grouped.setdefault((hop.chunk, hop.head if head else hop.tail), []).append(hop)
    return grouped
