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

import math
import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nestopt.core.errors import InputError, NestoptError, SolverError, UsageError, unknown_name
from nestopt.core.result import Limit, Reason, Termination
from nestopt.core.stop import on_stop, shielded, watching
from nestopt.formulations.solvers.highs import run_highs, silenced_stdout
from nestopt.formulations.solvers.other import run_other
from nestopt.formulations.solvers.outcome import Outcome, Raw, check_time_limit, termination_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["Outcome", "silenced_stdout", "solve_cpsat", "solve_milp"]

INTEGRALITY = 1e-5
FEASIBILITY = 1e-6


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
    check_time_limit(time_limit)
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
            raw = run_highs(
                problem, time_limit, threads, seed, rel_gap, warm, presolve, progress, offset
            )
            if raw.reason is Reason.INFEASIBLE and presolve:
                left = max(1.0, time_limit - (time.perf_counter() - start))
                raw = _confirmed(
                    run_highs(problem, left, threads, seed, rel_gap, warm, False, progress, offset)
                )
        else:
            raw = run_other(problem, name, time_limit, threads, seed, rel_gap, warm, presolve)
    finally:
        problem.objective.constant = offset
    seconds = time.perf_counter() - start
    return _judge(problem, raw, offset, seconds)


def _confirmed(second: Raw) -> Raw:
    """What a run without presolve says of a model that presolve has called infeasible."""
    if second.reason is Reason.INFEASIBLE:
        return second
    if second.has_solution:
        second.note = "HiGHS's presolve called this feasible model infeasible"
    else:
        second.note = "infeasible according to HiGHS's presolve, which was not confirmed"
    return second


def _judge(problem: Any, raw: Raw, offset: float, seconds: float) -> Outcome:
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
    ended = termination_of(objective, bound, limit, tolerance=FEASIBILITY)
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

    check_time_limit(time_limit)
    check_time_limit(deterministic_time)
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
            # C++ calls this: nothing may be raised through it
            with shielded():
                progress(self.wall_time, self.objective_value, self.best_objective_bound, "cpsat")

    if watching():
        # the watch hears the signal and stops the search; CP-SAT's own handler would hide it
        chosen.catch_sigint_signal = False
    start = time.perf_counter()
    with on_stop(solver.stop_search):
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
    # CP-SAT stops somewhat before its limits
    out_of_time = (
        seconds >= min(0.95 * time_limit, time_limit - 1.0)
        or response.deterministic_time >= 0.95 * deterministic_time
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
        termination_of(objective, bound, limit),
        objective,
        bound,
        list(response.solution),
        seconds,
        "",
        stats,
    )
