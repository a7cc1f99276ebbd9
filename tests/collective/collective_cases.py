"""Networks, instances and runs that the tests of collectives share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nestopt.collective.greedy.solve import solve
from nestopt.collective.judge.check import check_schedule
from nestopt.collective.judge.simulate import simulate_schedule
from nestopt.collective.model.collective import Collective
from nestopt.collective.model.instance import CollectiveInstance
from nestopt.collective.model.of_result import in_columns
from nestopt.collective.model.store import load_solution
from nestopt.collective.model.topology import Topology
from nestopt.core.options import SolveOptions
from nestopt.core.registry import named

if TYPE_CHECKING:
    import numpy as np

    from nestopt.collective.model.schedule import Schedule
    from nestopt.core.result import Result

ALPHAS = (0, 200_000, 500_000, 700_000, 1_000_000, 2_000_000)
BANDWIDTHS = (25 * 10**9, 50 * 10**9, 100 * 10**9, 150 * 10**9, 200 * 10**9)


def random_topology(rng: np.random.Generator, nodes: int, *, both: bool = True) -> Topology:
    """A connected graph with random latencies and bandwidths; `both`: equal in both directions."""
    order = rng.permutation(nodes)
    edges = {tuple(sorted((int(order[i]), int(order[rng.integers(i)])))) for i in range(1, nodes)}
    edges |= {(a, b) for a in range(nodes) for b in range(a + 1, nodes) if rng.random() < 0.35}
    rows = []
    for a, b in sorted(edges):
        first = (int(rng.choice(ALPHAS)), int(rng.choice(BANDWIDTHS)))
        second = first if both else (int(rng.choice(ALPHAS)), int(rng.choice(BANDWIDTHS)))
        rows += [(a, b, *first), (b, a, *second)]
    return Topology.from_links(f"random {nodes}", nodes, rows)


def instance(
    topology: Topology | str,
    pattern: str = "all-gather",
    *,
    latency: str = "blocking",
    npus: Any = None,
    sums: str = "moved",
    **settings: Any,
) -> CollectiveInstance:
    network = named("topology", topology) if isinstance(topology, str) else topology
    group = network.npus if npus is None else npus
    return CollectiveInstance(network, Collective.of(pattern, group, **settings), latency, sums)


def greedy(problem: CollectiveInstance, *, seed: int = 0, threads: int = 1, **keys: Any) -> Result:
    settings = {key: str(value) for key, value in keys.items()}
    return solve(problem, SolveOptions(seed=seed, threads=threads, set=settings))


def schedule_of(problem: CollectiveInstance, result: Result) -> Schedule:
    assert result.solution_json is not None
    return in_columns(problem, load_solution(result.solution_json))


def verified(problem: CollectiveInstance, **keys: Any) -> Result:
    """A greedy result that the checker and the simulator accept."""
    result = greedy(problem, **keys)
    schedule = schedule_of(problem, result)
    check_schedule(problem, schedule)
    played = simulate_schedule(problem, schedule)
    assert played["simulated"] == played["closed_form"] == result.objective
    assert result.bound <= result.objective
    return result
