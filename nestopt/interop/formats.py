"""The formats that solutions are written in: which solution, which settings, which module."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from nestopt.core.errors import InputError, UsageError, naming, unknown_name
from nestopt.interop.loading import plan_in, read_solution, schedule_in

__all__ = ["FORMATS", "Format", "export_solution"]

MOST_ROWS = 200_000_000
MOST_SENDS = 2_000_000


@dataclass(frozen=True, slots=True)
class Format:
    """One format.

    Attributes
    ----------
    summary : str
        What it is, for people.
    schedule, plan : str
        ``module:function`` that writes a schedule, a plan; empty: the format cannot say one.
    settings : tuple of str
        The ``--set`` keys that it reads.
    endings : tuple of str
        Endings of its files' names; empty for any.
    folder : bool
        Whether several files are written, into a directory.
    """

    summary: str
    schedule: str = ""
    plan: str = ""
    settings: tuple[str, ...] = ()
    endings: tuple[str, ...] = ()
    folder: bool = False


FORMATS: dict[str, Format] = {
    "msccl-xml": Format(
        "an algorithm for the MSCCL and RCCL runtimes (XML, verified)",
        "msccl_xml:write",
        settings=("proto", "inplace", "runtime", "min-bytes", "max-bytes"),
        endings=(".xml",),
    ),
    "mscclpp-plan": Format(
        "an execution plan for MSCCL++ 0.9 (JSON)",
        "mscclpp_plan:write",
        settings=("min-bytes", "max-bytes"),
        endings=(".json",),
    ),
    "chakra": Format(
        "Chakra execution traces, with ASTRA-sim's files; a directory",
        "chakra:write",
        settings=("form",),
        folder=True,
    ),
    "perfetto": Format(
        "a trace for ui.perfetto.dev: links and NPUs, or a pipeline's stages",
        "perfetto:write_schedule",
        "perfetto:write_plan",
        endings=(".json",),
    ),
    "csv": Format(
        "a table: a row a send, or a row a device",
        "tables:schedule_csv",
        "tables:plan_csv",
        endings=(".csv",),
    ),
    "parquet": Format(
        "the same table in Parquet (extra parquet)",
        "tables:schedule_parquet",
        "tables:plan_parquet",
        endings=(".parquet",),
    ),
}


def export_solution(
    format_name: str, file: str, target: Path, settings: dict[str, str]
) -> list[Path]:
    """Write the solution of a result file in another tool's format; the paths written.

    Parameters
    ----------
    format_name : str
        A key of `FORMATS`.
    file : str
        The result file.
    target : Path
    settings : dict
        ``--set`` pairs.

    Raises
    ------
    UsageError
        If the format or a setting is unknown, or the name's ending is another.
    InputError
        If the file is wrong, or the format cannot say its solution.
    CheckError
        If the schedule is wrong.
    """
    if format_name not in FORMATS:
        raise unknown_name("format", format_name, FORMATS)
    row = FORMATS[format_name]
    for key in settings:
        if key not in row.settings:
            raise unknown_name(f"setting of {format_name}", key, row.settings)
    if row.endings and target.suffix.lower() not in row.endings:
        ends = " or ".join(row.endings)
        raise UsageError(f"--output {target}: expected a name that ends in {ends}")
    result = read_solution(file)
    is_plan = result.problem == "placement"
    place = row.plan if is_plan else row.schedule
    if not place:
        holds, wants = ("plan", "schedule") if is_plan else ("schedule", "plan")
        raise InputError(f"holds a {holds}; {format_name} says a {wants}", file=file)
    module, _, function = place.partition(":")
    write = getattr(import_module(f"nestopt.interop.{module}"), function)
    with naming(file):
        if is_plan:
            return list(write(plan_in(result, Path(file)), target, settings))
        most = MOST_ROWS if format_name in ("csv", "parquet") else MOST_SENDS
        found = schedule_in(result, Path(file), at_most=most)
        return list(write(found, target, settings))
