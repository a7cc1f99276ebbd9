"""The placement methods, by name."""

from __future__ import annotations

from nestopt.placement.space import SPACE_SETTINGS
from nestopt.registry import Method

__all__ = ["METHODS"]

METHODS: dict[str, Method] = {
    "dp": Method(
        "nestopt.placement.dp.solve:solve",
        "exact dynamic program over the structured space, at any size",
        SPACE_SETTINGS,
    ),
    "megatron": Method(
        "nestopt.placement.baselines:solve_megatron",
        "baseline: the best balanced manual recipe",
        SPACE_SETTINGS,
    ),
    "grid": Method(
        "nestopt.placement.baselines:solve_grid",
        "baseline: every uniform (data, pipeline, tensor, micro-batch) plan, best even split",
        SPACE_SETTINGS,
    ),
    "flat-dp": Method(
        "nestopt.placement.baselines:solve_flat_dp",
        "baseline: the dynamic program on a network without levels",
        SPACE_SETTINGS,
    ),
    "mcmc": Method(
        "nestopt.placement.baselines:solve_mcmc",
        "baseline: simulated annealing",
        (*SPACE_SETTINGS, "iterations"),
    ),
    "random": Method(
        "nestopt.placement.baselines:solve_random",
        "baseline: the best of many random plans",
        (*SPACE_SETTINGS, "iterations"),
    ),
}
