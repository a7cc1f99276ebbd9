"""The solution of a placement result as an object."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nestopt.core.solution import PlainSolution
from nestopt.placement.model import models
from nestopt.placement.model.of_result import instance_of
from nestopt.placement.model.plan import Plan

if TYPE_CHECKING:
    from nestopt.core.result import Result

__all__ = ["read_solution"]


def read_solution(result: Result) -> Plan | PlainSolution:
    """The plan of a result, with its job and cluster where the result holds them.

    Raises
    ------
    InputError
        If what the result holds is no plan.
    """
    data, stored = result.instance.get("data"), result.solution_json
    assert stored is not None
    if models.model_of(data) is not None:
        return PlainSolution(stored)
    plan = Plan.from_json(stored)
    if data is None:
        return plan
    instance = instance_of(result)
    return plan.on(instance.workload, instance.cluster)
