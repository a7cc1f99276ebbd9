"""Direct networks: products of lines, rings and cliques, hypercubes, stars, random regular graphs.

The default link of these families is the unit link: 1 GB/s and no latency, so that a chunk of 1 MB
crosses a link in 1 ms and a makespan in milliseconds counts steps. NPUs are numbered row-major
(the last dimension varies fastest); a ring of two has one cable, not two.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from nestopt.instances.network import NetworkBuilder, strongly_connected
from nestopt.instances.spec import LinkSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nestopt.instances.network import Network
    from nestopt.instances.spec import Spec

__all__ = [
    "UNIT",
    "Dimension",
    "clique",
    "grid",
    "hypercube",
    "line",
    "mesh",
    "product",
    "random_regular",
    "ring",
    "rfs",
    "star",
    "uneven4",
    "torus",
]

UNIT = LinkSpec(10**9)


@dataclass(frozen=True, slots=True)
class Dimension:
    """One factor of a product network.

    Attributes
    ----------
    kind : str
        ``"line"``, ``"ring"``, ``"ring-one-way"``, ``"clique"`` or ``"switch"`` (one switch per
        group of NPUs that differ in this dimension only).
    size : int
    link : LinkSpec
        Of each link; for a switch, of each NPU's link to it and from it.
    """

    kind: str
    size: int
    link: LinkSpec


def product(name: str, dimensions: Sequence[Dimension], *, first_fastest: bool = False) -> Network:
    """The product of dimensions: NPUs that differ in one coordinate are joined as it says.

    Parameters
    ----------
    name : str
    dimensions : sequence of Dimension
    first_fastest : bool
        Number NPUs with the first coordinate varying fastest (as ASTRA-sim does) instead of the
        last.
    """
    sizes = [d.size for d in dimensions]
    coordinates = list(itertools.product(*(range(size) for size in sizes)))
    if first_fastest:
        coordinates.sort(key=lambda c: c[::-1])
    builder = NetworkBuilder()
    index = {c: builder.npu("npu" + ".".join(map(str, c))) for c in coordinates}
    for axis, dimension in enumerate(dimensions):
        for start in coordinates:
            if start[axis] == 0 and dimension.size > 1:
                line = [
                    index[*start[:axis], step, *start[axis + 1 :]] for step in range(dimension.size)
                ]
                _join(builder, line, dimension, axis, start)
    if len(sizes) > 1 and sizes[-1] > 1:
        for start in coordinates:
            if start[-1] == 0:
                builder.group("row", [index[*start[:-1], step] for step in range(sizes[-1])])
    return builder.build(name)


def _join(
    builder: NetworkBuilder,
    line: list[int],
    dimension: Dimension,
    axis: int,
    start: tuple[int, ...],
) -> None:
    tier, link = f"dim{axis}", dimension.link
    if dimension.kind == "switch":
        rest = ".".join("*" if i == axis else str(c) for i, c in enumerate(start))
        switch = builder.switch(f"switch{rest}")
        for npu in line:
            builder.cable(npu, switch, link, tier)
        builder.group("node", [*line, switch])
    elif dimension.kind == "clique":
        for a, b in itertools.combinations(line, 2):
            builder.cable(a, b, link, tier)
    elif dimension.kind == "ring-one-way":
        for a, b in zip(line, line[1:] + line[:1]):
            builder.link(a, b, link, tier)
    else:
        for a, b in itertools.pairwise(line):
            builder.cable(a, b, link, tier)
        if dimension.kind == "ring" and len(line) > 2:
            builder.cable(line[-1], line[0], link, tier)


def _wrapped(spec: Spec, sizes: tuple[int, ...], wrap: Sequence[bool]) -> Network:
    links = spec.links([UNIT] * len(sizes))
    spec.finish()
    return product(
        spec.text,
        [
            Dimension("ring" if around else "line", size, link)
            for size, around, link in zip(sizes, wrap, links)
        ],
    )


def ring(spec: Spec) -> Network:
    """``ring:N[,directed=yes]``."""
    size = spec.integer(0, "the number of NPUs", minimum=2)
    directed = spec.flag("directed")
    links = spec.links([UNIT])
    spec.finish()
    kind = "ring-one-way" if directed else "ring"
    return product(spec.text, [Dimension(kind, size, links[0])])


def line(spec: Spec) -> Network:
    """``line:N``."""
    size = spec.integer(0, "the number of NPUs", minimum=2)
    return _wrapped(spec, (size,), [False])


def mesh(spec: Spec, dimensions: int | None = None) -> Network:
    """``mesh2d:RxC``, ``mesh3d:...``, ``mesh:AxBx...``."""
    sizes = spec.shape("the size of every dimension", dimensions=dimensions)
    return _wrapped(spec, sizes, [False] * len(sizes))


def torus(spec: Spec, dimensions: int | None = None) -> Network:
    """``torus2d:RxC``, ``torus3d:...``, ``torus:AxBx...``."""
    sizes = spec.shape("the size of every dimension", dimensions=dimensions)
    return _wrapped(spec, sizes, [True] * len(sizes))


def grid(spec: Spec) -> Network:
    """``grid:AxBx...,wrap=10...``: one digit per dimension says whether it wraps."""
    sizes = spec.shape("the size of every dimension")
    wrap = spec.option("wrap", "0" * len(sizes)) or ""
    if len(wrap) != len(sizes) or set(wrap) - {"0", "1"}:
        raise spec.error(f"wrap={wrap!r}; expected {len(sizes)} digits 0 or 1, one per dimension")
    return _wrapped(spec, sizes, [digit == "1" for digit in wrap])


def hypercube(spec: Spec) -> Network:
    """``hypercube:D``: 2^D NPUs."""
    order = spec.integer(0, "the number of dimensions")
    if order > 20:
        raise spec.error(f"the number of dimensions is {order}; expected at most 20")
    links = spec.links([UNIT] * order)
    spec.finish()
    return product(spec.text, [Dimension("line", 2, link) for link in links])


def clique(spec: Spec) -> Network:
    """``fully-connected:N``."""
    size = spec.integer(0, "the number of NPUs", minimum=2)
    links = spec.links([UNIT])
    spec.finish()
    return product(spec.text, [Dimension("clique", size, links[0])])


def star(spec: Spec) -> Network:
    """``star:N``: NPU 0 in the middle and N - 1 others around it."""
    size = spec.integer(0, "the number of NPUs", minimum=2)
    links = spec.links([UNIT])
    spec.finish()
    builder = NetworkBuilder()
    hub, *others = [builder.npu(f"npu{i}") for i in range(size)]
    for other in others:
        builder.cable(hub, other, links[0], "dim0")
    return builder.build(spec.text)


def rfs(spec: Spec) -> Network:
    """``3d-rfs:RxFxS``: rings of cliques of switches, the 3D-RFS of the TACOS paper.

    NPUs that differ in the first coordinate form a ring of R, in the second a clique of F, in the
    third they share a switch with S ports.
    """
    sizes = spec.shape("ring, clique and switch sizes", dimensions=3)
    links = spec.links([UNIT] * 3)
    spec.finish()
    kinds = ("ring", "clique", "switch")
    return product(spec.text, [Dimension(k, s, link) for k, s, link in zip(kinds, sizes, links)])


def random_regular(spec: Spec) -> Network:
    """``random-regular:N,DEGREE[,SEED]``: a connected random simple regular graph.

    A circulant graph is mixed by degree-preserving swaps of two edges (20 per edge) and mixed on
    until it is connected.

    References
    ----------
    Bollobas, Random Graphs, 2nd ed., section 2.4 (regular graphs of degree >= 3 are almost surely
    connected, so that more mixing is rarely needed).
    """
    size = spec.integer(0, "the number of NPUs", minimum=2)
    degree = spec.integer(1, "the degree")
    seed = spec.integer(2, "the seed", minimum=0, default=0)
    links = spec.links([UNIT])
    spec.finish()
    if degree >= size or size * degree % 2:
        raise spec.error(
            f"there is no graph of {size} NPUs of degree {degree}; expected a degree below "
            f"{size} with an even number of link ends"
        )
    if degree == 1 and size > 2:
        raise spec.error(f"{size} NPUs of degree 1 cannot be connected; expected a degree >= 2")
    rng = np.random.default_rng(seed)
    edges = _circulant(size, degree)
    while True:
        _swap_edges(edges, rng, 20 * len(edges))
        builder = NetworkBuilder()
        for i in range(size):
            builder.npu(f"npu{i}")
        for a, b in sorted(edges):
            builder.cable(a, b, links[0], "dim0")
        network = builder.build(spec.text)
        if strongly_connected(network):
            return network


def _circulant(size: int, degree: int) -> list[tuple[int, int]]:
    edges = [
        (min(i, j), max(i, j))
        for offset in range(1, degree // 2 + 1)
        for i in range(size)
        for j in [(i + offset) % size]
    ]
    if degree % 2:
        edges += [(i, i + size // 2) for i in range(size // 2)]
    return edges


def _swap_edges(edges: list[tuple[int, int]], rng: np.random.Generator, swaps: int) -> None:
    present = set(edges)
    draws = rng.integers(0, len(edges), size=(swaps, 2)).tolist()
    for (first, second), crossed in zip(draws, rng.integers(0, 2, size=swaps).tolist()):
        (a, b), (c, d) = edges[first], edges[second]
        if crossed:
            c, d = d, c
        one, two = (min(a, d), max(a, d)), (min(c, b), max(c, b))
        if len({a, b, c, d}) == 4 and one not in present and two not in present:
            present -= {edges[first], edges[second]}
            present |= {one, two}
            edges[first], edges[second] = one, two


def uneven4(spec: Spec) -> Network:
    """``uneven4``: four NPUs with unequal links on which a matcher must wait for its chunks.

    Latencies both ways, in microseconds: 0-2 2, 0-1 4, 1-3 2, 2-3 4, 1-2 2; the bandwidth of 10^9
    GiB/s makes a chunk of one byte take the latency only. The distance from 0 to 3 is 6 us.
    """
    spec.finish()
    builder = NetworkBuilder()
    for i in range(4):
        builder.npu(f"npu{i}")
    for a, b, microseconds in ((0, 2, 2), (0, 1, 4), (1, 3, 2), (2, 3, 4), (1, 2, 2)):
        builder.cable(a, b, LinkSpec(10**9 * 2**30, microseconds * 10**6), "dim0")
    return builder.build(spec.text)
