"""Random max-load problems and their solution by enumeration, for the tests."""

from __future__ import annotations

import math
from itertools import combinations, product
from typing import TYPE_CHECKING

from nestopt.placement.partitioning.maxload.model import MaxLoadProblem, Operator

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np


def random_problem(rng: np.random.Generator) -> MaxLoadProblem:
    """A DAG of a few operators that `least_load` can enumerate."""
    while True:
        problem = _draw(rng)
        groups = len({o.colour if o.colour is not None else -o.id for o in problem.operators})
        if (problem.accelerators + problem.cpus) ** groups <= 3000:
            return problem


def _draw(rng: np.random.Generator) -> MaxLoadProblem:
    """Colours, backward operators with and without mates, free operators, tight memory."""
    forward = int(rng.integers(1, 6))
    training = rng.random() < 0.5
    tied = rng.choice([0.2, 0.8])
    colours: list[int | None] = [
        int(rng.integers(0, 2)) if rng.random() < tied else 100 + v for v in range(forward)
    ]
    edges = [(u, v) for u in range(forward) for v in range(u + 1, forward) if rng.random() < 0.6]
    backward = [False] * forward
    if training:
        # Mate of v is forward + v; one without a mate, of its own colour or of none, may follow
        for v in range(forward):
            backward.append(True)
            colours.append(colours[v] if rng.random() < 0.7 else [None, 200 + v][v % 2])
        edges += [(forward + v, forward + u) for u, v in edges if rng.random() < 0.8]
        edges += [(v, forward + v) for v in range(forward) if rng.random() < 0.4]
        edges += [(u, forward + v) for u in range(forward) for v in range(u) if rng.random() < 0.1]
    else:
        colours = [None if colour is not None and colour >= 100 else colour for colour in colours]
    idle = rng.random() < 0.5
    operators = []
    for v in range(len(backward)):
        nothing = idle and rng.random() < 0.5
        operators.append(
            Operator(
                id=10 * v + 3,
                accelerator_time=0.0 if nothing else int(rng.integers(0, 9)) / 8,
                cpu_time=0.0 if nothing else int(rng.integers(0, 33)) / 8,
                memory=float(rng.integers(0, 4)) if rng.random() < 0.7 else 0.0,
                output_time=0.0 if idle and rng.random() < 0.5 else int(rng.integers(0, 7)) / 16,
                backward=backward[v],
                colour=colours[v],
                on_accelerator=bool(rng.random() < 0.93),
            )
        )
    accelerators, cpus = [(1, 0), (2, 0), (3, 0), (0, 1), (1, 1), (2, 1), (2, 2), (0, 2)][
        int(rng.integers(0, 8))
    ]
    return MaxLoadProblem(
        name="random",
        accelerators=accelerators,
        cpus=cpus,
        accelerator_memory=float(rng.integers(2, 14)),
        operators=tuple(operators),
        edges=tuple((10 * u + 3, 10 * v + 3) for u, v in edges),
    )


def least_load(
    problem: MaxLoadProblem, keeps: Callable[[dict[int, int]], bool] = lambda where: True
) -> float:
    """The optimum by enumeration of every operator's place in a row of devices; inf if none.

    Parameters
    ----------
    keeps : callable
        Which places, by operator, count.
    """
    by_id = {o.id: o for o in problem.operators}
    groups: dict[object, list[int]] = {}
    for o in problem.operators:
        groups.setdefault(("own", o.id) if o.colour is None else o.colour, []).append(o.id)
    mates = {o.colour for o in problem.operators if not o.backward and o.colour is not None}

    def both_mated(u: int, v: int) -> bool:
        return by_id[u].colour in mates and by_id[v].colour in mates

    ordered = []
    for u, v in problem.edges:
        if not by_id[u].backward and not by_id[v].backward:
            ordered.append((u, v))
        elif by_id[u].backward and by_id[v].backward and not both_mated(u, v):
            ordered.append((v, u))
    devices = problem.accelerators + problem.cpus
    best = math.inf
    for places in product(range(devices), repeat=len(groups)):
        where = {i: p for p, group in zip(places, groups.values()) for i in group}
        if any(where[u] > where[v] for u, v in ordered) or not keeps(where):
            continue
        for cpus in combinations(range(devices), problem.cpus):
            best = min(best, _largest(problem, where, set(cpus), devices))
    return best


def _largest(problem: MaxLoadProblem, where: dict[int, int], cpus: set[int], devices: int) -> float:
    load, memory = [0.0] * devices, [0.0] * devices
    for o in problem.operators:
        d = where[o.id]
        if d in cpus:
            load[d] += o.cpu_time
        elif not o.on_accelerator:
            return math.inf
        else:
            load[d] += o.accelerator_time
            memory[d] += o.memory
        takers = {where[v] for u, v in problem.edges if u == o.id} - {d}
        for other in takers | ({d} if takers else set()):
            if other not in cpus:
                load[other] += o.output_time
    return math.inf if max(memory) > problem.accelerator_memory else max(load)
