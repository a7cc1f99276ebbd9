"""The placement methods, by name."""

from __future__ import annotations

from nestopt.core.registry import Method

__all__ = ["METHODS"]

METHODS: dict[str, Method] = {
    "dp": Method(
        "nestopt.placement.dp.solve:solve",
        "exact dynamic program over the structured plans of the space, at any size",
        (),
        {
            "nestopt.maxload/1": "nestopt.placement.partitioning.maxload.dp:solve_dp",
            "nestopt.piper/1": "nestopt.placement.partitioning.piper.dp:solve_dp",
        },
        {"nestopt.maxload/1": ("ideal-limit",), "nestopt.piper/1": ("ideal-limit", "uniform")},
    ),
    "milp": Method(
        "nestopt.formulations.placement.milp:solve",
        "mixed-integer linear program over any structure; small instances",
        ("start",),
        {"nestopt.maxload/1": "nestopt.formulations.placement.maxload_milp:solve"},
    ),
    "cpsat": Method(
        "nestopt.formulations.placement.cpsat:solve",
        "constraint program over any structure; small instances",
        ("start",),
        {"nestopt.maxload/1": "nestopt.formulations.placement.maxload_cpsat:solve"},
    ),
    "lns": Method(
        "nestopt.placement.lns.solve:solve",
        "search among all plans wherever their devices are, from dp's plan; at any size",
        ("start", "iterations"),
    ),
    "equal": Method(
        "nestopt.placement.baselines.uniform:solve_megatron",
        "baseline of Piper's model: equal split (otherwise as megatron)",
        (),
        {"nestopt.piper/1": "nestopt.placement.partitioning.piper.equal:solve_equal"},
    ),
    "megatron": Method(
        "nestopt.placement.baselines.uniform:solve_megatron",
        "baseline: the best balanced manual recipe",
    ),
    "grid": Method(
        "nestopt.placement.baselines.uniform:solve_grid",
        "baseline: every uniform (data, pipeline, tensor, micro-batch) plan, best even split",
    ),
    "flat-dp": Method(
        "nestopt.placement.baselines.blind:solve_flat_dp",
        "baseline: the dynamic program on a network without levels",
    ),
    "repair-dp": Method(
        "nestopt.placement.baselines.blind:solve_repair_dp",
        "baseline: the dynamic program with no regard to memory, its plan repaired",
    ),
    "mcmc": Method(
        "nestopt.placement.baselines.walks:solve_mcmc",
        "baseline: simulated annealing",
        ("iterations",),
    ),
    "random": Method(
        "nestopt.placement.baselines.walks:solve_random",
        "baseline: the best of many random plans",
        ("iterations",),
    ),
}
