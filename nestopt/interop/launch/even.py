"""The best plan with one configuration and as many layers on every stage, by trying all.

For frameworks that cut a pipeline evenly and have no other words.
"""

from __future__ import annotations

import math
import time
from itertools import product
from typing import TYPE_CHECKING

from nestopt.core.integers import divisors
from nestopt.interop.launch.launched import Launched
from nestopt.interop.launch.reading import plan_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nestopt.placement.model.cluster import Cluster
    from nestopt.placement.model.plan import Plan
    from nestopt.placement.model.transformer import Transformer
    from nestopt.placement.model.workload import Workload

__all__ = ["best_even_plan"]


def best_even_plan(
    workload: Workload, cluster: Cluster, model: Transformer, *, time_limit: float = math.inf
) -> tuple[Plan, float] | None:
    """The plan of least iteration time that fits, and its time; None if none fits.

    Tries every tensor, pipeline and data degree, micro-batch, ZeRO-0 and 1, and recomputation of
    all or of nothing, 1F1B, on the first devices that are alive. Stops at the time limit with the
    best so far.
    """
    from nestopt.placement.pricing.cost import StageCosts
    from nestopt.placement.pricing.evaluate import evaluate

    end = time.monotonic() + time_limit
    costs = StageCosts(workload)
    best: tuple[Plan, float] | None = None
    for job in _jobs(workload, model, len(cluster.alive)):
        if time.monotonic() > end and best is not None:
            break
        plan = plan_of(job, cluster)
        priced = evaluate(workload, cluster, plan, costs)
        if priced.fits and (best is None or priced.iteration_time < best[1]):
            best = plan, float(priced.iteration_time)
    return best


def _jobs(workload: Workload, model: Transformer, devices: int) -> Iterator[Launched]:
    """Every even job on at most so many devices."""
    batch = workload.global_batch
    shards = math.gcd(model.heads, model.key_heads, model.inner, model.vocabulary)
    tensors = [t for t in divisors(shards) if t <= devices]
    stages = [s for s in divisors(model.layers) if s <= devices]
    experts = [e for e in divisors(model.experts) if e <= devices] if model.experts else [1]
    for t, s, e in product(tensors, stages, experts):
        most = devices // (t * s)
        for data in (d for d in divisors(batch) if d <= most and d % e == 0):
            for micro in divisors(batch // data):
                for sp, zero, recompute in product(
                    (False, True) if t > 1 else (False,), (0, 1), ("none", "full")
                ):
                    yield Launched(
                        name=workload.name, framework="", model=model, arguments={}, batch=batch,
                        microbatch=micro, tensor=t, pipeline=s, context=1, expert=e, data=data,
                        shard=1, virtual=1, schedule="1f1b", recompute=recompute,
                        sequence_parallel=sp, zero=zero, layers=(model.layers // s,) * s,
                        pipeline_before_data=False, remarks=(),
                    )  # fmt: skip
