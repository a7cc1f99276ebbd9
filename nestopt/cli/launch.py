"""``nestopt export launch`` and ``nestopt import launch``: plans in frameworks' words, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nestopt.cli.inputs import read_result
from nestopt.cli.output import definitions, note, print_json, quantity
from nestopt.core.errors import InputError, NestoptError, UsageError, unknown_name
from nestopt.core.io import write_text
from nestopt.core.units import format_bytes
from nestopt.interop.launch import FRAMEWORKS, write
from nestopt.interop.launch.compare import as_run, compare, hidden_by, nearest, price_plan
from nestopt.interop.launch.job import CannotExpress, job_of
from nestopt.interop.launch.reading import read_launch
from nestopt.placement.model.instance import PlacementInstance
from nestopt.placement.model.plan import Plan
from nestopt.placement.problem import cluster_of

if TYPE_CHECKING:
    from nestopt.interop.launch.compare import Comparison, Priced
    from nestopt.interop.launch.job import Job
    from nestopt.placement.model.transformer import Transformer

__all__ = ["export_launch", "import_launch"]

SCHEMA = "nestopt.launch/1"


def export_launch(
    plan_file: str, framework: str, directory: str, model: str | None, time_limit: float
) -> None:
    """Write the launch files of a plan, or of the nearest plan that the framework can launch."""
    job, reasons, before, after = _job(plan_file, framework, model, time_limit)
    files = write(framework, job)
    if reasons:
        note(f"{framework} cannot launch this plan:")
        for reason in reasons:
            note(f"  - {reason}")
        longer = after / before - 1
        note(
            f"the best plan found that it can launch takes {quantity('placement', after)}, "
            f"{100 * longer:.2f} % longer (slowdown) than {quantity('placement', before)}"
        )
    target = _directory(directory)
    for name, text in files.items():
        write_text(target / name, text)
        if name.endswith(".sh"):
            (target / name).chmod(0o755)
        note(f"wrote {target / name}")


def _job(
    plan_file: str, framework: str, model: str | None, time_limit: float
) -> tuple[Job, tuple[str, ...], float, float]:
    """The job to write, why the plan itself was not, and both plans' seconds."""
    if framework not in FRAMEWORKS:
        raise unknown_name("framework", framework, FRAMEWORKS)
    result = read_result(plan_file)
    if result.problem != "placement" or result.solution_json is None:
        raise UsageError(f"{plan_file} holds no plan; expected a result of a placement")
    instance = PlacementInstance.from_json(result.instance.get("data"), file=plan_file)
    workload, cluster = instance.workload, instance.cluster
    architecture = _architecture(model or workload.name, workload.name)
    plan = Plan.from_json(result.solution_json, file=plan_file)
    # both plans hide what the framework can hide, so that their prices compare
    before = price_plan(as_run(plan, hidden_by(framework)), workload, cluster).seconds
    try:
        job = job_of(plan, workload, cluster, architecture)
        write(framework, job)
        return job, (), before, before
    except CannotExpress as error:
        reasons = error.reasons
    other = nearest(framework, workload, cluster, architecture, time_limit=time_limit)
    if other is None:
        raise NestoptError(
            f"{framework} cannot launch this plan ({'; '.join(reasons)}), and no plan that it can "
            "launch was found"
        )
    job = job_of(other, workload, cluster, architecture)
    return job, reasons, before, price_plan(other, workload, cluster).seconds


def _architecture(name: str, workload: str) -> Transformer:
    """The transformer of a named workload, with the settings in its name."""
    from nestopt.core.registry import architecture

    try:
        return architecture(name)
    except UsageError as error:
        raise UsageError(
            f"the architecture of workload {workload!r} is not known ({error}); name a library "
            "workload or a Hugging Face config.json with --model"
        ) from error


def _directory(text: str) -> Any:
    from pathlib import Path

    path = Path(text)
    if path.exists() and not path.is_dir():
        raise InputError("is a file; expected a directory", file=text, field="--output")
    path.mkdir(parents=True, exist_ok=True)
    return path


def import_launch(
    file: str,
    cluster: str,
    world: int | None,
    given: dict[str, str],
    time_limit: float,
    *,
    as_json: bool,
) -> None:
    """Price what a user runs today, and say what to change."""
    from pathlib import Path

    try:
        text = Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read: {error}", file=file) from error
    job = read_launch(text, file, world, given)
    found = compare(job, cluster_of(cluster), time_limit=time_limit)
    if as_json:
        print_json(_as_json(found))
    else:
        _show(found, cluster)


def _as_json(found: Comparison) -> dict[str, Any]:
    job, best = found.job, found.best
    degrees = {
        key: getattr(job, key)
        for key in ("tensor", "pipeline", "context", "expert", "data", "virtual", "microbatch",
                    "batch", "zero", "recompute", "sequence_parallel", "world")
    }  # fmt: skip
    uniform = found.uniform
    return {
        "schema": SCHEMA,
        "framework": job.framework,
        "job": {**degrees, "layers": list(job.layers)},
        "today": {
            "seconds": found.today.seconds,
            "fits": found.today.fits,
            "memory": [{"needed": need, "usable": room} for need, room in found.today.memory],
        },
        "best": {"seconds": best.objective, "bound": best.bound, "reason": best.termination.reason},
        "one_configuration": None if uniform is None else {"seconds": uniform.seconds},
        "changes": list(found.changes),
        "remarks": list(job.remarks),
    }


def _show(found: Comparison, cluster: str) -> None:
    job, today = found.job, found.today
    print(f"{job.name} ({job.framework}): {job.world} ranks on {cluster}")
    need, room = today.memory[today.tightest]
    verdict = "fits" if today.fits else "DOES NOT FIT"
    rows = [
        ("today", f"{quantity('placement', today.seconds)} an iteration"),
        (
            "memory",
            f"{verdict}: stage {today.tightest} needs {format_bytes(need)} of {format_bytes(room)}",
        ),
    ]
    if found.best.objective is None:
        rows.append(("best", f"no plan found ({found.best.termination.reason})"))
    else:
        word = found.best.termination.reason.value.upper()
        rows.append(
            ("best", f"{quantity('placement', found.best.objective)} ({word})"),
        )
    if found.uniform is not None:
        rows.append(("launchable", _launchable(found.today, found.uniform)))
        if found.uniform.seconds >= today.seconds * (1 - 1e-9) and today.fits:
            rows.append(("change", "nothing: no plan with one configuration is faster"))
        else:
            rows += [
                ("change" if index == 0 else "", text) for index, text in enumerate(found.changes)
            ]
    rows += [("remark", text) for text in job.remarks]
    definitions(rows)


def _launchable(today: Priced, best: Priced) -> str:
    text = f"{quantity('placement', best.seconds)} with one configuration for all stages"
    if today.fits:
        text += f"; today's plan takes {100 * (today.seconds / best.seconds - 1):.1f} % longer"
    return text
