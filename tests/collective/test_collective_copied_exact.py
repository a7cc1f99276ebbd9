"""Copied and moved sums: both exact models against exhaustive search, and what copying gains."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import pytest
from collective_cases import instance
from sampling import slow

from nestopt.collective.bounds import all_bounds
from nestopt.collective.judge.check import check_schedule
from nestopt.collective.model.topology import Topology
from nestopt.core.options import SolveOptions
from nestopt.core.result import Reason
from nestopt.formulations.collective.solve import solve_cpsat, solve_milp

if TYPE_CHECKING:
    from nestopt.collective.model.instance import CollectiveInstance

US = 10**6
Family = frozenset[int]


def network(name: str) -> Topology:
    """A few NPUs and links that carry a chunk of 1,000 bytes in 1 us."""
    edges = {
        "pair": [(0, 1)],
        "line3": [(0, 1), (1, 2)],
        "triangle": [(0, 1), (1, 2), (0, 2)],
        "line4": [(0, 1), (1, 2), (2, 3)],
        "star4": [(0, 1), (0, 2), (0, 3)],
        "ring4": [(0, 1), (1, 2), (2, 3), (0, 3)],
        "one way": [(0, 1), (1, 2), (2, 0)],
    }[name]
    rows = [(a, b, 0, 10**9) for a, b in edges]
    nodes = 1 + max(max(edge) for edge in edges)
    return Topology.from_links(name, nodes, rows, bidirectional=name != "one way")


def closed(sets: Family) -> Family:
    """All unions of disjoint sets."""
    found = set(sets)
    while True:
        more = {a | b for a in found for b in found if not a & b} - found
        if not more:
            return frozenset(found)
        found |= more


def steps_with_copies(topology: Topology, chunks: int) -> int:
    """Least number of steps by trying everything: every message of every link in every step."""
    nodes = topology.num_nodes
    links = list(zip(topology.src.tolist(), topology.dst.tolist()))
    full = (1 << nodes) - 1
    states = {tuple(frozenset([1 << v]) for v in range(nodes) for _ in range(chunks))}
    steps = 0
    while not any(all(full in family for family in state) for state in states):
        steps += 1
        following: set[tuple[Family, ...]] = set()
        for state in states:
            at_node = []
            for w in range(nodes):
                sources = [u for u, head in links if head == w]
                menus = [
                    [(c, s) for c in range(chunks) for s in sorted(state[u * chunks + c])]
                    for u in sources
                ]
                options = set()
                for picks in product(*menus):
                    own = [set(state[w * chunks + c]) for c in range(chunks)]
                    for c, s in picks:
                        own[c].add(s)
                    options.add(tuple(closed(frozenset(family)) for family in own))
                at_node.append(maximal(options))
            for choice in product(*at_node):
                following.add(tuple(family for own in choice for family in own))
        states = maximal(following)
    return steps


def maximal(options: set[tuple[Family, ...]]) -> set[tuple[Family, ...]]:
    """Those that no other has at least as much as, everywhere."""
    return {
        a for a in options if not any(a != b and all(x <= y for x, y in zip(a, b)) for b in options)
    }


def steps_with_moves(topology: Topology, chunks: int) -> int:
    """The same where what is sent is gone, unless it is whole."""
    nodes = topology.num_nodes
    links = list(zip(topology.src.tolist(), topology.dst.tolist()))
    full = (1 << nodes) - 1
    states = {tuple(1 << v for v in range(nodes) for _ in range(chunks))}
    steps = 0
    while not any(all(has == full for has in state) for state in states):
        steps += 1
        following = set()
        for state in states:
            menus = [[-1, *(c for c in range(chunks) if state[u * chunks + c])] for u, _ in links]
            for picks in product(*menus):
                left, coming, legal = list(state), [0] * len(state), True
                for (u, w), c in zip(links, picks):
                    if c < 0:
                        continue
                    place = u * chunks + c
                    sent = left[place]
                    legal = legal and sent > 0
                    if sent != full:
                        left[place] = 0
                    elif state[w * chunks + c] == full:
                        continue
                    if sent & coming[w * chunks + c] and sent != full:
                        legal = False
                    coming[w * chunks + c] |= sent
                if legal:
                    merged = []
                    for has, came in zip(left, coming):
                        whole = full in (has, came)
                        legal = legal and (whole or not has & came)
                        merged.append(full if whole else has | came)
                    if legal:
                        following.add(tuple(merged))
        states = following
    return steps


CASES = [
    ("pair", 1),
    ("pair", 3),
    ("line3", 1),
    ("line3", 2),
    ("triangle", 1),
    ("triangle", 2),
    ("one way", 1),
    ("one way", 2),
    ("line4", 1),
    ("star4", 1),
    ("ring4", 1),
]


def solved(problem: CollectiveInstance, solver: str) -> int:
    solve = {"cpsat": solve_cpsat, "milp": solve_milp}[solver]
    found = solve(problem, SolveOptions(set={"bound": "none", "incumbent": "none"}))
    assert found.termination.reason is Reason.OPTIMAL
    assert isinstance(found.objective, int)
    for row in all_bounds(problem):
        assert row["value"] <= found.objective, row["name"]
    return found.objective


@pytest.mark.parametrize(("name", "chunks"), [*CASES[1::2], *slow(CASES[::2])])
def test_models_find_what_exhaustive_search_finds(name: str, chunks: int) -> None:
    topology = network(name)
    copied, moved = (
        instance(topology, "all-reduce", chunk_size=1000, chunks=chunks, sums=sums)
        for sums in ("copied", "moved")
    )
    best = steps_with_copies(topology, chunks) * US
    assert solved(copied, "cpsat") == solved(copied, "milp") == best
    least = steps_with_moves(topology, chunks) * US
    assert solved(moved, "cpsat") == solved(moved, "milp") == least
    assert best <= least


# alpha in units of the time of one chunk on a link: optimum where sums move, and are copied
GAINS = [
    ("triangle", 0, 2, 2),
    ("triangle", 4, 10, 7),
    ("ring4", 0, 4, 3),
    ("ring4", 2, 12, 7),
]


@pytest.mark.parametrize(("name", "alpha", "moved", "copied"), GAINS)
def test_what_copying_gains_by_latency(name: str, alpha: int, moved: int, copied: int) -> None:
    plain = network(name)
    topology = Topology.from_links(
        name,
        plain.num_nodes,
        [(a, b, alpha * US, 10**9) for a, b in zip(plain.src.tolist(), plain.dst.tolist())],
    )
    found = {}
    for sums in ("moved", "copied"):
        problem = instance(topology, "all-reduce", latency="pipelined", chunk_size=1000, sums=sums)
        result = solve_cpsat(problem, SolveOptions())
        assert result.termination.reason is Reason.OPTIMAL
        found[sums] = result.objective // US
        check_schedule(problem, result.solution)
    assert (found["moved"], found["copied"]) == (moved, copied)


def test_exchanges_prove_small_buffers_optimal() -> None:
    for name, best in (("fully-connected:8", 5_320_000), ("hypercube:3", 15_200_000)):
        problem = instance(
            f"{name},bw=25GB/s,alpha=5us",
            "all-reduce",
            latency="pipelined",
            chunk_size=1000,
            sums="copied",
        )
        result = solve_cpsat(problem, SolveOptions())
        assert result.termination.reason is Reason.OPTIMAL
        assert result.objective == best
        check_schedule(problem, result.solution)
