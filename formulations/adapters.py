"""The two solver adapters: linear models through PuLP, and CP-SAT models.

Both take a finished model and return one `Outcome` whose termination, objective and bound can be
trusted. What the solvers themselves report cannot:

- PuLP calls a time limit ``Optimal`` (only ``sol_status`` tells), and an interrupt of HiGHS a
  solution even if there is none;
- CBC without an incumbent still prints an objective value, and PuLP fills in zeros;
- HiGHS stops by default at a relative gap of 1e-4 and prints a banner on stdout;
- HiGHS's presolve calls some feasible models infeasible (its issues 2204, 3090 and others), so that
  infeasibility counts only once it is found without presolve as well;
- fractional values of integer variables, or values that break a constraint once they are rounded,
  are handed out as a solution;
- PuLP's HiGHS interface drops the constant of the objective;
- CP-SAT's objective value is meaningless at UNKNOWN although its bound may be good, and it calls
  a stop at the gap limit OPTIMAL.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import signal
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nestopt.errors import InputError, NestoptError, SolverError, UsageError, unknown_name
from nestopt.result import Limit, Reason, Termination

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

__all__ = ["Outcome", "silenced_stdout", "solve_cpsat", "solve_milp"]

INTEGRALITY = 1e-5
FEASIBILITY = 1e-6
_GRACE_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a solver run established.

    Attributes
    ----------
    termination : Termination
        ``optimal`` only if objective and bound meet; a stop at the gap limit is ``feasible`` with
        limit ``iterations``. ``error`` if the solver broke down or its solution was rejected.
    objective : float or None
        Objective of the checked incumbent; None without one.
    bound : float
        Valid lower bound; ``-inf`` if nothing is known, ``inf`` if proved infeasible.
    values : dict or sequence or None
        Values of the incumbent: by variable name (PuLP), by variable index (CP-SAT).
    seconds : float
        Wall-clock seconds of the solver.
    note : str
        Why a solution was rejected, what the solver said.
    stats : dict
        Nodes, branches, deterministic time; JSON-ready.
    """

    termination: Termination
    objective: float | None
    bound: float
    values: dict[str, float] | list[int] | None
    seconds: float
    note: str = ""
    stats: dict[str, Any] = field(default_factory=dict)

    def value(self, variable: Any) -> Any:
        """Value of a variable in the incumbent; integer variables give an `int`.

        Raises
        ------
        NestoptError
            If there is no incumbent.
        """
        if self.values is None:
            raise NestoptError("the solver found no solution, so no variable has a value")
        if not isinstance(self.values, dict):
            index = variable.index
            raw = self.values[index if index >= 0 else -index - 1]
            return int(raw) if index >= 0 else 1 - int(raw)
        # a variable that occurs nowhere is in no model; any value within its bounds will do
        free = 0 if variable.lowBound is None else max(0, variable.lowBound)
        return self.values.get(variable.name, free)


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


def _termination(
    objective: float | None, bound: float, limit: Limit, tolerance: float = 1e-9
) -> Termination:
    """Optimal if incumbent and bound meet, else feasible or no-solution at `limit`."""
    if objective is None:
        return Termination(Reason.NO_SOLUTION, limit)
    if objective - bound <= tolerance * max(1.0, abs(objective)):
        return Termination(Reason.OPTIMAL)
    return Termination(Reason.FEASIBLE, limit)


def _check_time_limit(time_limit: float) -> None:
    if math.isnan(time_limit) or time_limit <= 0:
        raise InputError(f"{time_limit} s is no time limit; expected a positive number of seconds")


# --- linear models through PuLP ------------------------------------------------------------------


@dataclass(slots=True)
class _Raw:
    """What a back-end reports, before anything of it is trusted."""

    reason: Reason
    limit: Limit
    has_solution: bool
    bound: float
    stats: dict[str, Any]
    note: str = ""


def solve_milp(
    problem: Any,
    *,
    backend: str | None = None,
    time_limit: float = math.inf,
    threads: int = 1,
    seed: int = 0,
    rel_gap: float = 0.0,
    warm_start: Mapping[str, float] | None = None,
    write_model: str | None = None,
    progress: Callable[[float, float | None, float, str], Any] | None = None,
    presolve: bool = True,
) -> Outcome:
    """Minimize a `pulp.LpProblem`.

    Parameters
    ----------
    problem : pulp.LpProblem
        With sense minimize.
    backend : str, optional
        ``highs`` (default), ``cbc``, or any solver name that PuLP knows, in any case.
    time_limit : float
        Wall-clock seconds.
    warm_start : mapping of str to float, optional
        Values by variable name; variables left out are completed by the solver (HiGHS) or start
        at 0 (CBC).
    write_model : str, optional
        Path ending in ``.lp`` or ``.mps``, written before the solve.
    progress : callable, optional
        ``progress(seconds, objective, bound, note)`` at every incumbent (HiGHS only).
    presolve : bool
        Whether HiGHS and CBC may transform the model first.

    Raises
    ------
    SolverError
        If the back-end is not installed.
    UsageError
        If no back-end has that name, or the file ending is unknown.
    """
    import pulp

    if problem.sense != pulp.LpMinimize:
        raise NestoptError("solve_milp minimizes; negate the objective of a maximization")
    _check_time_limit(time_limit)
    name = _backend_name(backend)
    if problem.objective is None:
        problem += pulp.LpAffineExpression()
    if write_model is not None:
        _write_pulp(problem, write_model)
    for variable in problem.variables():
        variable.varValue = None if warm_start is None else warm_start.get(variable.name)
    # HiGHS through PuLP forgets the constant, CBC's log may or may not count it
    offset = problem.objective.constant
    problem.objective.constant = 0.0
    start = time.perf_counter()
    warm = warm_start is not None
    try:
        if name == "HiGHS":
            raw = _run_highs(
                problem, time_limit, threads, seed, rel_gap, warm, presolve, progress, offset
            )
            if raw.reason is Reason.INFEASIBLE and presolve:
                left = max(1.0, time_limit - (time.perf_counter() - start))
                raw = _confirmed(
                    _run_highs(problem, left, threads, seed, rel_gap, warm, False, progress, offset)
                )
        else:
            raw = _run_other(problem, name, time_limit, threads, seed, rel_gap, warm, presolve)
    finally:
        problem.objective.constant = offset
    seconds = time.perf_counter() - start
    return _judge(problem, raw, offset, seconds)


def _confirmed(second: _Raw) -> _Raw:
    """What a run without presolve says of a model that presolve has called infeasible."""
    if second.reason is Reason.INFEASIBLE:
        return second
    if second.has_solution:
        second.note = "HiGHS's presolve called this feasible model infeasible"
    else:
        second.note = "infeasible according to HiGHS's presolve, which was not confirmed"
    return second


def _judge(problem: Any, raw: _Raw, offset: float, seconds: float) -> Outcome:
    """Check a back-end's incumbent, and say what is known."""
    stats = dict(raw.stats)
    if raw.reason is Reason.ERROR:
        return Outcome(Termination(Reason.ERROR), None, -math.inf, None, seconds, raw.note, stats)
    if raw.reason is Reason.INFEASIBLE:
        return Outcome(
            Termination(Reason.INFEASIBLE), None, math.inf, None, seconds, raw.note, stats
        )
    bound = raw.bound + offset
    if not raw.has_solution:
        ended = Termination(Reason.NO_SOLUTION, raw.limit)
        return Outcome(ended, None, bound, None, seconds, raw.note, stats)
    values, complaint = _checked_values(problem)
    if values is None:
        note = f"solution rejected: {complaint}"
        if raw.limit is Limit.NONE:
            return Outcome(Termination(Reason.ERROR), None, bound, None, seconds, note, stats)
        ended = Termination(Reason.NO_SOLUTION, raw.limit)
        return Outcome(ended, None, bound, None, seconds, note, stats)
    objective = offset + math.fsum(
        coefficient * values[variable.name] for variable, coefficient in problem.objective.items()
    )
    limit = Limit.ITERATIONS if raw.limit is Limit.NONE else raw.limit
    ended = _termination(objective, bound, limit, tolerance=FEASIBILITY)
    return Outcome(ended, objective, min(bound, objective), values, seconds, raw.note, stats)


def _checked_values(problem: Any) -> tuple[dict[str, float] | None, str]:
    """Values with integers rounded, or None and the first thing that is wrong with them."""
    import pulp

    values: dict[str, float] = {}
    for variable in problem.variables():
        value = variable.varValue
        if variable is problem.dummyVar:
            # PuLP's filler for an empty objective
            value = 0.0
        if value is None or not math.isfinite(value):
            return None, f"variable {variable.name} has the value {value}"
        if variable.cat == pulp.LpInteger:
            if abs(value - round(value)) > INTEGRALITY:
                return None, f"integer variable {variable.name} has the value {value!r}"
            value = round(value)
        slack = FEASIBILITY * max(1.0, abs(value))
        low = -math.inf if variable.lowBound is None else variable.lowBound
        high = math.inf if variable.upBound is None else variable.upBound
        if not low - slack <= value <= high + slack:
            return None, f"variable {variable.name} = {value!r} is outside [{low}, {high}]"
        values[variable.name] = value
    for constraint in problem.constraints():
        terms = [coefficient * values[v.name] for v, coefficient in constraint.items()]
        activity = math.fsum([*terms, constraint.constant])
        scale = FEASIBILITY * max(1.0, *(abs(term) for term in terms), abs(constraint.constant))
        broken = (
            abs(activity) > scale
            if constraint.sense == pulp.LpConstraintEQ
            else activity * constraint.sense < -scale
        )
        if broken:
            return None, f"constraint {constraint.name} is violated by {abs(activity):.3g}"
    return values, ""


def _write_pulp(problem: Any, path: str) -> None:
    ending = Path(path).suffix.lower()
    if ending not in (".lp", ".mps"):
        raise UsageError(f"{path}: a linear model is written as .lp or .mps")
    # the writers print nothing but rename the file's folder errors to tracebacks
    try:
        if ending == ".lp":
            problem.writeLP(path)
        else:
            problem.writeMPS(path)
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", file=path) from error


def _backend_name(backend: str | None) -> str:
    """PuLP's name of a back-end."""
    import pulp

    known = {name.lower(): name for name in pulp.listSolvers()}
    wanted = (backend or "highs").lower()
    special = {"highs": "HiGHS", "cbc": "COIN_CMD", "pulp_cbc_cmd": "COIN_CMD"}
    name = special.get(wanted) or known.get(wanted)
    if name is None and f"{wanted}_cmd" in known:
        name = known[f"{wanted}_cmd"]
    if name is None:
        raise unknown_name("MILP back-end", wanted, ["highs", "cbc", *known])
    return name


def _run_highs(
    problem: Any,
    time_limit: float,
    threads: int,
    seed: int,
    rel_gap: float,
    warm: bool,
    presolve: bool,
    progress: Callable[[float, float | None, float, str], Any] | None,
    offset: float,
) -> _Raw:
    """HiGHS in process, through PuLP's class; the bound is HiGHS's own dual bound."""
    try:
        import highspy
    except ImportError as error:
        raise SolverError("HiGHS is not installed (pip install highspy)") from error
    status = highspy.HighsModelStatus
    start = time.perf_counter()
    interrupted = False

    def report(event: Any) -> None:
        out = event.data_out
        if progress is not None and math.isfinite(out.objective_function_value):
            spent = time.perf_counter() - start
            progress(
                spent, out.objective_function_value + offset, out.mip_dual_bound + offset, "highs"
            )

    def call(lp: Any) -> None:
        nonlocal interrupted
        model = lp.solverModel
        if warm:
            known = [v for v in lp.variables() if v.varValue is not None]
            model.setSolution(
                len(known), [v.index for v in known], [float(v.varValue) for v in known]
            )
        if progress is not None:
            model.cbMipImprovingSolution += report
        model.HandleUserInterrupt = True
        model.startSolve()
        stopped = False
        while not stopped:
            try:
                stopped = model.wait(0.2)[0]
            except KeyboardInterrupt:
                interrupted = True
                model.cancelSolve()

    solver = _highs_class()(
        msg=False,
        threads=threads,
        gapRel=rel_gap,
        gapAbs=0.0,
        timeLimit=time_limit if math.isfinite(time_limit) else None,
        random_seed=seed,
        presolve="on" if presolve else "off",
    )
    solver.callSolver = call
    with _no_pulp_deprecations():
        problem.solve(solver)
    model = problem.solverModel
    # the model holds callbacks that refer back to it
    model.clearCallbacks()
    problem.solverModel = None
    found = model.getModelStatus()
    info = model.getInfo()
    integer = any(v.cat == "Integer" for v in problem.variables())
    stats = {"backend": "highs", "status": model.modelStatusToString(found)}
    if integer:
        stats["nodes"] = int(info.mip_node_count)
    if found == status.kInfeasible:
        return _Raw(Reason.INFEASIBLE, Limit.NONE, False, math.inf, stats)
    if found in (status.kUnbounded, status.kUnboundedOrInfeasible):
        note = f"HiGHS: {stats['status']}"
        return _Raw(Reason.ERROR, Limit.NONE, False, -math.inf, stats, note)
    if found == status.kModelEmpty:
        return _Raw(Reason.OPTIMAL, Limit.NONE, True, 0.0, stats)
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
        return _Raw(Reason.ERROR, Limit.NONE, False, -math.inf, stats, note)
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
    return _Raw(Reason.FEASIBLE, limit, bool(feasible), bound, stats)


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


@contextlib.contextmanager
def _no_pulp_deprecations() -> Iterator[None]:
    """PuLP's own solver classes use PuLP's deprecated interfaces; that is not the caller's."""
    import warnings

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=DeprecationWarning, module=r"pulp(\.|$)")
        yield


def _run_other(
    problem: Any,
    name: str,
    time_limit: float,
    threads: int,
    seed: int,
    rel_gap: float,
    warm: bool,
    presolve: bool,
) -> _Raw:
    """Any other back-end, as PuLP runs it; for CBC the bound is read from its log."""
    import pulp

    is_cbc = name == "COIN_CMD"
    folder = tempfile.TemporaryDirectory(prefix="nestopt-")
    log = Path(folder.name, "solver.log")
    arguments: dict[str, Any] = {"msg": False}
    if math.isfinite(time_limit):
        arguments["timeLimit"] = time_limit
    if is_cbc:
        arguments |= {
            "path": _cbc_path(),
            "gapRel": rel_gap,
            "gapAbs": 0.0,
            "threads": threads if threads > 1 else None,
            "options": [f"randomSeed {seed + 1}", f"randomCbcSeed {seed + 1}"],
            "warmStart": warm,
            "presolve": presolve,
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
            return _Raw(Reason.NO_SOLUTION, Limit.INTERRUPTED, False, -math.inf, stats)
        return _Raw(Reason.ERROR, Limit.NONE, False, -math.inf, stats, f"{name}: {failure}")
    stopped = Limit.INTERRUPTED if interrupted else Limit.TIME
    solution = problem.sol_status
    if is_cbc:
        return _read_cbc(problem, text, stopped, rel_gap, stats)
    if solution == pulp.LpSolutionOptimal:
        objective = float(pulp.value(problem.objective) or 0.0)
        bound = objective - rel_gap * abs(objective)
        return _Raw(Reason.OPTIMAL, Limit.NONE, True, bound, stats)
    if solution == pulp.LpSolutionInfeasible and problem.status == pulp.LpStatusInfeasible:
        return _Raw(Reason.INFEASIBLE, Limit.NONE, False, math.inf, stats)
    if solution == pulp.LpSolutionUnbounded:
        return _Raw(Reason.ERROR, Limit.NONE, False, -math.inf, stats, f"{name}: unbounded")
    feasible = solution == pulp.LpSolutionIntegerFeasible
    return _Raw(Reason.FEASIBLE, stopped, feasible, -math.inf, stats)


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
            with _no_pulp_deprecations():
                problem.solve(solver)
        except Exception as error:
            failure.append(error)
        finally:
            ended.set()

    threading.Thread(target=work, daemon=True).start()
    deadline = math.inf
    while not ended.is_set() and time.perf_counter() < deadline:
        try:
            ended.wait(0.2)
        except KeyboardInterrupt:
            deadline = min(deadline, time.perf_counter() + _GRACE_SECONDS)
    interrupted = math.isfinite(deadline)
    if not ended.is_set():
        return True, SolverError("the solver did not stop when it was interrupted")
    return interrupted, failure[0] if failure else None


_CBC_BOUND = re.compile(r"^Lower bound:\s+(\S+)", re.MULTILINE)
_CBC_OBJECTIVE = re.compile(r"^Objective value:\s+(\S+)", re.MULTILINE)
_CBC_RESULT = re.compile(r"^Result - (.*)$", re.MULTILINE)


def _read_cbc(
    problem: Any, log: str, stopped: Limit, rel_gap: float, stats: dict[str, Any]
) -> _Raw:
    """CBC's verdict from the summary at the end of its log, not from its solution file."""
    import pulp

    results = _CBC_RESULT.findall(log)
    verdict = results[-1].strip().lower() if results else ""
    stats["status"] = verdict or stats["status"]
    no_solution = "No feasible solution found" in log
    if "infeasible" in verdict or "Problem is infeasible" in log or "is infeasible" in verdict:
        return _Raw(Reason.INFEASIBLE, Limit.NONE, False, math.inf, stats)
    if "unbounded" in verdict or "Problem is unbounded" in log:
        return _Raw(Reason.ERROR, Limit.NONE, False, -math.inf, stats, "CBC: unbounded")
    bounds = _CBC_BOUND.findall(log)
    # printed with three decimals, so up to half of the last one may have been added
    bound = float(bounds[-1]) - 6e-4 if bounds else -math.inf
    if not verdict:
        # a pure LP, or a model that presolve finished, has no summary
        if problem.sol_status == pulp.LpSolutionOptimal:
            objective = float(pulp.value(problem.objective) or 0.0)
            return _Raw(Reason.OPTIMAL, Limit.NONE, True, objective, stats)
        if problem.status == pulp.LpStatusInfeasible:
            return _Raw(Reason.INFEASIBLE, Limit.NONE, False, math.inf, stats)
        return _Raw(Reason.NO_SOLUTION, stopped, False, bound, stats)
    if verdict.startswith("optimal solution found"):
        objective = float(_CBC_OBJECTIVE.findall(log)[-1])
        exact = float(pulp.value(problem.objective) or 0.0)
        if abs(exact - objective) <= 1e-6 * max(1.0, abs(objective)):
            objective = exact
        if not bounds:
            bound = objective - rel_gap * abs(objective)
        return _Raw(Reason.OPTIMAL, Limit.NONE, True, bound, stats)
    return _Raw(Reason.FEASIBLE, stopped, not no_solution, bound, stats)


# --- CP-SAT --------------------------------------------------------------------------------------


def _restore_interrupts() -> None:
    """Give Ctrl-C back to Python: CP-SAT leaves it with the system, which ends the process."""
    handler = signal.getsignal(signal.SIGINT)
    if handler is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, handler)


def solve_cpsat(
    model: Any,
    *,
    time_limit: float = math.inf,
    threads: int = 1,
    seed: int = 0,
    rel_gap: float = 0.0,
    deterministic_time: float = math.inf,
    warm_start: Sequence[tuple[Any, int]] | None = None,
    write_model: str | None = None,
    progress: Callable[[float, float | None, float, str], Any] | None = None,
    parameters: Mapping[str, Any] | None = None,
) -> Outcome:
    """Minimize, or satisfy, a `cp_model.CpModel` with integer objective.

    Parameters
    ----------
    model : ortools.sat.python.cp_model.CpModel
    deterministic_time : float
        CP-SAT's own measure of work; unlike `time_limit` a limit on it makes a run repeatable.
    warm_start : sequence of (variable, value), optional
        Hints; they replace those that the model has.
    write_model : str, optional
        Path ending in ``.pb`` or ``.pbtxt`` (CP-SAT has no .lp or .mps form).
    progress : callable, optional
        ``progress(seconds, objective, bound, note)`` at every incumbent.
    parameters : mapping, optional
        Further fields of ``SatParameters``.

    Returns
    -------
    Outcome
        For a model without objective the objective is 0 once a solution is found.
    """
    try:
        from ortools.sat.python import cp_model
    except ImportError as error:
        raise SolverError("CP-SAT is not installed (pip install ortools)") from error

    _check_time_limit(time_limit)
    _check_time_limit(deterministic_time)
    if write_model is not None:
        if Path(write_model).suffix.lower() not in (".pb", ".pbtxt"):
            raise UsageError(f"{write_model}: a CP-SAT model is written as .pb or .pbtxt")
        if not model.export_to_file(write_model):
            raise InputError("cannot be written", file=write_model)
    if warm_start is not None:
        model.clear_hints()
        for variable, value in warm_start:
            model.add_hint(variable, value)
    solver = cp_model.CpSolver()
    chosen = solver.parameters
    chosen.num_workers = threads
    chosen.random_seed = seed
    chosen.relative_gap_limit = rel_gap
    if math.isfinite(time_limit):
        chosen.max_time_in_seconds = time_limit
    if math.isfinite(deterministic_time):
        chosen.max_deterministic_time = deterministic_time
    for key, value in (parameters or {}).items():
        if not hasattr(chosen, key):
            raise UsageError(f"CP-SAT has no parameter {key!r}")
        setattr(chosen, key, value)

    class Reporter(cp_model.CpSolverSolutionCallback):
        def on_solution_callback(self) -> None:
            assert progress is not None
            progress(self.wall_time, self.objective_value, self.best_objective_bound, "cpsat")

    start = time.perf_counter()
    status = solver.solve(model, Reporter() if progress is not None else None)
    seconds = time.perf_counter() - start
    _restore_interrupts()
    response = solver.response_proto
    stats = {
        "backend": "cpsat",
        "status": solver.status_name(status),
        "branches": int(response.num_branches),
        "conflicts": int(response.num_conflicts),
        "deterministic_time": float(response.deterministic_time),
    }
    if status == cp_model.MODEL_INVALID:
        note = f"CP-SAT: {model.validate() or 'invalid model'}"
        return Outcome(Termination(Reason.ERROR), None, -math.inf, None, seconds, note, stats)
    if status == cp_model.INFEASIBLE:
        return Outcome(Termination(Reason.INFEASIBLE), None, math.inf, None, seconds, "", stats)
    has_objective = model.has_objective()
    bound = float(response.best_objective_bound) if has_objective else 0.0
    out_of_time = (
        seconds >= 0.95 * time_limit or response.deterministic_time >= 0.95 * deterministic_time
    )
    limit = Limit.TIME if out_of_time else Limit.INTERRUPTED
    if status == cp_model.UNKNOWN:
        # without a solution the objective field holds a number that means nothing
        if not has_objective:
            bound = -math.inf
        ended = Termination(Reason.NO_SOLUTION, limit)
        return Outcome(ended, None, bound, None, seconds, "", stats)
    objective = float(response.objective_value) if has_objective else 0.0
    if status == cp_model.OPTIMAL:
        limit = Limit.ITERATIONS
    return Outcome(
        _termination(objective, bound, limit),
        objective,
        bound,
        list(response.solution),
        seconds,
        "",
        stats,
    )
