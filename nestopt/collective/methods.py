"""The collective methods, by name."""

from __future__ import annotations

from nestopt.core.registry import Method

__all__ = ["METHODS"]

METHODS: dict[str, Method] = {
    "greedy": Method(
        "nestopt.collective.greedy.solve:solve",
        "matching of links and chunks on a time-expanded network; any size",
        ("policy", "restarts", "effort", "store"),
    ),
    "milp": Method(
        "nestopt.formulations.collective.solve:solve_milp",
        "exact, on a time grid, by a MILP back-end; small networks",
        ("symmetry", "incumbent", "bound", "tick"),
    ),
    "cpsat": Method(
        "nestopt.formulations.collective.solve:solve_cpsat",
        "exact, by CP-SAT, on a time grid or with intervals; small networks",
        ("model", "deterministic-time", "symmetry", "incumbent", "bound"),
    ),
    "sccl": Method(
        "nestopt.formulations.collective.sccl:solve_sccl",
        "is there an algorithm of so many steps and rounds (chunks as in the collective)?",
        ("steps", "rounds"),
    ),
    "trees": Method(
        "nestopt.collective.trees.solve:solve",
        "spanning trees packed at the rate of the bottleneck cut; best with many chunks",
        ("chunks",),
    ),
    "lns": Method(
        "nestopt.formulations.collective.lns:solve",
        "large-neighbourhood search: CP-SAT repairs parts of a greedy schedule",
        ("iterations", "effort"),
    ),
    "ring": Method(
        "nestopt.collective.baselines:solve_ring",
        "ring, one way or both ways round",
        ("order", "unicast"),
    ),
    "direct": Method(
        "nestopt.collective.baselines:solve_direct", "every pair directly", ("unicast",)
    ),
    "rhd": Method(
        "nestopt.collective.baselines:solve_rhd", "recursive halving and doubling", ("unicast",)
    ),
    "dbt": Method("nestopt.collective.baselines:solve_dbt", "double binary trees", ("unicast",)),
    "hierarchical": Method(
        "nestopt.collective.baselines:solve_hierarchical",
        "dimension by dimension, as BlueConnect",
        ("dims", "unicast"),
    ),
    "one-shot": Method(
        "nestopt.collective.baselines.exchange_methods:solve_one_shot",
        "All-Reduce: everyone's contribution to everyone, one latency; small buffers",
        (),
    ),
    "recursive-doubling": Method(
        "nestopt.collective.baselines.exchange_methods:solve_recursive_doubling",
        "All-Reduce: exchanges of copied sums in log2(n) rounds; small buffers",
        (),
    ),
    "mixed": Method(
        "nestopt.collective.baselines.exchange_methods:solve_mixed",
        "All-Reduce: one-shot, two-shot and doubling by level, the best mix",
        ("dims",),
    ),
    "shortest-path": Method(
        "nestopt.collective.baselines:solve_shortest_path",
        "every chunk along shortest paths, first come first served",
        ("unicast",),
    ),
}
