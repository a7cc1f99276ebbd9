"""``nestopt solve``."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nestopt import api
from nestopt.cli import inputs
from nestopt.cli.compiling import announce_compilation
from nestopt.cli.costs import (
    CheckpointOption,
    FailuresOption,
    PowerOption,
    PriceOption,
    RepairOption,
    RestartOption,
    SparesOption,
    TokensOption,
    print_report,
    report_of,
    terms_of,
)
from nestopt.cli.exits import exit_of
from nestopt.cli.output import (
    Progress,
    console,
    definitions,
    note,
    print_json,
    quantity,
    stdout_to_stderr,
)
from nestopt.cli.parameters import (
    CalibrationOption,
    ClusterOption,
    CollectiveOption,
    FailOption,
    InstanceArgument,
    JsonOption,
    ObjectiveOption,
    SettingOption,
    SpaceOption,
    ThreadsOption,
    TimeLimitOption,
    TopologyOption,
    WorkloadOption,
)
from nestopt.cli.setting_help import epilog
from nestopt.core.errors import NestoptError, UsageError
from nestopt.core.io import keep_elsewhere
from nestopt.core.problem import get_problem
from nestopt.core.result import Limit, Reason

if TYPE_CHECKING:
    from nestopt.core.result import Result
    from nestopt.placement.economics.terms import Terms

__all__ = ["epilog", "solve"]


def solve(
    instance: InstanceArgument = None,
    workload: WorkloadOption = None,
    cluster: ClusterOption = None,
    collective: CollectiveOption = None,
    topology: TopologyOption = None,
    method: Annotated[
        str | None,
        typer.Option(
            "--method",
            "-m",
            metavar="M",
            help="How to solve it; `nestopt methods` lists them. Default: dp for placement, "
            "greedy for collectives.",
        ),
    ] = None,
    objective: ObjectiveOption = None,
    space: SpaceOption = None,
    fail: FailOption = None,
    time_limit: TimeLimitOption = None,
    rel_gap: Annotated[
        float,
        typer.Option(
            "--rel-gap",
            metavar="G",
            help="Stop as soon as (objective - bound) / objective is at most G, 0.01 for 1 %.",
        ),
    ] = 0.0,
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", help="Seed of every random choice.")
    ] = 0,
    threads: ThreadsOption = None,
    backend: Annotated[
        str | None,
        typer.Option(
            "--backend",
            metavar="NAME",
            help="Solver behind the method milp: highs (the default), cbc, or any other that "
            "PuLP finds on this machine.",
        ),
    ] = None,
    warm_start: Annotated[
        str | None,
        typer.Option(
            "--warm-start", metavar="RESULT.json", help="Start from the solution of this result."
        ),
    ] = None,
    setting: SettingOption = None,
    calibration: CalibrationOption = None,
    write_model: Annotated[
        str | None,
        typer.Option(
            "--write-model",
            metavar="FILE",
            help="Methods milp and cpsat: write the model here before it is solved (.lp or .mps "
            "for milp).",
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="RESULT.json",
            help="Write the result here, whole or not at all, once the independent checker has "
            "passed it.",
        ),
    ] = None,
    tokens: TokensOption = None,
    price: PriceOption = None,
    power: PowerOption = None,
    failures: FailuresOption = None,
    checkpoint: CheckpointOption = None,
    restart: RestartOption = None,
    repair: RepairOption = None,
    spares: SparesOption = None,
    json: JsonOption = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="No progress rows on stderr.")
    ] = False,
) -> None:
    """Solve an instance: place a training job, or synthesize a collective.

    The answer comes with a lower bound and the gap between the two. Every solution
    passes an independent checker before it is printed or written. Progress goes to
    stderr. Ctrl-C or SIGTERM ends the run and keeps the best solution so far; a
    second one ends the program at once. A result that cannot be written or printed is
    kept in the directory for temporary files, and the file is named.

    \b
    Examples:
      nestopt solve --workload gpt3-175b --cluster fattree-tpuv4-1024
      nestopt solve --workload bert-large --cluster my-cluster.json \\
          --method milp --space general --time-limit "5 min" -o plan.json
      nestopt solve --workload llama3-70b --cluster dgx-h100-256 \\
          --tokens 15T --price 2.5 --failures llama3
      nestopt solve --collective all-gather --topology mesh2d:32x32 -o ag.json
      nestopt solve instance.json --method cpsat --warm-start ag.json
      nestopt solve ag-dgx1v --json
      nestopt solve --workload bert24_inference.json --cluster 6+1 \\
          --set model=max-load
      nestopt solve --workload bert32a100.json --cluster 64x8GiB \\
          --set model=piper --set batch=1920 --set bandwidth=25GiB/s

    \b
    Exit status:
      0  a solution was found, be it at a limit
      1  error in a file or in a solver
      2  wrong command line
      3  proved infeasible (the reason is printed)
      4  no solution within the limit
      5  the checker refused the solution; nothing is written
      130, 143  Ctrl-C or SIGTERM before the search began, or a second one
    """
    terms = terms_of(
        tokens, price=price, power=power, failures=failures, checkpoint=checkpoint,
        restart=restart, repair=repair, spares=spares,
    )  # fmt: skip
    source = inputs.Source.of(
        instance, workload=workload, cluster=cluster, collective=collective, topology=topology
    )
    if terms is not None and source.problem != "placement":
        raise UsageError("--tokens is for plans; a collective trains nothing")
    settings = inputs.parse_settings(setting)
    if calibration is not None:
        settings = {"pricing": calibration, **settings}
    if not 0 <= rel_gap < 1:
        raise UsageError(f"--rel-gap {rel_gap:g}: expected a number from 0 up to 1, 0.01 for 1 %")
    if seed < 0:
        raise UsageError(f"--seed {seed}: expected 0 or more")
    target = None if output is None else inputs.writable("--output", output, (".json",))
    if write_model is not None:
        inputs.writable("--write-model", write_model)
    limit = inputs.parse_limit(time_limit)
    job, on = source.parts(fail)
    announce_compilation(quiet=quiet)
    with stdout_to_stderr():
        result = api.solve(
            job,
            on,
            problem=source.problem,
            method=method,
            objective=objective,
            space=space,
            time_limit=limit,
            seed=seed,
            threads=inputs.thread_count(threads),
            rel_gap=rel_gap,
            backend=backend,
            warm_start=warm_start,
            write_model=write_model,
            output=target,
            progress=Progress(source.problem, quiet=quiet),
            settings=settings,
        )
    try:
        _print(result, target, terms, as_json=json)
        sys.stdout.flush()
    except OSError as error:
        raise _unprinted(result, target, error) from error
    raise typer.Exit(int(exit_of(result)))


def _unprinted(result: Result, target: Path | None, error: OSError) -> NestoptError:
    """The error of a result that nobody could be shown; it is kept if it was not written."""
    kept = f"the result is in {target}" if target else keep_elsewhere(result.to_json(), "result")
    return NestoptError(f"stdout: {error.strerror or error}; {kept}")


def _print(result: Result, target: Path | None, terms: Terms | None, *, as_json: bool) -> None:
    """Print a checked result, and what it costs where that was asked."""
    report = None
    if terms is not None and result.solution_json is not None:
        report = report_of(result, terms)
    if as_json:
        data = result.to_json()
        if report is not None:
            data["stats"] = data["stats"] | {"cost": report.to_json()}
        print_json(data)
    elif result.solution_json is None:
        _explain(result)
    else:
        out = console()
        get_problem(result.problem).describe(result, out)
        if report is not None:
            print()
            print_report(report)
        out.print(f"check: passed, {len(result.verified)} points verified", style="green")
    if target is not None:
        note(f"wrote {target}")


def _explain(result: Result) -> None:
    """Say why there is no solution."""
    ended = result.termination
    print(
        f"{result.instance.get('name', 'instance')}, by {result.method} in {result.seconds:.4g} s"
    )
    if ended.reason is Reason.INFEASIBLE:
        print("INFEASIBLE: proved that no solution exists, because")
        for cause in result.infeasible_because or ("the method names no constraint",):
            definitions([("-", cause)])
        return
    causes = {
        Limit.TIME: "at the time limit",
        Limit.ITERATIONS: "after the last iteration",
        Limit.MEMORY: "before memory ran out",
        Limit.INTERRUPTED: "before the interrupt",
        Limit.NONE: "because the solver failed",
    }
    print(f"NO SOLUTION {causes[ended.limit]}")
    if math.isfinite(result.bound):
        print(f"lower bound: {quantity(result.problem, result.bound)}")
