"""4D decompositions as one-stage plans, priced by the placement model and nothing else.

A decomposition (Gx, Gy, Gz, Gdata) is a plan of one stage: all operators, one micro-batch a
replica, full recomputation, rank ``((i_data Gz + i_z) Gy + i_y) Gx + i_x`` on the alive device of
that number. Its time and memory are those that ``nestopt solve`` and the checker give the plan.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from nestopt.core.errors import InputError
from nestopt.placement.model.grid import Grid, Mode, config_of, hidden
from nestopt.placement.model.plan import Hides, Plan, Stage
from nestopt.placement.model.transformer import expand
from nestopt.placement.pricing.comm import PROFILE
from nestopt.placement.pricing.cost import FAMILIES, StageCosts
from nestopt.placement.pricing.evaluate import evaluate
from nestopt.placement.pricing.parameters import current_set

if TYPE_CHECKING:
    from nestopt.fourd.decomposition import Grid as FourD
    from nestopt.fourd.overlap import Overlap
    from nestopt.placement.model.cluster import Cluster
    from nestopt.placement.model.transformer import Transformer
    from nestopt.placement.model.workload import Workload

__all__ = ["PricedGrid", "plan_of_grid", "price_grids", "workload_of_model"]


@dataclass(frozen=True, slots=True)
class PricedGrid:
    """A decomposition's plan and its price.

    Attributes
    ----------
    grid : Grid
    plan : Plan
    iteration, exposed, communication : float
        Seconds of an iteration; of it communication that is not hidden; all communication, one
        after the other.
    memory : float
        Bytes on a device.
    fits : bool
    """

    grid: FourD
    plan: Plan
    iteration: float
    exposed: float
    communication: float
    memory: float
    fits: bool


def workload_of_model(name: str, model: Transformer, batch: int) -> Workload:
    """The workload of a transformer, as the parameter set in force prices it."""
    return expand(name, current_set().transformer(model), batch)


def plan_of_grid(workload: Workload, cluster: Cluster, grid: FourD, overlap: Overlap) -> Plan:
    """The one-stage plan of a decomposition.

    Raises
    ------
    InputError
        If the placement model has no such overlap: AxoNN's three come together, and weights are
        neither cached nor micro-batches over-decomposed.
    """
    three = {overlap.all_reduce, overlap.reduce_scatter, overlap.all_gather}
    if len(three) > 1 or overlap.cache_weights or overlap.two_way:
        raise InputError(
            "the full mode has all-reduce, reduce-scatter and all-gather together or none of "
            "them, and neither cache-weights nor two-way; the mode layers has each of its own",
            field="overlap",
        )
    place = Grid(grid.x, grid.y, grid.z, 1, 1)
    on = three == {True} and place.t > 1
    hides = hidden(place, 0, on, Hides.SYNC if overlap.data else Hides.NONE)
    config = config_of(place, Mode(False, 0, "full", on, hides))
    devices = cluster.alive[: grid.data * place.width].reshape(grid.data, place.width)
    operators = tuple(range(workload.num_operators))
    return Plan((Stage(operators, config, devices),), grid.data, workload.global_batch // grid.data)


def price_grids(
    workload: Workload, cluster: Cluster, grids: list[FourD], overlap: Overlap
) -> list[PricedGrid]:
    """Prices of the decompositions that the workload's operators allow."""
    costs = StageCosts(workload)
    kinds = {o.kind: o for o in workload.operators}.values()
    found = []
    for grid in grids:
        if not all(o.allows(grid.x, grid.y, grid.z, 1, 1) for o in kinds):
            continue
        plan = plan_of_grid(workload, cluster, grid, overlap)
        priced = evaluate(workload, cluster, plan, costs)
        compute = _compute(workload, cluster, plan, costs)
        config = replace(plan.stages[0].config, overlap=False, hides=Hides.NONE)
        bare = replace(plan, stages=(replace(plan.stages[0], config=config),))
        alone = evaluate(workload, cluster, bare, costs).iteration_time
        found.append(
            PricedGrid(
                grid,
                plan,
                priced.iteration_time,
                max(0.0, priced.iteration_time - compute),
                max(0.0, alone - compute),
                float(priced.need[0]),
                priced.fits,
            )
        )
    return found


def _compute(workload: Workload, cluster: Cluster, plan: Plan, costs: StageCosts) -> float:
    """Seconds of the plan on a network that costs nothing."""
    stage = plan.stages[0]
    config = stage.config
    grid = Grid(*config.tensor, 1, 1)
    modes = [Mode(False, 0, "full")]
    nowhere = np.zeros((len(FAMILIES), PROFILE))
    types = [cluster.types[i] for i in np.unique(cluster.type_of[stage.devices])]
    block = costs.blocks([stage.operators])
    batch = plan.microbatch, plan.replicas
    rates = costs.rates(grid, modes, *batch, nowhere, types)
    sync = costs.sync(block, grid, modes, *batch, nowhere, types)
    return float((block.counts @ rates)[0, 0] + sync[0, 0])
