"""``nestopt study run|resume|status|report``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nestopt.cli.inputs import writable
from nestopt.cli.output import note, print_json
from nestopt.cli.parameters import JsonOption
from nestopt.core.errors import UsageError
from nestopt.core.units import format_seconds
from nestopt.study.cells import plan_study
from nestopt.study.directory import (
    check_records,
    default_directory,
    install,
    make_directory,
    open_study,
    status,
)
from nestopt.study.export import write_csv, write_figures, write_latex
from nestopt.study.report import write_report
from nestopt.study.runner import run_study

if TYPE_CHECKING:
    from collections.abc import Callable

    from nestopt.study.cells import Plan

__all__ = ["study"]

study = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    help="""Run studies: many (instance, method, seed) cells, recorded one by one.

    \b
    Examples:
      nestopt study run gaps.toml -o gaps
      nestopt study status gaps
      nestopt study resume gaps
      nestopt study report gaps
    """,
)

DirectoryArgument = Annotated[
    Path, typer.Argument(metavar="DIR", help="Directory that `nestopt study run` made.")
]
JobsOption = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        "-j",
        metavar="N",
        help="Cells at once on this machine, each in its own process. Default: one a core.",
    ),
]
SchedulerOption = Annotated[
    str | None,
    typer.Option(
        "--scheduler",
        metavar="ADDRESS",
        help="Run the cells on the workers of this Dask scheduler instead, such as "
        "tcp://host:8786 (needs nestopt[cluster]).",
    ),
]
MixedOption = Annotated[
    bool,
    typer.Option(
        "--mixed",
        help="Go on although DIR has records of another code, specification or build of an "
        "instance; the report says so.",
    ),
]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")]


@study.command("run", short_help="Run a study.")
def run(
    spec: Annotated[
        Path,
        typer.Argument(
            metavar="SPEC.toml",
            help="What to run; `python -m pydoc nestopt.study.spec` shows the format.",
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="DIR",
            help="Where the records go. Default: a directory beside SPEC, named like it.",
        ),
    ] = None,
    jobs: JobsOption = None,
    scheduler: SchedulerOption = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Check SPEC and count its cells; run and write nothing."),
    ] = False,
    mixed: MixedOption = False,
    quiet: QuietOption = False,
) -> None:
    """Run a study: every method on every instance, each cell in its own process.

    SPEC is checked wholly before anything runs. Every finished cell is one line of
    DIR/records.jsonl, on the disk at once, its result passed by the independent checker.
    Whatever ends the run, Ctrl-C or a crash, loses at most the cells in flight;
    `nestopt study resume` goes on from there. Cells that have a record are not run
    again, so a study whose SPEC has grown may be run into the same DIR with --mixed.
    Time limits are CPU seconds of a cell's process.

    \b
    Examples:
      nestopt study run paper_figs/studies/a_price_of_structure.toml --dry-run
      nestopt study run my-study.toml --output records/my-study --jobs 4
      nestopt study run my-study.toml --scheduler tcp://10.0.0.1:8786

    \b
    Exit status:
      0  every cell has a record
      1  error in SPEC (nothing was run)
      2  wrong command line
      130, 143  ended by Ctrl-C or SIGTERM with cells missing
    """
    _refuse(jobs, scheduler)
    plan = plan_study(spec)
    if dry_run:
        _print_plan(plan)
        return
    directory = output or default_directory(spec)
    make_directory(directory)

    def prepare() -> None:
        install(plan, spec, directory, mixed=mixed)

    _execute(plan, directory, jobs, scheduler, prepare=prepare, quiet=quiet)


@study.command("resume", short_help="Go on with an interrupted study.")
def resume(
    directory: DirectoryArgument,
    jobs: JobsOption = None,
    scheduler: SchedulerOption = None,
    mixed: MixedOption = False,
    quiet: QuietOption = False,
) -> None:
    """Run the cells of a study that have no record yet.

    A last line that was not written to its end is dropped, and its cell run again.

    \b
    Examples:
      nestopt study resume records/my-study
      nestopt study resume records/my-study --jobs 8

    \b
    Exit status:
      0  every cell has a record
      1  DIR holds no study, or another process runs it
      2  wrong command line
      130, 143  ended by Ctrl-C or SIGTERM with cells missing
    """
    _refuse(jobs, scheduler)
    plan = open_study(directory)

    def prepare() -> None:
        check_records(plan, directory, mixed=mixed)

    _execute(plan, directory, jobs, scheduler, prepare=prepare, quiet=quiet)


@study.command("status", short_help="How far a study is.")
def show_status(directory: DirectoryArgument, json: JsonOption = False) -> None:
    """Count the cells of a study by method and by how they ended.

    \b
    Examples:
      nestopt study status records/my-study
      nestopt study status records/my-study --json
    """
    found = status(directory)
    if json:
        print_json(found.to_json())
        return
    print(f"{found.name}: {found.done} of {found.cells} cells recorded")
    width = max(len(name) for name in found.ended)
    for name, counts in found.ended.items():
        parts = [f"{count} {ending}" for ending, count in sorted(counts.items())]
        if found.missing[name]:
            parts.append(f"{found.missing[name]} missing")
        print(f"  {name:<{width}}  {', '.join(parts) or 'no cells'}")
    if found.strange:
        print(f"{found.strange} records are of cells that the specification does not have")
    if found.torn:
        print("the last line is torn; its cell will be run again")
    if found.done == found.cells:
        return
    if found.jobs is not None:
        print(f"running, {found.jobs} cells at once")
    if found.remaining is not None:
        at_once = found.jobs or 1
        print(f"about {format_seconds(found.remaining / at_once)} to go with {at_once} at once")
    if found.jobs is None:
        print(f"continue with: nestopt study resume {directory}")


@study.command("report", short_help="Tables and pictures of a study.")
def report(
    directory: DirectoryArgument,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE.html", help="One page with everything."),
    ] = None,
    latex: Annotated[
        Path | None,
        typer.Option("--latex", metavar="DIR", help="Tables, no wider than a page, and captions."),
    ] = None,
    csv: Annotated[
        Path | None,
        typer.Option("--csv", metavar="FILE.csv", help="Summaries by group and method."),
    ] = None,
    figures: Annotated[
        Path | None,
        typer.Option("--figures", metavar="DIR", help="Each picture as PDF and PNG."),
    ] = None,
) -> None:
    """Write a study's tables and pictures, grouped as its table [report] says.

    At least one of the options is needed. LaTeX tables need the package booktabs; each
    file is a whole float with its caption, and what is too wide or long is split.

    \b
    Examples:
      nestopt study report records/my-study -o report.html
      nestopt study report records/my-study --latex tables --csv summary.csv
      nestopt study report records/my-study --figures figures
    """
    if output is None and latex is None and csv is None and figures is None:
        raise UsageError("nothing to write; expected --output, --latex, --csv or --figures")
    page = None if output is None else writable("--output", str(output), (".html", ".htm"))
    table = None if csv is None else writable("--csv", str(csv), (".csv",))
    written: list[Path] = []
    if page is not None:
        write_report(directory, page)
        written.append(Path(page))
    if latex is not None:
        written += write_latex(directory, latex)
    if table is not None:
        written += write_csv(directory, table)
    if figures is not None:
        written += write_figures(directory, figures)
    for path in written:
        note(f"wrote {path}")


def _refuse(jobs: int | None, scheduler: str | None) -> None:
    if jobs is not None and jobs < 1:
        raise UsageError(f"--jobs {jobs}: expected at least 1")
    if jobs is not None and scheduler is not None:
        raise UsageError("--jobs and --scheduler exclude each other; the cluster has its workers")


def _print_plan(plan: Plan) -> None:
    from collections import Counter

    counts = Counter(cell.label for cell in plan.cells)
    limits = {cell.label: cell.definition["time_limit"] for cell in plan.cells}
    instances = {str(cell.definition["instance"]) for cell in plan.cells}
    print(f"{plan.spec.name}: {len(plan.cells)} cells on {len(instances)} instances")
    width = max(len(label) for label in counts)
    for label, count in counts.items():
        limit = "no time limit" if limits[label] is None else f"{limits[label]:g} CPU s each"
        print(f"  {label:<{width}}  {count:>6}  {limit}")


def _execute(
    plan: Plan,
    directory: Path,
    jobs: int | None,
    scheduler: str | None,
    *,
    prepare: Callable[[], None],
    quiet: bool,
) -> None:
    with _Progress(quiet=quiet) as progress:
        run_study(plan, directory, jobs=jobs, scheduler=scheduler, prepare=prepare, tell=progress)
    if progress.failed:
        note(f"{progress.failed} cells ended in an error (field error of their records)")
    note(f"{len(plan.cells)} cells in {directory / 'records.jsonl'}")


class _Progress:
    """A bar on stderr; errors get a line each."""

    def __init__(self, *, quiet: bool) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        self.failed = 0
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("to go"),
            TimeRemainingColumn(),
            console=Console(stderr=True, highlight=False),
            disable=quiet,
        )
        self._task: Any = None

    def __enter__(self) -> _Progress:
        self._bar.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._bar.stop()

    def __call__(self, event: str, value: Any) -> None:
        if event == "begin":
            done, total, torn = value
            if torn:
                self._bar.print("the last record was torn; its cell is run again", markup=False)
            self._task = self._bar.add_task("cells", total=total, completed=done)
            return
        if value["termination"]["reason"] == "error":
            self.failed += 1
            text = f"{value['instance']['name']}, {value['method']}: {value['error']}"
            self._bar.print(text, markup=False, soft_wrap=True)
        self._bar.advance(self._task)
