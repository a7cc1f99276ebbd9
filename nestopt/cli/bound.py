"""``nestopt bound``."""

from __future__ import annotations

from typing import Any

from nestopt import api
from nestopt.cli import inputs
from nestopt.cli.compiling import announce_compilation
from nestopt.cli.output import definitions, note, print_json, quantity, stdout_to_stderr
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

__all__ = ["bound"]

SCHEMA = "nestopt.bounds/1"


def bound(
    instance: InstanceArgument = None,
    workload: WorkloadOption = None,
    cluster: ClusterOption = None,
    collective: CollectiveOption = None,
    topology: TopologyOption = None,
    objective: ObjectiveOption = None,
    space: SpaceOption = None,
    fail: FailOption = None,
    time_limit: TimeLimitOption = None,
    threads: ThreadsOption = None,
    setting: SettingOption = None,
    calibration: CalibrationOption = None,
    json: JsonOption = False,
) -> None:
    """Lower bounds of an instance, each with its witness.

    No schedule can be better than any of them, and no plan of the space that the
    witness names. A witness is what a reader needs to check the bound by hand: the set
    of NPUs and the links that leave it, or what a relaxation leaves out. Each bound is
    told on stderr as it is found; the best comes first on stdout. A time limit or Ctrl-C
    keeps those found so far.

    \b
    Examples:
      nestopt bound --collective all-gather --topology dgx1v
      nestopt bound --workload gpt3-175b --cluster h100-spineleaf-1024
      nestopt bound instance.json --json

    \b
    Exit status:
      0  bounds were printed
      1  error in a file
      2  wrong command line
    """
    source = inputs.Source.of(
        instance, workload=workload, cluster=cluster, collective=collective, topology=topology
    )
    settings = inputs.parse_settings(setting)
    if calibration is not None:
        settings = {"pricing": calibration, **settings}
    limit = inputs.parse_limit(time_limit)
    job, on = source.parts(fail)
    announce_compilation(quiet=json)

    def tell(seconds: float, objective: float | None, value: float, name: str) -> None:
        note(f"{seconds:.1f} s: {name} {quantity(source.problem, value)}")

    with stdout_to_stderr():
        loaded = api.instance(
            job,
            on,
            problem=source.problem,
            objective=objective,
            space=space,
            settings=settings,
        )
        bounds = [
            row._asdict()
            for row in api.bound(
                loaded,
                time_limit=limit,
                threads=inputs.thread_count(threads),
                progress=None if json else tell,
            )
        ]
    if json:
        print_json(
            {
                "schema": SCHEMA,
                "problem": source.problem,
                "instance": loaded.name,
                **_stated(loaded),
                "bounds": [_finite(row) for row in bounds],
            }
        )
        return
    print(loaded.name)
    for key, text in _stated(loaded).items():
        print(f"{key}: {text}")
    for row in bounds:
        print(f"\n{row['name']:<24} {quantity(source.problem, row['value']):>14}")
        witness = row["witness"] if isinstance(row["witness"], dict) else {}
        definitions(
            [(key.replace("_", " "), _short(value)) for key, value in witness.items()], indent=2
        )


def _stated(instance: Any) -> dict[str, str]:
    """Space and objective of an instance that has them."""
    space = getattr(instance, "space", None)
    if space is None:
        return {}
    return {"space": f"{space.label}: {space}", "objective": str(instance.objective)}


def _finite(row: dict[str, Any]) -> dict[str, Any]:
    """JSON has no infinity: an infeasible instance's bound is the text "inf"."""
    value = row["value"]
    return row | {"value": "inf"} if value == float("inf") else row


def _short(value: Any, limit: int = 200) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return text if len(text) <= limit else f"{text[:limit]}... (the rest with --json)"
