"""What a plan costs: days, money, energy and goodput, against hand calculations and simulation."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from nestopt.cli import main
from nestopt.core.errors import InputError, NestoptError, UsageError
from nestopt.core.registry import named
from nestopt.placement.economics.reliability import (
    RATES,
    FailureRates,
    best_interval,
    erlang_b,
    reliability,
)
from nestopt.placement.economics.report import Figures
from nestopt.placement.economics.terms import Terms, parse_tokens
from nestopt.placement.model.plan import Plan, Stage, StageConfig
from nestopt.placement.model.workload import Operator, Workload
from nestopt.placement.pricing.evaluate import evaluate

if TYPE_CHECKING:
    from pathlib import Path


def _plan() -> Plan:
    workload, cluster = named("workload", "gpt3-1.7b,batch=8"), named("cluster", "dgx-a100-16")
    devices = np.arange(8, dtype=np.int64).reshape(8, 1)
    config = StageConfig(recompute="full", zero=1)
    stage = Stage(tuple(range(workload.num_operators)), config, devices)
    return Plan((stage,), 8, 1).on(workload, cluster)


# --- a plan's report


def test_a_report_by_hand() -> None:
    """gpt3-1.7b has sequences of 2,048; half of the 16 devices idle, and they are paid too."""
    plan = _plan()
    assert plan.workload is not None
    assert plan.cluster is not None
    seconds = evaluate(plan.workload, plan.cluster, plan).iteration_time
    report = plan.cost("1B", price=2, power="400 W")
    assert report.tokens_per_iteration == 8 * 2048
    assert report.iterations == math.ceil(1e9 / (8 * 2048)) == 61036
    assert report.tokens_per_second == pytest.approx(8 * 2048 / seconds, rel=1e-12)
    assert report.tokens_per_second_per_device == pytest.approx(2048 / seconds, rel=1e-12)
    assert report.days == report.days_without_failures
    assert report.days == pytest.approx(61036 * seconds / 86400, rel=1e-12)
    assert report.mfu_used == pytest.approx(2 * report.mfu_alive, rel=1e-12)
    assert (report.devices_used, report.devices_alive, report.devices_paid) == (8, 16, 16)
    assert report.money == pytest.approx(2 * 16 * 24 * report.days, rel=1e-12)
    assert report.energy == pytest.approx(400 * 8 * 86400 * report.days, rel=1e-12)
    assert report.goodput == 1
    assert "8 idle among them" in report.summary()
    data = json.loads(json.dumps(report.to_json(), allow_nan=False))
    assert (data["schema"], data["failures"], data["terms"]["tokens"]) == (
        "nestopt.cost/1", None, 1e9,
    )  # fmt: skip


def test_failures_and_spares_lengthen_the_days_and_are_paid() -> None:
    plan = _plan()
    calm = plan.cost("1B", price=2)
    rough = plan.cost("1B", price=2, failures=0.1, repair="1 d", spares=1)
    assert rough.failures is not None
    assert rough.days == pytest.approx(calm.days / rough.goodput, rel=1e-12)
    assert rough.devices_paid == 16 + 8
    assert rough.money == pytest.approx(2 * 24 * 24 * rough.days, rel=1e-12)
    assert rough.failures.running == pytest.approx(1 - erlang_b(2, 0.8), rel=1e-12)
    never = plan.cost("1B", failures=0)
    assert never.goodput == 1
    assert json.dumps(never.to_json(), allow_nan=False)
    # a job that never gets anywhere
    stuck = plan.cost("1B", price=1, failures=1e9, restart="1 h")
    assert stuck.days == math.inf
    assert stuck.to_json()["days"] is None


def test_a_profiled_workload_says_its_tokens_or_is_refused() -> None:
    cluster = named("cluster", "dgx-a100-8")
    operators = [Operator("a", flops=1e9), Operator("b", flops=1e9)]
    plain = Workload.chain("plain", operators, 8.0, 8)
    told = Workload.chain("told", operators, 8.0, 8, sequence=100)
    stage = Stage((0, 1), StageConfig(), np.arange(8, dtype=np.int64).reshape(8, 1))
    plan = Plan((stage,), 8, 1)
    with pytest.raises(InputError, match="sequence"):
        plan.on(plain, cluster).cost(1e9)
    assert plan.on(told, cluster).cost(1e9).tokens_per_iteration == 800
    with pytest.raises(NestoptError, match=r"plan\.on"):
        plan.cost(1e9)
    assert "sequence" not in plain.to_json()
    assert Workload.from_json(told.to_json()) == told
    with pytest.raises(InputError, match="sequence"):
        Workload.chain("bad", operators, 8.0, 8, sequence=-1)


@pytest.mark.parametrize(
    ("text", "tokens"), [("15T", 15e12), ("300 B", 3e11), ("1.5e12", 1.5e12), ("2g", 2e9), (7, 7.0)]
)
def test_tokens(text: Any, tokens: float) -> None:
    assert parse_tokens(text) == tokens


@pytest.mark.parametrize(
    ("terms", "words"),
    [
        ({"tokens": "0"}, "tokens"), ({"tokens": "many"}, "tokens"), ({"tokens": math.nan}, "tok"),
        ({"price": "-1"}, "price"), ({"price": "nan"}, "price"), ({"power": "700"}, "power"),
        ({"failures": -1}, "failures"), ({"checkpoint": "1"}, "checkpoint"),
        ({"restart": -1.0}, "restart"), ({"spares": "1.5"}, "spares"), ({"spares": -1}, "spares"),
    ],
)  # fmt: skip
def test_wrong_terms(terms: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        Terms.of(**({"tokens": "1T"} | terms))


def test_an_unknown_rate_is_named() -> None:
    with pytest.raises(UsageError, match="llama3"):
        FailureRates.of("llama33")


# --- reliability


@pytest.mark.parametrize(("mean", "stop"), [(1e4, 60.0), (3600.0, 600.0), (100.0, 300.0)])
def test_the_interval_is_the_best(mean: float, stop: float) -> None:
    def lost(work: float) -> float:
        return math.expm1((work + stop) / mean) / work

    best = best_interval(mean, stop)
    assert lost(best) <= min(lost(best * f) for f in (0.5, 0.9, 0.99, 0.999, 1.001, 1.01, 1.1, 2))


def test_the_interval_is_youngs_and_dalys_where_checkpoints_are_short() -> None:
    mean, stop = 1e6, 10.0
    ratio = stop / (2 * mean)
    young = math.sqrt(2 * stop * mean)
    daly = young * (1 + math.sqrt(ratio) / 3 + ratio / 9) - stop
    assert best_interval(mean, stop) == pytest.approx(young, rel=3e-3)
    assert best_interval(mean, stop) == pytest.approx(daly, rel=1e-5)
    assert best_interval(mean, 0.0) < 1e-6 * mean
    assert best_interval(math.inf, 60.0) == math.inf


def _played(mean: float, work: float, stop: float, restart: float, parts: int) -> float:
    """Share of the time that is kept work, event by event."""
    draw = np.random.default_rng(5)
    clock, due = 0.0, draw.exponential(mean)
    for _ in range(parts):
        while due < clock + work + stop:
            clock = due
            while True:
                due = clock + draw.exponential(mean)
                if due >= clock + restart:
                    clock += restart
                    break
                clock = due
        clock += work + stop
    return parts * work / clock


def test_progress_is_that_of_a_simulation() -> None:
    rates = FailureRates(device=0.01)
    found = reliability(
        rates, devices=1000, nodes=125, checkpoint=120.0, restart=900.0, repair=0.0, spares=0
    )
    assert found.mean_time == pytest.approx(8640.0)
    played = _played(found.mean_time, found.interval, 120.0, 900.0, 40_000)
    assert found.progress == pytest.approx(played, rel=0.005)
    assert 0.5 < found.progress < 0.9
    assert found.running == 1


def test_what_stands_still_is_a_loss_system() -> None:
    """Erlang's B against repairs played one by one, of a constant length (insensitivity)."""
    draw = np.random.default_rng(6)
    rate, repair, spares = 1.5, 1.0, 2
    clock, still, out = 0.0, 0.0, []
    for _ in range(60_000):
        clock += draw.exponential(1 / rate)
        out = [end for end in out if end > clock]
        if len(out) == spares + 1:
            raise AssertionError("nothing fails while the job stands still")
        out.append(clock + repair)
        if len(out) == spares + 1:
            still += min(out) - clock
            clock = min(out)
    assert erlang_b(spares + 1, rate * repair) == pytest.approx(still / clock, rel=0.02)
    assert erlang_b(1, 1.0) == 0.5


def test_llama3s_own_goodput() -> None:
    """Above 90 % of effective training time on 16,384 H100 (Llama 3, section 3.3.4).

    The paper states neither checkpoints nor restarts; 10 s and 5 min are assumed.
    """
    rates = RATES["llama3"]
    found = reliability(
        rates, devices=16384, nodes=2048, checkpoint=10.0, restart=300.0, repair=0.0, spares=0
    )
    assert found.mean_time == pytest.approx(54 * 86400 / 419)
    assert 0.90 < found.goodput < 0.95


# --- the command line


def _run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    shown = capsys.readouterr()
    return int(ended.value.code or 0), shown.out, shown.err


ASKED = ("--workload", "gpt3-1.7b,batch=8", "--method", "megatron", "--space", "default-1")


def test_solve_and_cost_tell_the_same(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = str(tmp_path / "plan.json")
    terms = ("--tokens", "300B", "--price", "2.5", "--failures", "rsc1")
    where = ("solve", *ASKED, "--cluster", "dgx-a100-8", "-q", "-o", file)
    status, out, _ = _run(capsys, *where, *terms, "--json")
    assert status == 0
    told = json.loads(out)["stats"]["cost"]
    status, out, _ = _run(capsys, "cost", file, *terms, "--json")
    assert status == 0
    data = json.loads(out)
    assert data.pop("file") == file
    assert data == told
    assert data["failures"]["mean_time"] == pytest.approx(86400 / 6.5e-3)
    status, out, _ = _run(capsys, "cost", file, *terms)
    assert status == 0
    assert all(len(line) <= 80 for line in out.splitlines())
    assert "goodput" in out
    status, _, err = _run(capsys, *where, "--price", "2")
    assert status == 2
    assert "--price needs --tokens" in err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--repair", "1 d"), "--repair needs --failures"),
        (("--failures", "rsc1", "--spares", "2"), "--spares needs --repair"),
        (("--power", "700"), "unit"),
    ],
)
def test_terms_that_do_not_go_together(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], told: str
) -> None:
    status, _, err = _run(capsys, "cost", "plan.json", "--tokens", "1T", *words)
    assert status == 2
    assert told in err


SWEEP = (
    "sweep", *ASKED[:2], "--cluster", "dgx-a100-{N}", "--sizes", "4..8", "--batches", "8,16",
    "--methods", "megatron", "--space", "default-1", "--tokens", "300B",
)  # fmt: skip


def test_a_sweep_goes_on_and_marks_the_front(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file, picture = tmp_path / "cells.jsonl", tmp_path / "front.svg"
    status, out, _ = _run(capsys, *SWEEP, "-o", str(file), "--json")
    assert status == 0
    rows = json.loads(out)["rows"]
    assert [(r["devices"], r["batch"]) for r in rows] == [(4, 8), (4, 16), (8, 8), (8, 16)]
    costs = [(r["report"]["days"], r["report"]["device_hours"]) for r in rows]
    for row, mine in zip(rows, costs):
        beaten = any(o != mine and o[0] <= mine[0] and o[1] <= mine[1] for o in costs)
        assert row["front"] == (not beaten)
    assert {r["front"] for r in rows} == {True, False}
    # killed after two lines and a half; only what is missing is solved again
    lines = file.read_text().splitlines()
    assert len(lines) == 4
    file.write_text("\n".join(lines[:2]) + "\n" + lines[2][:50])
    status, out, err = _run(capsys, *SWEEP, "-o", str(file), "--price", "2", "--plot", str(picture))
    assert status == 0
    assert err.count(f"from {file}") == 2
    assert len(file.read_text().splitlines()) == 4
    assert all(len(line) <= 80 for line in out.splitlines())
    assert out.count("*") == sum(r["front"] for r in rows) + 1
    text = picture.read_text()
    assert "Pareto front" in text
    assert "money" in text
    file.write_text("{}\n")
    status, _, err = _run(capsys, *SWEEP, "-o", str(file))
    assert status == 1
    assert "line 1" in err
    # another file is left as it is, also where its only line has no end
    file.write_text('{"schema": "nestopt.result/1"}')
    status, _, err = _run(capsys, *SWEEP, "-o", str(file))
    assert status == 1
    assert "line 1" in err
    assert file.read_text() == '{"schema": "nestopt.result/1"}'


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--workload", "gpt3-1.7b"), "needs --workload and --cluster"),
        (("--collective", "all-gather", "--topology", "ring:3", "--price", "1"), "--price belongs"),
        ((*SWEEP[1:], "--chunks", "1"), "--chunks belongs"),
        (SWEEP[1:-2], "needs --tokens"),
        ((*SWEEP[1:], "--methods", "greedy"), "--methods greedy"),
        ((*SWEEP[1:], "--batches", "0"), "--batches"),
        ((*SWEEP[1:], "--sizes", "8..4"), "grow"),
        ((*SWEEP[1:3], "--cluster", "dgx-a100-{N}", "--tokens", "1T"), "needs --sizes"),
    ],
)
def test_wrong_sweeps(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], told: str
) -> None:
    status, _, err = _run(capsys, "sweep", *words)
    assert status == 2
    assert told in err


def test_figures_are_kept_without_the_plan() -> None:
    plan = _plan()
    figures = Figures.of(plan.workload, plan.cluster, plan)  # type: ignore[arg-type]
    assert figures.report(Terms.of("1B")) == plan.cost("1B")
