"""All-Reduce by copied partial sums: one-shot, recursive doubling, and mixes by level.

Every NPU ends with the sum of what all have, so that a rank may send what it has and keep it. An
algorithm is a list of exchanges between ranks, each of a stated set of contributions; `flows` plays
them on the network. The ranks are cells of dimensions (nodes and GPUs, say), which are summed up
one after another. Along one dimension

- ``one-shot``: every rank sends what it has to every other: one latency, n - 1 messages a chunk and
  rank. The fastest for small buffers;
- ``recursive-doubling``: in round d every rank exchanges what it has with the rank that differs in
  bit d: log2(n) latencies. Chunks take the rounds in different orders, so that all links of a rank
  are busy in every round. Ranks beyond the largest power of two hand what they have to a partner
  first and get the sum from it last;
- ``two-shot``: the sum is formed at one rank, which carries it through the other dimensions, and is
  spread from there; chunks take turns in who that is. The fewest messages.

The methods of these names have one dimension; ``mixed`` tries the mixes of the three over all. Both
are cheap to call: `exchange_schedule` takes an instance and returns a schedule, or None where the
algorithm does not apply (no All-Reduce, sums that only move, too many messages).

References
----------
R. Thakur, R. Rabenseifner, W. Gropp, Optimization of collective communication operations in MPICH,
IJHPCA 19, 2005.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import permutations, product
from math import lcm
from typing import TYPE_CHECKING

import numpy as np

from nestopt.collective.baselines.flows import Exchange, play_exchanges
from nestopt.collective.baselines.orders import dimensions
from nestopt.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from nestopt.collective.model.collective import Part
    from nestopt.collective.model.instance import CollectiveInstance
    from nestopt.collective.model.schedule import Schedule

__all__ = ["EXCHANGES", "exchange_schedule"]

EXCHANGES = ("one-shot", "recursive-doubling", "mixed")
_KINDS = ("one-shot", "recursive-doubling", "two-shot")
_MOST_MESSAGES = 2_000_000

# dimensions in the order in which they are summed up, each with how
_Plan = tuple[tuple["NDArray[np.int64]", str], ...]


@dataclass(slots=True)
class _Script:
    """Exchanges of one chunk in the making.

    Attributes
    ----------
    have : list of frozenset of int
        What each rank has summed up so far.
    known : list of tuple of int
        The exchanges that brought it.
    rows : list of Exchange
    """

    have: list[frozenset[int]]
    known: list[tuple[int, ...]]
    rows: list[Exchange] = field(default_factory=list)

    def round(self, pairs: Sequence[tuple[int, int]], *, replace: bool = False) -> None:
        """Sends of what the ranks have, all at once; `replace`: the receiver takes it instead."""
        have, known = list(self.have), list(self.known)
        for source, target in pairs:
            sent = Exchange(source, target, self.have[source], self.known[source])
            if replace:
                have[target], known[target] = sent.content, (len(self.rows),)
            else:
                have[target] |= sent.content
                known[target] = (*known[target], len(self.rows))
            self.rows.append(sent)
        self.have, self.known = have, known

    def sum_up(self, ranks: Sequence[int], plan: _Plan, keys: NDArray[np.int64], turn: int) -> None:
        """Every one of `ranks` gets the sum of what all of them have."""
        if not plan or len(ranks) < 2:
            return
        (digit, kind), rest = plan[0], plan[1:]
        lines: dict[tuple[int, ...], list[int]] = {}
        others = [column for column in range(keys.shape[1]) if (keys[:, column] != digit).any()]
        for rank in ranks:
            lines.setdefault(tuple(keys[rank, others].tolist()), []).append(rank)
        groups = [sorted(line, key=lambda r: int(digit[r])) for line in lines.values()]
        widest = max(len(group) for group in groups)
        if kind == "one-shot":
            pairs = [
                (group[i], group[(i + step) % len(group)])
                for step in range(1, widest)
                for group in groups
                if step < len(group)
                for i in range(len(group))
            ]
            self.round(pairs)
            self.sum_up(ranks, rest, keys, turn)
        elif kind == "recursive-doubling":
            self._doubling(groups, turn)
            self.sum_up(ranks, rest, keys, turn)
        else:
            owners = [group[turn % len(group)] for group in groups]
            # the next rank first: with every chunk's owner another, each step is a permutation
            down = [
                (group[(turn + step) % len(group)], group[turn % len(group)])
                for step in range(1, widest)
                for group in groups
                if step < len(group)
            ]
            self.round(down)
            self.sum_up(owners, rest, keys, turn // widest)
            self.round([(o, r) for r, o in down], replace=True)

    def _doubling(self, groups: Sequence[Sequence[int]], turn: int) -> None:
        before, after = [], []
        rounds: dict[int, list[tuple[int, int]]] = {}
        for group in groups:
            bits = len(group).bit_length() - 1
            power = 1 << bits
            for r in range(power, len(group)):
                before.append((group[r], group[r - power]))
                after.append((group[r - power], group[r]))
            for step in range(bits):
                bit = 1 << ((step + turn) % bits)
                pairs = [(group[r], group[r ^ bit]) for r in range(power)]
                rounds.setdefault(step, []).extend(pairs)
        self.round(before)
        for step in sorted(rounds):
            self.round(rounds[step])
        self.round(after, replace=True)


def exchange_schedule(
    instance: CollectiveInstance, name: str = "mixed", *, dims: Sequence[int] | None = None
) -> Schedule | None:
    """The best schedule that an algorithm of copied sums gives.

    Parameters
    ----------
    instance : CollectiveInstance
        Its parts are All-Reduces, its sums may be copied, its network is connected.
    name : str
        One of `EXCHANGES`; ``mixed`` tries all mixes by level, the two others among them.
    dims : sequence of int, optional
        Sizes of the dimensions of ``mixed``, the outermost first; found from the network by
        default.

    Returns
    -------
    Schedule or None
        None where the algorithm does not apply.

    Raises
    ------
    UsageError
        If `dims` do not fit the group.
    """
    parts = [part for part in instance.collective.parts if len(part.npus) > 1]
    if not parts or instance.sums != "copied" or any(p.pattern != "all-reduce" for p in parts):
        return None
    digits = [_digits(instance, part, name, dims) for part in instance.collective.parts]
    best: Schedule | None = None
    plain = not instance.topology.multicast[instance.topology.is_switch].any()
    tried = sorted(_plans(digits, name), key=lambda plans: _effort(instance, plans))
    for plans in tried:
        # a switch that copies may carry many messages as one
        if plain and best is not None and _effort(instance, plans) > best.makespan_ps:
            break
        scripts = []
        count = 0
        for part, plan in zip(instance.collective.parts, plans):
            made = _scripts(part, plan)
            scripts.append(made)
            count += sum(len(made[c % len(made)]) for c in range(part.num_chunks))
        if count > _MOST_MESSAGES or (
            best is not None and _load(instance, scripts) > best.makespan_ps
        ):
            continue
        several = any(p.num_chunks > len(m) for p, m in zip(instance.collective.parts, scripts))
        for in_waves in (False, True)[: 1 + several]:
            found = play_exchanges(instance, scripts, in_waves=in_waves)
            if found is not None and (best is None or found.makespan_ps < best.makespan_ps):
                best = found
    return best


def _effort(instance: CollectiveInstance, plans: list[_Plan]) -> float:
    """Picoseconds that the links out of all NPUs need at least for the messages of a plan."""
    topology = instance.topology
    out = ~topology.is_switch[topology.src]
    total = 0.0
    for part, plan in zip(instance.collective.parts, plans):
        occupancy = instance.occupancy_ps(part.chunk_size)[out].astype(np.float64)
        rate = float((1.0 / np.maximum(occupancy, 1.0)).sum())
        if len(part.npus) > 1 and rate:
            total += part.num_chunks * _messages(len(part.npus), plan) / rate
    return total


def _messages(ranks: int, plan: _Plan) -> int:
    """How many messages a chunk takes at least."""
    if not plan or ranks < 2:
        return 0
    (digit, kind), rest = plan[0], plan[1:]
    width = min(int(digit.max()) + 1, ranks)
    if kind == "one-shot":
        return ranks * (width - 1) + _messages(ranks, rest)
    if kind == "recursive-doubling":
        power = 1 << (width.bit_length() - 1)
        return ranks // width * power * (width.bit_length() - 1) + _messages(ranks, rest)
    owners = max(1, ranks // width)
    return 2 * (ranks - owners) + _messages(owners, rest)


def _load(instance: CollectiveInstance, scripts: Sequence[Sequence[Sequence[Exchange]]]) -> int:
    """Picoseconds that the busiest NPU sends at least, over all its links at once."""
    topology = instance.topology
    total = 0.0
    for part, made in zip(instance.collective.parts, scripts):
        occupancy = instance.occupancy_ps(part.chunk_size).astype(np.float64)
        rate = np.zeros(topology.num_nodes)
        np.add.at(rate, topology.src, 1.0 / np.maximum(occupancy, 1.0))
        each = np.bincount(np.arange(part.num_chunks) % len(made), minlength=len(made))
        sent = np.zeros(len(part.npus))
        for script, times in zip(made, each.tolist()):
            distinct = {(x.source, x.content) for x in script} if topology.multicast.all() else None
            sources = [x.source for x in script] if distinct is None else [u for u, _ in distinct]
            sent += times * np.bincount(sources, minlength=len(sent))
        total = max(total, float((sent / rate[part.npus]).max()))
    return int(total)


def _digits(
    instance: CollectiveInstance, part: Part, name: str, dims: Sequence[int] | None
) -> list[NDArray[np.int64]]:
    """The dimensions of a part's ranks, the outermost first."""
    n = len(part.npus)
    if name != "mixed":
        return [np.arange(n)]
    if dims is None:
        return dimensions(instance.topology, part.npus)
    if int(np.prod(dims)) != n:
        shown = "x".join(str(d) for d in dims)
        raise UsageError(f"--set dims={shown}: {int(np.prod(dims))} cells for {n} NPUs")
    return [row.astype(np.int64) for row in np.unravel_index(np.arange(n), tuple(dims))]


def _plans(digits: list[list[NDArray[np.int64]]], name: str) -> Iterator[list[_Plan]]:
    """For every part its dimensions in the order in which they are summed up, and by what."""
    flat = [np.arange(len(rows[0])) for rows in digits]
    for kind in (name,) if name != "mixed" else _KINDS:
        yield [((ranks, kind),) for ranks in flat]
    depth = max(len(rows) for rows in digits)
    if name != "mixed" or depth < 2:
        return
    inward = tuple(range(depth))
    orders = permutations(inward) if depth < 3 else (inward[::-1], inward)
    for order in orders:
        for kinds in product(_KINDS, repeat=depth):
            chosen = list(zip(order, kinds))
            yield [
                tuple((rows[axis], kind) for axis, kind in chosen if axis < len(rows))
                for rows in digits
            ]


def _scripts(part: Part, plan: _Plan) -> list[list[Exchange]]:
    """Scripts that the chunks of a part take by turns."""
    n = len(part.npus)
    if n < 2:
        return [[]]
    keys = np.stack([digit for digit, _ in plan], axis=1)
    period, scale = 1, 1
    for digit, kind in plan:
        size = int(digit.max()) + 1
        if kind == "two-shot":
            period, scale = lcm(period, scale * size), scale * size
        elif kind == "recursive-doubling":
            period = lcm(period, scale * max(1, size.bit_length() - 1))
    scripts = []
    for turn in range(min(period, part.num_chunks)):
        own: list[frozenset[int]] = [frozenset([r]) for r in range(n)]
        script = _Script(own, [()] * n)
        script.sum_up(range(n), plan, keys, turn)
        scripts.append(script.rows)
    return scripts
