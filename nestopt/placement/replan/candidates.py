"""Plans close to an old one on a cluster that has lost devices."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from nestopt.placement.pricing.evaluate import with_best_shares

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nestopt.placement.model.cluster import Cluster
    from nestopt.placement.model.plan import Plan
    from nestopt.placement.model.workload import Workload

__all__ = ["fewer_replicas", "nearby", "with_spares"]


def nearby(old: Plan, cluster: Cluster, workload: Workload) -> Iterator[tuple[str, Plan]]:
    """Every way to keep the old plan's form: its name and the plan.

    Parameters
    ----------
    cluster : Cluster
        As it is now.
    """
    used = _devices(old)
    gone = used - set(cluster.alive.tolist())
    if not gone:
        yield "the old plan, as it is", old
    spares = with_spares(old, cluster, gone)
    if spares is not None:
        yield f"{len(gone)} spare devices in place of the failed ones", spares
    yield from fewer_replicas(old, cluster, workload, gone)


def _devices(plan: Plan) -> set[int]:
    return {int(d) for stage in plan.stages for d in stage.devices.ravel()}


def with_spares(old: Plan, cluster: Cluster, gone: set[int]) -> Plan | None:
    """The old plan with an idle device in place of each failed one; None if there are too few.

    A spare in the same group of the innermost level is taken before one in the next level's, and
    of equally near ones the first of the same type.
    """
    idle = [d for d in cluster.alive.tolist() if d not in _devices(old)]
    if not gone or len(idle) < len(gone):
        return None
    group = cluster.group_of
    kind = cluster.type_of

    def distance(a: int, b: int) -> tuple[int, bool, int]:
        level = int(np.argmax(group[:, a] == group[:, b]))
        return level, bool(kind[a] != kind[b]), b

    place: dict[int, int] = {}
    for device in sorted(gone):
        chosen = min(idle, key=lambda spare: distance(device, spare))
        idle.remove(chosen)
        place[device] = chosen
    stages = tuple(
        replace(
            stage,
            devices=np.vectorize(lambda d: place.get(int(d), int(d)), otypes=[np.int64])(
                stage.devices
            ),
        )
        for stage in old.stages
    )
    return replace(old, stages=stages)


def fewer_replicas(
    old: Plan, cluster: Cluster, workload: Workload, gone: set[int]
) -> Iterator[tuple[str, Plan]]:
    """The old plan without the replicas that have lost a device, and without some more.

    Unless the old plan states its shares, the number of replicas and the micro-batch must divide
    the global batch; each number that does is tried, the largest first.
    """
    whole = [
        r
        for r in range(old.replicas)
        if not any(int(d) in gone for stage in old.stages for d in stage.devices[r])
    ]
    batch = workload.global_batch
    for count in range(len(whole), 0, -1):
        if count == old.replicas or (not old.shares and batch % (count * old.microbatch)):
            continue
        kept = whole[:count]
        stages = tuple(replace(stage, devices=stage.devices[kept]) for stage in old.stages)
        fewer = replace(old, stages=stages, replicas=count, shares=())
        if old.shares:
            # the replicas that are left share all micro-batches anew
            fewer = with_best_shares(workload, cluster, fewer) or fewer
        if fewer.shares or batch % (count * old.microbatch) == 0:
            yield f"{count} of {old.replicas} replicas", fewer
