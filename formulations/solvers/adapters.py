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
from dataclasses import replace
from pathlib import Path
from typing import Any

from nestopt.core.errors import InputError, NestoptError, SolverError, UsageError, unknown_name
from nestopt.core.result import Limit, Reason, Termination
from nestopt.core.stop import on_stop, shielded, watching
from nestopt.formulations.solvers.highs import run_highs, silenced_stdout
from nestopt.formulations.solvers.other import run_other
from nestopt.formulations.solvers.outcome import Outcome, Raw, Settings, termination_of
from nestopt.formulations.solvers.scip import run_scip

__all__ = ["Outcome", "Settings", "silenced_stdout", "solve_cpsat", "solve_milp"]

INTEGRALITY = 1e-5
FEASIBILITY = 1e-6


def solve_milp(problem: Any, settings: Settings | None = None, **changes: Any) -> Outcome:
    """Minimize a `pulp.LpProblem`.

    Parameters
    ----------
    problem : pulp.LpProblem
        With sense minimize.
    settings : Settings, optional
    **changes
        Fields of `Settings` to change.

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
    chosen = replace(settings or Settings(), **changes)
    name = _backend_name(chosen.backend)
    if problem.objective is None:
        problem += pulp.LpAffineExpression()
    if chosen.write_model is not None:
        _write_pulp(problem, chosen.write_model)
    warm = chosen.warm_start
    for variable in problem.variables():
        variable.varValue = None if warm is None else warm.get(variable.name)
    # HiGHS through PuLP forgets the constant, CBC's log may or may not count it
    offset = problem.objective.constant
    problem.objective.constant = 0.0
    start = time.perf_counter()
    try:
        if name == "HiGHS":
            raw = run_highs(problem, chosen, offset)
            if raw.reason is Reason.INFEASIBLE and chosen.presolve:
                left = max(1.0, chosen.time_limit - (time.perf_counter() - start))
                again = replace(chosen, time_limit=left, presolve=False)
                raw = _confirmed(run_highs(problem, again, offset))
        elif name == "SCIP_PY":
            raw = run_scip(problem, chosen)
        else:
            raw = run_other(problem, name, chosen)
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
    special["scip"] = "SCIP_PY"
    name = special.get(wanted) or known.get(wanted)
    if name is None and f"{wanted}_cmd" in known:
        name = known[f"{wanted}_cmd"]
    if name is None:
        raise unknown_name("MILP back-end", wanted, ["highs", "cbc", "scip", *known])
    return name


def _restore_interrupts() -> None:
    """Give Ctrl-C back to Python: CP-SAT leaves it with the system, which ends the process."""
    handler = signal.getsignal(signal.SIGINT)
    if handler is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, handler)


def solve_cpsat(model: Any, settings: Settings | None = None, **changes: Any) -> Outcome:
    """Minimize, or satisfy, a `cp_model.CpModel` with integer objective.

    Parameters
    ----------
    model : ortools.sat.python.cp_model.CpModel
    settings : Settings, optional
    **changes
        Fields of `Settings` to change.

    Returns
    -------
    Outcome
        For a model without objective the objective is 0 once a solution is found.

    Raises
    ------
    SolverError
        If OR-Tools is not installed.
    """
    try:
        from ortools.sat.python import cp_model
    except ImportError as error:
        raise SolverError("CP-SAT is not installed (pip install ortools)") from error

    chosen = replace(settings or Settings(), **changes)
    if chosen.write_model is not None:
        if Path(chosen.write_model).suffix.lower() not in (".pb", ".pbtxt"):
            raise UsageError(f"{chosen.write_model}: a CP-SAT model is written as .pb or .pbtxt")
        if not model.export_to_file(chosen.write_model):
            raise InputError("cannot be written", file=chosen.write_model)
    if chosen.warm_start is not None:
        model.clear_hints()
        for variable, value in chosen.warm_start:
            model.add_hint(variable, value)
    solver = cp_model.CpSolver()
    _set_parameters(solver.parameters, chosen)

    class Reporter(cp_model.CpSolverSolutionCallback):
        def on_solution_callback(self) -> None:
            assert chosen.progress is not None
            # C++ calls this: nothing may be raised through it
            with shielded():
                chosen.progress(
                    self.wall_time, self.objective_value, self.best_objective_bound, "cpsat"
                )

    if watching():
        # the watch hears the signal and stops the search; CP-SAT's own handler would hide it
        solver.parameters.catch_sigint_signal = False
    start = time.perf_counter()
    with on_stop(solver.stop_search):
        status = solver.solve(model, Reporter() if chosen.progress is not None else None)
    seconds = time.perf_counter() - start
    _restore_interrupts()
    return _judge_cpsat(model, solver, status, chosen, seconds)


def _set_parameters(parameters: Any, settings: Settings) -> None:
    """Set the fields of ``SatParameters``."""
    parameters.num_workers = settings.threads
    parameters.random_seed = settings.seed
    parameters.relative_gap_limit = settings.rel_gap
    if math.isfinite(settings.time_limit):
        parameters.max_time_in_seconds = settings.time_limit
    if math.isfinite(settings.deterministic_time):
        parameters.max_deterministic_time = settings.deterministic_time
    for key, value in (settings.parameters or {}).items():
        if not hasattr(parameters, key):
            raise UsageError(f"CP-SAT has no parameter {key!r}")
        setattr(parameters, key, value)


def _judge_cpsat(
    model: Any, solver: Any, status: Any, settings: Settings, seconds: float
) -> Outcome:
    """What is known after a run of CP-SAT."""
    from ortools.sat.python import cp_model

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
        seconds >= min(0.95 * settings.time_limit, settings.time_limit - 1.0)
        or response.deterministic_time >= 0.95 * settings.deterministic_time
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
    ended = termination_of(objective, bound, limit)
    return Outcome(ended, objective, bound, list(response.solution), seconds, "", stats)
