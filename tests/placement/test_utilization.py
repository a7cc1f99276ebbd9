"""What is printed of a plan's utilization, and of the prices it was found with."""

from __future__ import annotations

import numpy as np

from nestopt.core.registry import named
from nestopt.placement.model.plan import Plan, Stage, StageConfig
from nestopt.placement.pricing.evaluate import evaluate
from nestopt.placement.show.describe import mfu, utilization


def test_utilization_is_of_used_and_of_all_alive_devices() -> None:
    """Half of the devices idle: the same plan, half the utilization of what is alive."""
    workload, cluster = named("workload", "gpt3-1.7b,batch=8"), named("cluster", "dgx-a100-16")
    devices = np.arange(8, dtype=np.int64).reshape(8, 1)
    config = StageConfig(recompute="full", zero=1)
    plan = Plan((Stage(tuple(range(workload.num_operators)), config, devices),), 8, 1)
    seconds = evaluate(workload, cluster, plan).iteration_time
    used = 100 * mfu(workload, cluster, plan, seconds)
    text = utilization(workload, cluster, plan, seconds)
    assert text == f"MFU {used:.1f} % of the devices used, {used / 2:.1f} % of all alive"
    small = named("cluster", "dgx-a100-8")
    assert utilization(workload, small, plan, seconds) == f"MFU {used:.1f} %"
