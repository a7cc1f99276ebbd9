"""The lattice of ideals."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from nestopt.core.errors import NestoptError
from nestopt.placement.model.ideals import TooManyIdealsError, enumerate_ideals, topological_order


def brute(predecessors: list[list[int]]) -> set[frozenset[int]]:
    found = set()
    for bits in product((0, 1), repeat=len(predecessors)):
        if all(bits[u] for v, before in enumerate(predecessors) if bits[v] for u in before):
            found.add(frozenset(v for v, bit in enumerate(bits) if bit))
    return found


@pytest.mark.parametrize("seed", range(30))
def test_matches_enumeration_of_all_subsets(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(0, 9))
    names = rng.permutation(count)
    graph: list[list[int]] = [[] for _ in range(count)]
    for v in range(count):
        graph[names[v]] = [int(names[u]) for u in range(v) if rng.random() < 0.3]
    lattice = enumerate_ideals(graph)
    sets = [frozenset(lattice.members(i)) for i in range(len(lattice))]
    assert len(set(sets)) == len(sets)
    assert set(sets) == brute(graph)
    assert [len(s) for s in sets] == lattice.sizes.tolist() == sorted(lattice.sizes.tolist())
    for i, ideal in enumerate(sets):
        entries = range(lattice.cover_start[i], lattice.cover_start[i + 1])
        covers = {(lattice.cover_vertex[e], sets[lattice.cover_below[e]]) for e in entries}
        assert covers == {(v, ideal - {v}) for v in ideal if ideal - {v} in set(sets)}
        ranks = [lattice.rank[lattice.cover_vertex[e]] for e in entries]
        assert ranks == sorted(ranks)


@pytest.mark.parametrize("seed", range(5))
def test_removal_by_decreasing_rank_meets_each_ideal_below_once(seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = [[u for u in range(v) if rng.random() < 0.3] for v in range(8)]
    lattice = enumerate_ideals(graph)

    def walk(ideal: int, top: int) -> list[int]:
        met = []
        for e in range(lattice.cover_start[ideal], lattice.cover_start[ideal + 1]):
            rank = int(lattice.rank[lattice.cover_vertex[e]])
            if rank < top:
                below = int(lattice.cover_below[e])
                met += [below, *walk(below, rank)]
        return met

    for ideal in range(len(lattice)):
        met = walk(ideal, len(graph))
        inside = set(lattice.members(ideal))
        expected = [i for i in range(len(lattice)) if set(lattice.members(i)) < inside]
        assert sorted(met) == expected


def test_counts_of_chain_antichain_and_grid() -> None:
    assert len(enumerate_ideals([[v - 1] if v else [] for v in range(200)])) == 201
    assert len(enumerate_ideals([[] for _ in range(12)])) == 4096
    side = 7
    grid = [
        [v - d for d, edge in ((1, v % side), (side, v // side)) if edge] for v in range(side**2)
    ]
    assert len(enumerate_ideals(grid)) == 3432  # C(14, 7)


def test_long_chain_is_quick_and_small() -> None:
    lattice = enumerate_ideals([[v - 1] if v else [] for v in range(10_000)])
    assert len(lattice) == 10_001
    assert lattice.masks.nbytes < 13e6
    assert np.array_equal(lattice.cover_below, np.arange(10_000))


def test_limit_counts_all_ideals() -> None:
    antichain: list[list[int]] = [[] for _ in range(6)]
    assert len(enumerate_ideals(antichain, limit=64)) == 64
    with pytest.raises(TooManyIdealsError, match="more than 63 ideals"):
        enumerate_ideals(antichain, limit=63)


def test_cycles_and_unknown_vertices_are_named() -> None:
    with pytest.raises(NestoptError, match="cycle: "):
        topological_order([[1], [0]])
    with pytest.raises(NestoptError, match="vertex 1 has the predecessor 5"):
        enumerate_ideals([[], [5]])
