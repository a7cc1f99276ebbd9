"""The solver adapters, one test for each way in which a solver misleads."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import textwrap
import time
from importlib.util import find_spec

import numpy as np
import pulp
import pytest
from ortools.sat.python import cp_model
from sampling import slow

from nestopt.core.errors import InputError, NestoptError, SolverError, UsageError
from nestopt.core.result import Limit, Reason
from nestopt.formulations.solvers import adapters
from nestopt.formulations.solvers.adapters import Outcome, solve_cpsat, solve_milp

WITHOUT_SCIP = find_spec("pyscipopt") is None
SCIP = pytest.param("scip", marks=pytest.mark.skipif(WITHOUT_SCIP, reason="needs pyscipopt"))
SLOW_SCIP = pytest.param("scip", marks=[*SCIP.marks, pytest.mark.slow])
BACKENDS = ["highs", "cbc", SCIP]


def cover(columns: int, rows: int, width: int, constant: float = 0.0) -> pulp.LpProblem:
    """A random cover problem whose LP bound is weak."""
    rng = np.random.default_rng(columns)
    problem = pulp.LpProblem("cover", pulp.LpMinimize)
    x = [problem.add_variable(f"x{i}", 0, 1, cat="Integer") for i in range(columns)]
    problem += pulp.lpSum(x) + constant
    for row in range(rows):
        chosen = rng.choice(columns, size=width, replace=False)
        problem += (pulp.lpSum(x[i] for i in chosen) >= 1.5, f"row{row}")
    return problem


def cp_cover(columns: int, rows: int, width: int) -> tuple[cp_model.CpModel, list]:
    rng = np.random.default_rng(columns)
    model = cp_model.CpModel()
    x = [model.new_bool_var(f"x{i}") for i in range(columns)]
    for _ in range(rows):
        chosen = rng.choice(columns, size=width, replace=False)
        model.add(sum(x[i] for i in chosen) >= 2)
    model.minimize(sum(x))
    return model, x


@pytest.mark.parametrize("backend", BACKENDS)
def test_optimum_with_objective_constant(backend: str) -> None:
    problem = cover(30, 40, 6, constant=100.0)
    outcome = solve_milp(problem, backend=backend)
    assert outcome.termination.reason is Reason.OPTIMAL
    assert outcome.objective == 100 + sum(outcome.value(v) for v in problem.variables())
    assert outcome.bound == pytest.approx(outcome.objective)
    assert all(type(outcome.value(v)) is int for v in problem.variables())
    assert problem.objective.constant == 100.0


@pytest.mark.parametrize("backend", BACKENDS)
def test_pure_lp(backend: str) -> None:
    problem = pulp.LpProblem("lp", pulp.LpMinimize)
    x, y = (problem.add_variable(name, 0) for name in "xy")
    problem += 2 * x + 3 * y
    problem += (x + y >= 4, "sum")
    problem += (x - y <= 1, "difference")
    outcome = solve_milp(problem, backend=backend)
    assert outcome.termination.reason is Reason.OPTIMAL
    assert outcome.objective == pytest.approx(9.5)
    assert outcome.bound == pytest.approx(9.5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_infeasible(backend: str) -> None:
    problem = pulp.LpProblem("infeasible", pulp.LpMinimize)
    x = problem.add_variable("x", 0, 5, cat="Integer")
    problem += x
    problem += (2 * x == 3, "odd")
    outcome = solve_milp(problem, backend=backend)
    assert outcome.termination.reason is Reason.INFEASIBLE
    assert outcome.bound == math.inf
    with pytest.raises(NestoptError, match="no solution"):
        outcome.value(x)


@pytest.mark.parametrize("backend", BACKENDS)
def test_time_limit_is_not_called_optimal_and_keeps_its_bound(backend: str) -> None:
    outcome = solve_milp(cover(120, 200, 9), backend=backend, time_limit=1.0)
    assert outcome.termination.reason is Reason.FEASIBLE
    assert outcome.termination.limit is Limit.TIME
    # the bound of the first relaxation; on a loaded machine there is no time for cuts
    assert 0.9 * 120 * 1.5 / 9 <= outcome.bound < outcome.objective


def market_split(rows: int = 5) -> pulp.LpProblem:
    """Equalities in which no back-end finds a point quickly."""
    rng = np.random.default_rng(7)
    problem = pulp.LpProblem("market", pulp.LpMinimize)
    columns = 10 * (rows - 1)
    x = [problem.add_variable(f"x{i}", 0, 1, cat="Integer") for i in range(columns)]
    problem += pulp.lpSum(x)
    for row in range(rows):
        weights = [int(w) for w in rng.integers(1, 100, size=columns)]
        target = sum(weights) // 2
        problem += (pulp.lpSum(w * v for w, v in zip(weights, x)) == target, f"row{row}")
    return problem


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_incumbent_gives_no_objective(backend: str) -> None:
    outcome = solve_milp(market_split(), backend=backend, time_limit=1.0)
    assert outcome.termination.reason is Reason.NO_SOLUTION
    assert outcome.termination.limit is Limit.TIME
    assert outcome.objective is None
    assert outcome.values is None
    assert outcome.bound < math.inf


def test_gap_limit_is_not_called_optimal() -> None:
    outcome = solve_milp(cover(60, 100, 8), rel_gap=0.3)
    assert outcome.termination.reason is Reason.FEASIBLE
    assert outcome.termination.limit is Limit.ITERATIONS
    assert 0 < outcome.objective - outcome.bound <= 0.3 * outcome.objective
    model, _ = cp_cover(60, 100, 8)
    outcome = solve_cpsat(model, rel_gap=0.3)
    assert outcome.termination.reason is Reason.FEASIBLE
    assert outcome.termination.limit is Limit.ITERATIONS
    assert outcome.bound < outcome.objective


def test_fractional_values_are_rejected() -> None:
    problem = pulp.LpProblem("fractional", pulp.LpMinimize)
    x = problem.add_variable("x", 0, 1, cat="Integer")
    problem += x
    x.varValue = 0.4
    raw = adapters.Raw(Reason.FEASIBLE, Limit.NONE, True, 0.0, {})
    outcome = adapters._judge(problem, raw, 0.0, 0.0)
    assert outcome.termination.reason is Reason.ERROR
    assert outcome.objective is None
    assert "x" in outcome.note
    assert "0.4" in outcome.note


def test_values_that_break_a_constraint_when_rounded_are_rejected() -> None:
    problem = pulp.LpProblem("bigm", pulp.LpMinimize)
    x = problem.add_variable("x", 0, 1, cat="Integer")
    problem += x
    problem += (1e7 * x >= 1, "bigm")
    x.varValue = 1e-7
    raw = adapters.Raw(Reason.FEASIBLE, Limit.TIME, True, 0.0, {})
    outcome = adapters._judge(problem, raw, 0.0, 0.0)
    assert outcome.termination.reason is Reason.NO_SOLUTION
    assert outcome.values is None
    assert "constraint bigm" in outcome.note


def test_values_outside_their_bounds_are_rejected() -> None:
    problem = pulp.LpProblem("bounds", pulp.LpMinimize)
    x = problem.add_variable("x", 0, 1)
    problem += x
    x.varValue = 1.5
    raw = adapters.Raw(Reason.FEASIBLE, Limit.NONE, True, 0.0, {})
    assert adapters._judge(problem, raw, 0.0, 0.0).termination.reason is Reason.ERROR


def test_unbounded_is_an_error_and_no_optimum() -> None:
    problem = pulp.LpProblem("unbounded", pulp.LpMinimize)
    x = problem.add_variable("x")
    problem += x
    problem += (x <= 3, "cap")
    for backend in ("highs", "cbc"):
        assert solve_milp(problem, backend=backend).termination.reason is Reason.ERROR


def test_maximization_is_refused() -> None:
    with pytest.raises(NestoptError, match="minimize"):
        solve_milp(pulp.LpProblem("max", pulp.LpMaximize))


@pytest.mark.parametrize("backend", BACKENDS)
def test_warm_start_survives_a_short_limit(backend: str) -> None:
    problem = market_split()
    x = problem.variables()
    rng = np.random.default_rng(3)
    point = {v.name: int(rng.integers(0, 2)) for v in x}
    for row in problem.constraints():
        row.changeRHS(sum(c * point[v.name] for v, c in row.items()))
    outcome = solve_milp(problem, backend=backend, warm_start=point, time_limit=1.0)
    assert outcome.objective is not None
    assert outcome.objective <= sum(point.values())


@pytest.mark.parametrize("ending", [".lp", ".mps"])
def test_write_model(tmp_path, ending: str) -> None:
    path = tmp_path / f"model{ending}"
    solve_milp(cover(10, 10, 4), write_model=str(path))
    assert "row3" in path.read_text()


def test_write_model_refuses_other_endings(tmp_path) -> None:
    with pytest.raises(UsageError, match=r"\.lp or \.mps"):
        solve_milp(cover(10, 10, 4), write_model=str(tmp_path / "model.txt"))
    model, _ = cp_cover(10, 10, 4)
    with pytest.raises(UsageError, match=r"\.pb"):
        solve_cpsat(model, write_model=str(tmp_path / "model.lp"))
    with pytest.raises(InputError, match="cannot be written"):
        solve_milp(cover(10, 10, 4), write_model=str(tmp_path / "absent" / "model.lp"))
    solve_cpsat(model, write_model=str(tmp_path / "model.pbtxt"))
    assert (tmp_path / "model.pbtxt").stat().st_size > 0


def test_backend_names() -> None:
    with pytest.raises(UsageError, match="did you mean 'highs'"):
        solve_milp(cover(10, 10, 4), backend="higs")
    if not pulp.getSolver("GLPK_CMD", msg=False).available():
        with pytest.raises(SolverError, match="not installed"):
            solve_milp(cover(10, 10, 4), backend="glpk")
    with pytest.raises(InputError, match="time limit"):
        solve_milp(cover(10, 10, 4), time_limit=0.0)


def run_script(body: str, interrupt: bool = False) -> subprocess.CompletedProcess:
    """Run Python text in its own process; Ctrl-C reaches its whole group, as in a terminal."""
    import pathlib

    root = pathlib.Path(__file__).parents[2]
    places = [str(root), str(root / "tests")]
    script = f"import sys; sys.path[:0] = {places!r}\n" + textwrap.dedent(body)
    child = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    if interrupt:
        assert child.stderr is not None
        while "solving" not in child.stderr.readline():
            assert child.poll() is None
        time.sleep(5)
        os.killpg(child.pid, signal.SIGINT)
    out, err = child.communicate(timeout=60)
    return subprocess.CompletedProcess(script, child.returncode, out, err)


def test_stdout_stays_clean() -> None:
    done = run_script("""
        from tests.formulations.test_adapters import cover, cp_cover
        from nestopt.formulations.solvers.adapters import solve_cpsat, solve_milp
        solve_milp(cover(20, 20, 5))
        solve_milp(cover(20, 20, 5), threads=2)
        solve_milp(cover(20, 20, 5), backend="cbc")
        solve_cpsat(cp_cover(20, 20, 5)[0])
        print("only this")
    """)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "only this\n"


@pytest.mark.parametrize("solver", ["highs", *slow(["cpsat", "cbc"]), SLOW_SCIP])
def test_interrupt_returns_the_incumbent(solver: str) -> None:
    done = run_script(
        f"""
        from tests.formulations.test_adapters import cover, cp_cover
        from nestopt.formulations.solvers.adapters import solve_cpsat, solve_milp
        size = (150, 300, 9)
        print("solving", file=sys.stderr, flush=True)
        if {solver!r} == "cpsat":
            outcome = solve_cpsat(cp_cover(*size)[0], time_limit=40)
        else:
            outcome = solve_milp(cover(*size), backend={solver!r}, time_limit=40)
        ended = outcome.termination
        print(ended.reason.value, ended.limit.value, outcome.seconds < 20)
        print(outcome.objective is not None and outcome.objective > outcome.bound > 20)
        """,
        interrupt=True,
    )
    assert done.stdout.split() == ["feasible", "interrupted", "True", "True"], done.stderr


def test_cpsat_optimum_and_values() -> None:
    model, x = cp_cover(30, 40, 6)
    outcome = solve_cpsat(model)
    assert outcome.termination.reason is Reason.OPTIMAL
    assert outcome.objective == outcome.bound == sum(outcome.value(v) for v in x)
    assert outcome.value(x[0].negated()) == 1 - outcome.value(x[0])
    milp = solve_milp(cover(30, 40, 6))
    assert milp.objective == outcome.objective


def test_cpsat_unknown_has_no_objective_but_its_bound() -> None:
    model, x = cp_cover(40, 80, 8)
    model.add(sum((17 * i % 97 + 1) * v for i, v in enumerate(x)) == 701)
    parameters = {"max_number_of_conflicts": 0, "cp_model_presolve": False}
    outcome = solve_cpsat(model, parameters=parameters)
    assert outcome.termination.reason is Reason.NO_SOLUTION
    assert outcome.objective is None
    assert 0 <= outcome.bound < math.inf


def test_cpsat_infeasible_and_without_objective() -> None:
    model = cp_model.CpModel()
    x = model.new_int_var(0, 5, "x")
    model.add(2 * x == 3)
    assert solve_cpsat(model).termination.reason is Reason.INFEASIBLE
    model = cp_model.CpModel()
    x = model.new_int_var(3, 5, "x")
    outcome = solve_cpsat(model, warm_start=[(x, 4)])
    assert outcome.termination.reason is Reason.OPTIMAL
    assert outcome.value(x) in (3, 4, 5)


def test_cpsat_warm_start_survives_a_short_limit() -> None:
    rng = np.random.default_rng(3)
    model = cp_model.CpModel()
    x = [model.new_bool_var(f"x{i}") for i in range(40)]
    point = [int(v) for v in rng.integers(0, 2, size=40)]
    for _ in range(5):
        weights = [int(w) for w in rng.integers(1, 100, size=40)]
        model.add(
            cp_model.LinearExpr.weighted_sum(x, weights)
            == sum(w * p for w, p in zip(weights, point))
        )
    model.minimize(sum(x))
    outcome = solve_cpsat(model, warm_start=list(zip(x, point)), time_limit=0.5)
    assert outcome.objective is not None
    assert outcome.objective <= sum(point)


def test_cpsat_invalid_model_is_an_error() -> None:
    model = cp_model.CpModel()
    x = model.new_int_var(0, 2**62, "x")
    model.add(2**62 * x <= 5)
    outcome = solve_cpsat(model)
    assert outcome.termination.reason is Reason.ERROR
    assert "CP-SAT" in outcome.note
    with pytest.raises(UsageError, match="no parameter"):
        solve_cpsat(model, parameters={"no_such": 1})


def test_deterministic_time_repeats() -> None:
    def run() -> Outcome:
        return solve_cpsat(cp_cover(120, 200, 9)[0], deterministic_time=0.3, seed=5)

    first, second = run(), run()
    assert first.termination.limit is Limit.TIME
    assert first.values == second.values
    assert (first.objective, first.bound) == (second.objective, second.bound)


def test_progress_is_told_of_incumbents() -> None:
    seen: list[tuple] = []
    outcome = solve_milp(cover(60, 100, 8, constant=7.0), progress=lambda *a: seen.append(a))
    assert seen[-1][1] == pytest.approx(outcome.objective)
    seen.clear()
    model, _ = cp_cover(60, 100, 8)
    outcome = solve_cpsat(model, progress=lambda *a: seen.append(a))
    assert seen[-1][1] == outcome.objective
    assert all(bound <= outcome.objective for _, _, bound, _ in seen)


def test_ctrl_c_still_reaches_python_after_cpsat() -> None:
    # CP-SAT leaves SIGINT with the system's default, by which a Ctrl-C ends the process
    program = """
import signal
from ortools.sat.python import cp_model
from nestopt.formulations.solvers.adapters import solve_cpsat
model = cp_model.CpModel()
model.minimize(model.new_int_var(0, 5, "x"))
solve_cpsat(model)
try:
    signal.raise_signal(signal.SIGINT)
except KeyboardInterrupt:
    print("interrupted")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "interrupted\n"
