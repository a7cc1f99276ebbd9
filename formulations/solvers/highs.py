"""HiGHS in process, through PuLP's class for it, but silent and with its own dual bound."""

from __future__ import annotations

import contextlib
import math
import os
import time
import warnings
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from nestopt.core.errors import SolverError
from nestopt.core.result import Limit, Reason
from nestopt.core.stop import on_stop, requested, shielded
from nestopt.formulations.solvers.outcome import Raw, Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["no_pulp_deprecations", "run_highs", "silenced_stdout"]


@contextlib.contextmanager
def silenced_stdout() -> Iterator[None]:
    """Send what C code writes to file descriptor 1 to nowhere, its buffered text included."""
    import ctypes
    import sys

    def flush() -> None:
        with contextlib.suppress(OSError, AttributeError, TypeError):
            ctypes.CDLL(None).fflush(None)

    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
    flush()
    saved = os.dup(1)
    sink = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(sink, 1)
        yield
    finally:
        flush()
        os.dup2(saved, 1)
        os.close(saved)
        os.close(sink)


@contextlib.contextmanager
def no_pulp_deprecations() -> Iterator[None]:
    """PuLP's own solver classes use PuLP's deprecated interfaces; that is not the caller's."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=DeprecationWarning, module=r"pulp(\.|$)")
        yield


def run_highs(problem: Any, settings: Settings, offset: float) -> Raw:
    """HiGHS in process, through PuLP's class; the bound is HiGHS's own dual bound.

    Parameters
    ----------
    offset : float
        The objective's constant, for the progress report.
    """
    if find_spec("highspy") is None:
        raise SolverError("HiGHS is not installed (pip install highspy)")
    progress = settings.progress
    start = time.perf_counter()
    interrupted = False

    def report(event: Any) -> None:
        out = event.data_out
        if progress is not None and math.isfinite(out.objective_function_value):
            spent = time.perf_counter() - start
            objective = out.objective_function_value + offset
            # C++ calls this: nothing may be raised through it
            with shielded():
                progress(spent, objective, out.mip_dual_bound + offset, "highs")

    def call(lp: Any) -> None:
        nonlocal interrupted
        model = lp.solverModel
        if settings.warm_start is not None:
            known = [v for v in lp.variables() if v.varValue is not None]
            model.setSolution(
                len(known), [v.index for v in known], [float(v.varValue) for v in known]
            )
        if progress is not None:
            model.cbMipImprovingSolution += report
        model.HandleUserInterrupt = True
        model.startSolve()
        with on_stop(model.cancelSolve):
            stopped = False
            while not stopped:
                try:
                    stopped = model.wait(0.2)[0]
                except KeyboardInterrupt:
                    interrupted = True
                    model.cancelSolve()
        interrupted = interrupted or requested()

    solver = _highs_class()(
        msg=False,
        threads=settings.threads,
        gapRel=settings.rel_gap,
        gapAbs=0.0,
        timeLimit=settings.time_limit if math.isfinite(settings.time_limit) else None,
        random_seed=settings.seed,
        presolve="on" if settings.presolve else "off",
    )
    solver.callSolver = call
    with no_pulp_deprecations():
        problem.solve(solver)
    model = problem.solverModel
    # the model holds callbacks that refer back to it
    model.clearCallbacks()
    problem.solverModel = None
    integer = any(v.cat == "Integer" for v in problem.variables())
    return _read(model, interrupted=interrupted, integer=integer)


def _read(model: Any, *, interrupted: bool, integer: bool) -> Raw:
    """What HiGHS reports of a model that it has worked on."""
    import highspy

    status = highspy.HighsModelStatus
    found = model.getModelStatus()
    info = model.getInfo()
    stats = {"backend": "highs", "status": model.modelStatusToString(found)}
    if integer:
        stats["nodes"] = int(info.mip_node_count)
    if found == status.kInfeasible:
        return Raw(Reason.INFEASIBLE, Limit.NONE, False, math.inf, stats)
    if found in (status.kUnbounded, status.kUnboundedOrInfeasible):
        note = f"HiGHS: {stats['status']}"
        return Raw(Reason.ERROR, Limit.NONE, False, -math.inf, stats, note)
    if found == status.kModelEmpty:
        return Raw(Reason.OPTIMAL, Limit.NONE, True, 0.0, stats)
    limits = {
        status.kOptimal: Limit.NONE,
        status.kTimeLimit: Limit.TIME,
        status.kInterrupt: Limit.INTERRUPTED,
        status.kIterationLimit: Limit.ITERATIONS,
        status.kSolutionLimit: Limit.ITERATIONS,
        status.kMemoryLimit: Limit.MEMORY,
    }
    if found not in limits:
        note = f"HiGHS: {stats['status']}"
        return Raw(Reason.ERROR, Limit.NONE, False, -math.inf, stats, note)
    limit = Limit.INTERRUPTED if interrupted and found != status.kOptimal else limits[found]
    if integer:
        bound = float(info.mip_dual_bound)
    elif found == status.kOptimal:
        bound = float(info.objective_function_value)
    else:
        bound = -math.inf
    feasible = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    if math.isnan(bound):
        bound = -math.inf
    return Raw(Reason.FEASIBLE, limit, bool(feasible), bound, stats)


def _highs_class() -> Any:
    """PuLP's HiGHS class, but silent, and with the rows handed over in one call."""
    import highspy
    import numpy as np
    import pulp

    class QuietHiGHS(pulp.HiGHS):
        def createAndConfigureSolver(self, lp: Any) -> None:
            with silenced_stdout():
                # the thread count of the process-wide scheduler is fixed by the first solve
                highspy.Highs.resetGlobalScheduler(True)
                super().createAndConfigureSolver(lp)

        def buildSolverModel(self, lp: Any) -> None:
            infinity = highspy.kHighsInf
            columns = lp.variables()
            for i, variable in enumerate(columns):
                variable.index = i
            low = [-infinity if v.lowBound is None else v.lowBound for v in columns]
            high = [infinity if v.upBound is None else v.upBound for v in columns]
            model = lp.solverModel
            model.addVars(len(columns), np.array(low, float), np.array(high, float))
            cost = np.array([lp.objective.get(v, 0.0) for v in columns], float)
            everything = np.arange(len(columns), dtype=np.int32)
            model.changeColsCost(len(columns), everything, cost)
            integers = np.array([v.index for v in columns if v.cat == pulp.LpInteger], np.int32)
            kinds = np.full(len(integers), int(highspy.HighsVarType.kInteger), np.uint8)
            if len(integers):
                model.changeColsIntegrality(len(integers), integers, kinds)
            lower: list[float] = []
            upper: list[float] = []
            starts: list[int] = []
            index: list[int] = []
            value: list[float] = []
            for i, row in enumerate(lp.constraints()):
                row.index = i
                starts.append(len(index))
                for variable, coefficient in row.items():
                    if coefficient != 0:
                        index.append(variable.index)
                        value.append(coefficient)
                lb, ub = row.getLb(), row.getUb()
                lower.append(-infinity if lb is None else lb)
                upper.append(infinity if ub is None else ub)
            if starts:
                model.addRows(
                    len(starts),
                    np.array(lower, float),
                    np.array(upper, float),
                    len(index),
                    np.array(starts, np.int32),
                    np.array(index, np.int32),
                    np.array(value, float),
                )

    return QuietHiGHS
