"""MILP back-ends that PuLP runs as programs of their own; CBC's verdict is read from its log."""

from __future__ import annotations

import contextlib
import math
import os
import re
import signal
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from nestopt.core.errors import SolverError
from nestopt.core.result import Limit, Reason
from nestopt.core.stop import requested
from nestopt.formulations.solvers.highs import no_pulp_deprecations
from nestopt.formulations.solvers.outcome import Raw, Settings

__all__ = ["run_other"]

_GRACE_SECONDS = 4.0
_PATIENCE_SECONDS = 1.0
_CBC_BOUND = re.compile(r"^Lower bound:\s+(\S+)", re.MULTILINE)
_CBC_OBJECTIVE = re.compile(r"^Objective value:\s+(\S+)", re.MULTILINE)
_CBC_RESULT = re.compile(r"^Result - (.*)$", re.MULTILINE)


def run_other(problem: Any, name: str, settings: Settings) -> Raw:
    """Any other back-end, as PuLP runs it; for CBC the bound is read from its log."""
    import pulp

    is_cbc = name == "COIN_CMD"
    folder = tempfile.TemporaryDirectory(prefix="nestopt-")
    log = Path(folder.name, "solver.log")
    arguments: dict[str, Any] = {"msg": False}
    if math.isfinite(settings.time_limit):
        arguments["timeLimit"] = settings.time_limit
    if is_cbc:
        arguments |= {
            "path": _cbc_path(),
            "gapRel": settings.rel_gap,
            "gapAbs": 0.0,
            "threads": settings.threads if settings.threads > 1 else None,
            "options": [f"randomSeed {settings.seed + 1}", f"randomCbcSeed {settings.seed + 1}"],
            "warmStart": settings.warm_start is not None,
            "presolve": settings.presolve,
            "logPath": str(log),
        }
    try:
        solver = pulp.getSolver(name, **arguments)
        if not solver.available():
            raise SolverError(f"the MILP back-end {name} is not installed")
        interrupted, failure = _solve_in_thread(problem, solver)
        text = log.read_text(errors="replace") if log.exists() else ""
    finally:
        folder.cleanup()
    stats = {"backend": "cbc" if is_cbc else name, "status": pulp.LpStatus[problem.status]}
    if failure is not None:
        if interrupted:
            return Raw(Reason.NO_SOLUTION, Limit.INTERRUPTED, False, -math.inf, stats)
        return Raw(Reason.ERROR, Limit.NONE, False, -math.inf, stats, f"{name}: {failure}")
    stopped = Limit.INTERRUPTED if interrupted else Limit.TIME
    solution = problem.sol_status
    if is_cbc:
        return _read_cbc(problem, text, stopped, settings.rel_gap, stats)
    if solution == pulp.LpSolutionOptimal:
        objective = float(pulp.value(problem.objective) or 0.0)
        bound = objective - settings.rel_gap * abs(objective)
        return Raw(Reason.OPTIMAL, Limit.NONE, True, bound, stats)
    if solution == pulp.LpSolutionInfeasible and problem.status == pulp.LpStatusInfeasible:
        return Raw(Reason.INFEASIBLE, Limit.NONE, False, math.inf, stats)
    if solution == pulp.LpSolutionUnbounded:
        return Raw(Reason.ERROR, Limit.NONE, False, -math.inf, stats, f"{name}: unbounded")
    feasible = solution == pulp.LpSolutionIntegerFeasible
    return Raw(Reason.FEASIBLE, stopped, feasible, -math.inf, stats)


def _cbc_path() -> str | None:
    """CBC on the PATH, else the one that comes with PuLP."""
    import shutil

    import pulp

    return shutil.which("cbc") or pulp.PULP_CBC_CMD.pulp_cbc_path


def _solve_in_thread(problem: Any, solver: Any) -> tuple[bool, Exception | None]:
    """Run ``problem.solve(solver)``; at Ctrl-C wait for the child, which the signal reaches too."""
    failure: list[Exception] = []
    # Thread.join is no use here: interrupted by Ctrl-C it takes the thread for finished
    ended = threading.Event()

    def work() -> None:
        try:
            with no_pulp_deprecations():
                problem.solve(solver)
        except Exception as error:
            failure.append(error)
        finally:
            ended.set()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    deadline = math.inf
    told = False
    while not ended.is_set() and time.perf_counter() < deadline:
        try:
            ended.wait(0.1)
            if requested():
                deadline = min(deadline, time.perf_counter() + _GRACE_SECONDS)
            if not told and deadline - time.perf_counter() < _GRACE_SECONDS - _PATIENCE_SECONDS:
                # only the terminal sends a signal to the children too
                told = True
                _tell_children(thread, signal.SIGINT)
        except KeyboardInterrupt:
            deadline = min(deadline, time.perf_counter() + _GRACE_SECONDS)
    interrupted = math.isfinite(deadline)
    if not ended.is_set():
        _tell_children(thread, signal.SIGKILL)
        return True, SolverError("the solver did not stop when it was interrupted")
    return interrupted, failure[0] if failure else None


def _tell_children(thread: threading.Thread, number: signal.Signals) -> None:
    """Send a signal to the processes that a thread has started, where the system lists them."""
    listed = Path(f"/proc/self/task/{thread.native_id}/children")
    with contextlib.suppress(OSError):
        for child in listed.read_text().split():
            os.kill(int(child), number)


def _read_cbc(problem: Any, log: str, stopped: Limit, rel_gap: float, stats: dict[str, Any]) -> Raw:
    """CBC's verdict from the summary at the end of its log, not from its solution file."""
    import pulp

    results = _CBC_RESULT.findall(log)
    verdict = results[-1].strip().lower() if results else ""
    stats["status"] = verdict or stats["status"]
    no_solution = "No feasible solution found" in log
    if "infeasible" in verdict or "Problem is infeasible" in log or "is infeasible" in verdict:
        return Raw(Reason.INFEASIBLE, Limit.NONE, False, math.inf, stats)
    if "unbounded" in verdict or "Problem is unbounded" in log:
        return Raw(Reason.ERROR, Limit.NONE, False, -math.inf, stats, "CBC: unbounded")
    bounds = _CBC_BOUND.findall(log)
    # printed with three decimals, so up to half of the last one may have been added
    bound = float(bounds[-1]) - 6e-4 if bounds else -math.inf
    if not verdict:
        # a pure LP, or a model that presolve finished, has no summary
        if problem.sol_status == pulp.LpSolutionOptimal:
            objective = float(pulp.value(problem.objective) or 0.0)
            return Raw(Reason.OPTIMAL, Limit.NONE, True, objective, stats)
        if problem.status == pulp.LpStatusInfeasible:
            return Raw(Reason.INFEASIBLE, Limit.NONE, False, math.inf, stats)
        return Raw(Reason.NO_SOLUTION, stopped, False, bound, stats)
    if verdict.startswith("optimal solution found"):
        objective = float(_CBC_OBJECTIVE.findall(log)[-1])
        exact = float(pulp.value(problem.objective) or 0.0)
        if abs(exact - objective) <= 1e-6 * max(1.0, abs(objective)):
            objective = exact
        if not bounds:
            bound = objective - rel_gap * abs(objective)
        return Raw(Reason.OPTIMAL, Limit.NONE, True, bound, stats)
    return Raw(Reason.FEASIBLE, stopped, not no_solution, bound, stats)
