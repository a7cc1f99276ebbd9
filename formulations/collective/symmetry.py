"""Symmetries of a collective problem, and the constraints that break them.

A symmetry permutes nodes and chunks such that links, durations, sources and targets map to
themselves. Choose a base point (chunk, node): among the images of a schedule under the group there
is one in which the chunk reaches the node no later than any image of the chunk reaches the image of
the node. That may be demanded; then the same for a second base point under the symmetries that fix
the first one, and so on.

References
----------
D. Salvagnin, Symmetry breaking inequalities from the Schreier-Sims table, CPAIOR 2018.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nestopt.formulations.collective.grid import GridProblem

__all__ = ["Symmetry", "automorphism", "find_symmetries"]

# (chunk, node) is reached no later than its image (chunk, node)
Symmetry = tuple[tuple[int, int], tuple[int, int]]

_MAX_NODES = 80
_STEPS = 20_000


def find_symmetries(problem: GridProblem, base_points: int = 3) -> list[Symmetry]:
    """Pairs (place, image): the chunk may be demanded at the place no later than at the image.

    Empty where a link is taken in advance or chunks are sums, which are not looked into.
    """
    if problem.busy or any(chunk.is_sum for chunk in problem.chunks):
        return []
    alike: dict[tuple[object, ...], list[int]] = {}
    for c, chunk in enumerate(problem.chunks):
        alike.setdefault(_identity(problem, c, None), []).append(c)
        if any(chunk.ready.values()) or len(chunk.ready) != 1:
            return []
    found: list[Symmetry] = []
    lead: dict[int, int] = {}
    if problem.num_nodes <= _MAX_NODES and problem.chunks:
        c = 0
        source = next(iter(problem.chunks[c].ready))
        near = sorted(
            problem.chunks[c].targets - {source},
            key=problem.earliest(problem.chunks[c]).__getitem__,
        )
        fixed: dict[int, int] = {source: source}
        for step, node in enumerate(near[:base_points]):
            lead.setdefault(source, node)
            found += _images(problem, alike, c, node, {} if step == 0 else dict(fixed))
            fixed[node] = node
    for chunks in alike.values():
        source = next(iter(problem.chunks[chunks[0]].ready))
        others = problem.chunks[chunks[0]].targets - {source}
        if others:
            place = lead.get(source, min(others))
            if place not in others:
                place = min(others)
            found += [((a, place), (b, place)) for a, b in pairwise(chunks)]
    return found


def _identity(problem: GridProblem, c: int, mapping: dict[int, int] | None) -> tuple[object, ...]:
    """What makes a chunk exchangeable with another, after renaming nodes."""
    chunk = problem.chunks[c]

    def rename(v: int) -> int:
        return v if mapping is None else mapping[v]

    return (
        chunk.size,
        tuple(sorted(rename(v) for v in chunk.ready)),
        tuple(sorted(rename(v) for v in chunk.targets)),
    )


def _images(
    problem: GridProblem,
    alike: dict[tuple[object, ...], list[int]],
    c: int,
    node: int,
    fixed: dict[int, int],
) -> list[Symmetry]:
    """Images of a place under the symmetries that fix some nodes."""
    source = next(iter(problem.chunks[c].ready))
    found: list[Symmetry] = []
    distance = problem.earliest(problem.chunks[c])[node]
    for d, other in enumerate(problem.chunks):
        start = next(iter(other.ready))
        if start in fixed and fixed[start] != start:
            continue
        if source in fixed and start != source:
            continue
        first = problem.earliest(other)
        for target in sorted(other.targets):
            if (d, target) == (c, node) or target == start or first[target] != distance:
                continue
            wanted = {**fixed, source: start, node: target}
            if len(set(wanted.values())) != len(wanted):
                continue
            mapping = automorphism(problem, wanted)
            if mapping is not None:
                image = alike[_identity(problem, c, mapping)][0]
                if image == d:
                    found.append(((c, node), (d, target)))
    return found


def automorphism(problem: GridProblem, wanted: dict[int, int]) -> dict[int, int] | None:
    """A symmetry of the network and the chunks with the given values; None if none was found."""
    n = problem.num_nodes
    labels: dict[tuple[int, int], list[tuple[int, ...]]] = {}
    for e, (u, w) in enumerate(zip(problem.src.tolist(), problem.dst.tolist())):
        times = (*problem.occupancy[:, e].tolist(), *problem.transfer[:, e].tolist())
        labels.setdefault((u, w), []).append(times)
    link = {pair: tuple(sorted(rows)) for pair, rows in labels.items()}
    colour = [_colour(problem, v) for v in range(n)]
    adjacent: list[set[int]] = [set() for _ in range(n)]
    for u, w in link:
        adjacent[u].add(w)
        adjacent[w].add(u)
    neighbours = [sorted(nodes) for nodes in adjacent]
    order = list(wanted)
    for v in order:
        order += [w for w in neighbours[v] if w not in order]
    order += [v for v in range(n) if v not in order]
    mapping: dict[int, int] = {}
    used: set[int] = set()
    steps = 0

    def fits(v: int, image: int) -> bool:
        if image in used or colour[v] != colour[image]:
            return False
        return all(
            link.get((v, w)) == link.get((image, mapping[w]))
            and link.get((w, v)) == link.get((mapping[w], image))
            for w in neighbours[v]
            if w in mapping
        ) and sum(w in mapping for w in neighbours[v]) == sum(w in used for w in neighbours[image])

    def extend(depth: int) -> bool:
        nonlocal steps
        steps += 1
        if steps > _STEPS:
            return False
        if depth == n:
            return _chunks_map(problem, mapping)
        v = order[depth]
        if v in wanted:
            candidates = [wanted[v]]
        else:
            anchor = next((w for w in neighbours[v] if w in mapping), None)
            candidates = list(range(n)) if anchor is None else neighbours[mapping[anchor]]
        for image in dict.fromkeys(candidates):
            if fits(v, image):
                mapping[v] = image
                used.add(image)
                if extend(depth + 1):
                    return True
                del mapping[v]
                used.discard(image)
        return False

    return dict(mapping) if extend(0) else None


def _colour(problem: GridProblem, v: int) -> tuple[object, ...]:
    starts = sum(v in chunk.ready for chunk in problem.chunks)
    ends = sum(v in chunk.targets for chunk in problem.chunks)
    flags = (problem.is_switch[v], problem.multicast[v], problem.reduces[v])
    return (*(bool(flag) for flag in flags), starts, ends)


def _chunks_map(problem: GridProblem, mapping: dict[int, int]) -> bool:
    """Whether the chunks, with their nodes renamed, are the same chunks again."""
    count: dict[tuple[object, ...], int] = {}
    for c in range(len(problem.chunks)):
        before, after = _identity(problem, c, None), _identity(problem, c, mapping)
        count[before] = count.get(before, 0) + 1
        count[after] = count.get(after, 0) - 1
    return not any(count.values())
