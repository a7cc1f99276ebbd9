"""SCIP in process, through PuLP's class for it, with its own status and dual bound.

What PuLP's class gets wrong is read from SCIP itself: without an incumbent it hands out zeros, and
a stop at any limit is called ``Optimal``. SCIP measures its gap against the smaller of objective
and bound, so that a stop at the limit is never sooner than asked for. It has one thread here.
"""

from __future__ import annotations

import math
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from nestopt.core.errors import SolverError
from nestopt.core.result import Limit, Reason
from nestopt.formulations.solvers.highs import no_pulp_deprecations, silenced_stdout
from nestopt.formulations.solvers.outcome import Raw

if TYPE_CHECKING:
    from nestopt.formulations.solvers.outcome import Settings

__all__ = ["run_scip"]

_LIMITS = {
    "optimal": Limit.NONE,
    "gaplimit": Limit.ITERATIONS,
    "timelimit": Limit.TIME,
    "userinterrupt": Limit.INTERRUPTED,
    "memlimit": Limit.MEMORY,
    "nodelimit": Limit.ITERATIONS,
}


def run_scip(problem: Any, settings: Settings) -> Raw:
    """SCIP, silent and single-threaded; incumbent and bound are SCIP's own.

    Raises
    ------
    SolverError
        If PySCIPOpt is not installed.
    """
    import pulp

    if find_spec("pyscipopt") is None:
        raise SolverError("SCIP is not installed (pip install pyscipopt)")
    options = [f"randomization/randomseedshift={settings.seed}"]
    if not settings.presolve:
        options.append("presolving/maxrounds=0")
    solver = pulp.SCIP_PY(
        msg=False,
        timeLimit=settings.time_limit if math.isfinite(settings.time_limit) else None,
        gapRel=settings.rel_gap,
        gapAbs=0.0,
        warmStart=settings.warm_start is not None,
        options=options,
    )
    with no_pulp_deprecations(), silenced_stdout():
        problem.solve(solver)
    model = problem.solverModel
    problem.solverModel = None
    status = str(model.getStatus())
    stats = {"backend": "scip", "status": status, "nodes": int(model.getNNodes())}
    if status == "infeasible":
        return Raw(Reason.INFEASIBLE, Limit.NONE, False, math.inf, stats)
    if status not in _LIMITS:
        return Raw(Reason.ERROR, Limit.NONE, False, -math.inf, stats, f"SCIP: {status}")
    bound = float(model.getDualbound())
    if abs(bound) >= float(model.infinity()):
        bound = -math.inf
    return Raw(Reason.FEASIBLE, _LIMITS[status], model.getNSols() > 0, bound, stats)
