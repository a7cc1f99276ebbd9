"""The gap of greedy to the exact optimum on small networks with unequal links."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from collective_cases import instance, random_topology, verified

if TYPE_CHECKING:
    from nestopt.collective.problem import CollectiveInstance


def exact_makespan(problem: CollectiveInstance, upper: int) -> int | None:
    """Optimum of an All-Gather by CP-SAT over intervals in exact time, in picoseconds.

    None if 100 s do not suffice.
    """
    from ortools.sat.python import cp_model

    topology, source = problem.topology, problem.collective.source
    size = problem.collective.chunk_size
    occupancy, transfer = problem.occupancy_ps(size), problem.transfer_ps(size)
    tick = int(np.gcd.reduce(np.concatenate([occupancy, transfer])))
    occupancy, transfer, horizon = occupancy // tick, transfer // tick, upper // tick
    model = cp_model.CpModel()
    makespan = model.new_int_var(0, horizon, "makespan")
    arrival = {
        (v, c): 0 if source[c] == v else model.new_int_var(1, horizon, f"arrival {v} {c}")
        for v in range(topology.num_nodes)
        for c in range(len(source))
    }
    ways: dict[tuple[int, int], list[cp_model.IntVar]] = {
        key: [] for key, when in arrival.items() if not isinstance(when, int)
    }
    for key in ways:
        model.add(arrival[key] <= makespan)
    for e in range(topology.num_links):
        u, v = int(topology.src[e]), int(topology.dst[e])
        busy = []
        for c in range(len(source)):
            if source[c] == v:
                continue
            used = model.new_bool_var(f"used {e} {c}")
            start = model.new_int_var(0, horizon, f"start {e} {c}")
            busy.append(
                model.new_optional_fixed_size_interval_var(start, int(occupancy[e]), used, "send")
            )
            model.add(start >= arrival[u, c]).only_enforce_if(used)
            model.add(arrival[v, c] == start + int(transfer[e])).only_enforce_if(used)
            ways[v, c].append(used)
        model.add_no_overlap(busy)
    for choices in ways.values():
        model.add_exactly_one(choices)
    model.minimize(makespan)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    solver.parameters.max_time_in_seconds = 100
    if solver.solve(model) != cp_model.OPTIMAL:
        return None
    return int(solver.objective_value) * tick


def gaps(count: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        nodes = int(rng.integers(4, 8))
        topology = random_topology(rng, nodes, both=bool(rng.integers(2)))
        size = int(rng.choice([10**4, 10**5, 10**6]))
        latency = str(rng.choice(["blocking", "pipelined"]))
        problem = instance(topology, chunk_size=size, latency=latency)
        result = verified(problem)
        objective = int(result.objective)
        optimum = exact_makespan(problem, objective) if result.gap else objective
        if optimum is not None:
            assert result.bound <= optimum <= objective
            found.append(objective / optimum - 1)
    assert len(found) >= 0.99 * count
    return np.array(found)


def test_gap_to_optimum_on_random_uneven_networks() -> None:
    found = gaps(40, seed=11)
    assert found.mean() <= 0.005
    assert found.max() <= 0.05


@pytest.mark.slow
def test_gap_to_optimum_on_a_thousand_random_uneven_networks() -> None:
    found = gaps(1000, seed=12)
    assert found.mean() <= 0.005
    assert found.max() <= 0.05
