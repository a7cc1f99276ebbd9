"""Records of runs beside each other: joins that assert, gaps that name their denominator.

A record is a line of a study's record file (schema ``nestopt.record/1``). Three gaps are kept
apart, all with the objective as the denominator: to the run's own certified lower bound, to the
proved optimum of the same problem, and to the best objective known for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

from nestopt.core.errors import InputError
from nestopt.core.io import canonical_json
from nestopt.core.result import relative_gap

__all__ = [
    "GAPS",
    "TICK",
    "best_bounds",
    "best_known",
    "general_bound",
    "drawn_unit",
    "gap_between",
    "gap_to_best_known",
    "gap_to_bound",
    "gap_to_optimum",
    "grouped",
    "instance_key",
    "joined",
    "label",
    "number",
    "objective_key",
    "one_each",
    "optima",
    "problem_key",
    "proved",
    "seconds_counted",
    "solved",
    "timed_out",
]

Record = Mapping[str, Any]
ProblemKey = tuple[str, str, str, str]
ObjectiveKey = tuple[str, str, str]

GAPS = {
    "gap to bound": "(objective - own lower bound) / objective",
    "gap to optimum": "(objective - proved optimum) / objective",
    "gap to best known": "(objective - best objective of any run on the instance) / objective",
}
"""The three gaps and what each is divided by."""

TICK = 0.01
"""Seconds of a tick of the operating system's CPU clock."""

TOLERANCE = 1e-6
"""Relative difference below which two proved values agree: what MILP back-ends guarantee."""


def number(value: Any) -> float | None:
    """A number of a record; infinities are written as text there, None is unknown."""
    return None if value is None else float(value)


def label(record: Record) -> str:
    """Instance, method and seed of a record, for messages."""
    name = record["instance"]["name"] or instance_key(record)
    return f"{name} by {record.get('method', '?')} (seed {record.get('seed', '?')})"


def problem_key(record: Record) -> ProblemKey:
    """What was optimised: the job (hash), the objective, and the plan space (placement).

    The space comes in two parts, the plans that count and their structure. Two records with the
    same key have the same optimum. The bound of a ranking of decompositions
    is none on other plans, so that it has a space of its own; an instance that was not built is
    known by its parameters.
    """
    instance, settings = record["instance"], record.get("settings") or {}
    identity = str(instance.get("job") or instance["sha256"] or instance_key(record))
    problem = instance.get("problem")
    if problem == "collective":
        return identity, "makespan", "", ""
    objective = str(settings.get("objective") or "iteration-time")
    if problem == "ranking":
        return identity, objective, "ranking", "ranking"
    plans = settings.get("plans") or _plans_before_spaces(settings)
    # without orders of axes, structured plans are the contiguous ones
    structure = str(settings.get("space") or "structured")
    if structure == "structured" and settings.get("orders") != "any":
        structure = "contiguous"
    return identity, objective, str(plans), structure


def _plans_before_spaces(settings: Mapping[str, Any]) -> str:
    """The plan space of a record that states none: the first one, as its settings changed it."""
    keys = ("tensor", "expert", "context", "recompute", "zero", "schedule", "chunks", "replicas",
            "overlap", "decomposition", "batch", "layout")  # fmt: skip
    changed = [f"{key}={settings[key]}" for key in keys if settings.get(key) is not None]
    return " ".join(["default-1", *changed])


def objective_key(record: Record) -> ObjectiveKey:
    """`problem_key` without the structure: a structured plan competes with a general one.

    Plans of another space do not compete: it is another problem.
    """
    return problem_key(record)[:3]


def instance_key(record: Record) -> str:
    """The instance's parameters as text: the same for all runs on it, also for one that failed."""
    return canonical_json(record.get("parameters") or {})


def drawn_unit(record: Record) -> str:
    """What was drawn to make the instance: its workload, or its network, with the seed.

    Runs that share it (other failures, another cluster, another pattern) are no independent
    observations; intervals resample these units.
    """
    found = record.get("parameters") or {}
    seed = found.get("instance_seed", 0)
    name = str(found.get("workload") or found.get("topology") or instance_key(record))
    return f"{name.replace('{seed}', str(seed))}, seed {seed}"


def solved(record: Record) -> bool:
    """Whether the run found a solution."""
    return record.get("objective") is not None


def proved(record: Record) -> bool:
    """Whether the run ended with a proof: optimal or infeasible."""
    return record["termination"]["reason"] in ("optimal", "infeasible")


def timed_out(record: Record) -> bool:
    """Whether the time limit ended the run, from inside or by a kill."""
    return record["termination"].get("limit") == "time"


def seconds_counted(record: Record) -> float:
    """CPU seconds of the method; a run that a limit or an error ended counts at the time limit.

    A record whose limit was of the wall clock (without ``limit_clock``) counts at the CPU seconds
    that it had used when time was up: less than it needs. Where a record has not the method's CPU
    time it is that of the whole process; less than `TICK` cannot be measured and counts as that.

    Raises
    ------
    InputError
        If the record has neither.
    """
    limit = number(record.get("time_limit"))
    reason = record["termination"]["reason"]
    cut = record["termination"].get("limit") == "memory" or reason == "error"
    cut = cut or (timed_out(record) and record.get("limit_clock") == "cpu")
    if cut and limit is not None and math.isfinite(limit):
        return limit
    for clock in ("method_cpu", "cpu"):
        spent = number(record.get(clock))
        if spent is not None:
            return max(spent, TICK)
    raise InputError(f"{label(record)} has no figure", field="cpu")


def grouped(
    records: Iterable[Record], key: Callable[[Record], Hashable]
) -> dict[Any, list[Record]]:
    """Records by key, in the order of first appearance."""
    found: dict[Any, list[Record]] = {}
    for record in records:
        found.setdefault(key(record), []).append(record)
    return found


def one_each(records: Iterable[Record], key: Callable[[Record], Hashable]) -> dict[Any, Record]:
    """The one record of each key.

    Raises
    ------
    InputError
        If two records share a key.
    """
    found: dict[Any, Record] = {}
    for record in records:
        k = key(record)
        if k in found:
            raise InputError(f"two records for {k}: {label(found[k])} and {label(record)}")
        found[k] = record
    return found


def joined(
    left: Sequence[Record], right: Sequence[Record], key: Callable[[Record], Hashable]
) -> list[tuple[Record, Record]]:
    """Each left record with its one right partner.

    Raises
    ------
    InputError
        If a left record has no partner (all such are named), or a key stands twice on the right.
    """
    partners = one_each(right, key)
    missing = [label(record) for record in left if key(record) not in partners]
    if missing:
        shown = "; ".join(missing[:10]) + ("; ..." if len(missing) > 10 else "")
        raise InputError(f"{len(missing)} records have no partner: {shown}")
    return [(record, partners[key(record)]) for record in left]


def optima(records: Iterable[Record]) -> dict[ProblemKey, float]:
    """Proved optima by `problem_key`.

    Raises
    ------
    InputError
        If two proofs of the same problem disagree, naming both runs.
    """
    found: dict[ProblemKey, tuple[float, Record]] = {}
    for record in records:
        value = number(record.get("objective"))
        if record["termination"]["reason"] != "optimal" or value is None:
            continue
        key = problem_key(record)
        if key not in found:
            found[key] = (value, record)
        elif not math.isclose(value, found[key][0], rel_tol=TOLERANCE, abs_tol=0):
            other, holder = found[key]
            raise InputError(
                f"two optima of one problem: {other!r} from {label(holder)}, "
                f"{value!r} from {label(record)}"
            )
    return {key: value for key, (value, _) in found.items()}


def best_known(records: Iterable[Record]) -> dict[ObjectiveKey, float]:
    """Smallest objective of any run, by `objective_key`."""
    found: dict[ObjectiveKey, float] = {}
    for record in records:
        value = number(record.get("objective"))
        if value is not None:
            key = objective_key(record)
            found[key] = min(value, found.get(key, math.inf))
    return found


def best_bounds(records: Iterable[Record]) -> dict[ProblemKey, float]:
    """Largest lower bound of any run, by `problem_key`."""
    found: dict[ProblemKey, float] = {}
    for record in records:
        value = number(record.get("bound"))
        if value is not None:
            key = problem_key(record)
            found[key] = max(value, found.get(key, -math.inf))
    return found


def general_bound(record: Record) -> float | None:
    """A placement run's lower bound over the general space; None where it has none."""
    if problem_key(record)[3] == "general":
        return number(record.get("bound"))
    return number((record.get("stats") or {}).get("general_bound"))


def gap_between(objective: float, reference: float, what: str) -> float:
    """(objective - reference) / objective; `what` names the run in an error.

    Raises
    ------
    InputError
        If the objective is below the reference by more than `TOLERANCE`: one of them is wrong.
    """
    if objective < reference - TOLERANCE * abs(reference):
        raise InputError(f"{what}: objective {objective!r} is below {reference!r}")
    gap = relative_gap(objective, reference)
    return math.nan if gap is None else max(0.0, gap)


def gap_to_bound(record: Record) -> float | None:
    """Gap to the run's own lower bound; infinite without a bound, None without a solution."""
    objective, bound = number(record.get("objective")), number(record.get("bound"))
    if objective is None:
        return None
    return gap_between(objective, -math.inf if bound is None else bound, label(record))


def gap_to_optimum(record: Record, known: Mapping[ProblemKey, float]) -> float | None:
    """Gap to the proved optimum; None without a solution.

    Raises
    ------
    InputError
        If the optimum is not known.
    """
    return _gap_to(record, known, problem_key(record), "optimum")


def gap_to_best_known(record: Record, known: Mapping[ObjectiveKey, float]) -> float | None:
    """Gap to the best objective known; None without a solution.

    Raises
    ------
    InputError
        If no value is known.
    """
    return _gap_to(record, known, objective_key(record), "best known value")


def _gap_to(record: Record, known: Mapping[Any, float], key: Hashable, what: str) -> float | None:
    objective = number(record.get("objective"))
    if objective is None:
        return None
    if key not in known:
        raise InputError(f"no {what} for {label(record)}")
    return gap_between(objective, known[key], f"{label(record)} against the {what}")
