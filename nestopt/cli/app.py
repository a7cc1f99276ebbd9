"""The program: its commands, and what becomes of an error."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from nestopt.cli.bound import bound
from nestopt.cli.calibrate import calibrate
from nestopt.cli.check import check
from nestopt.cli.costs import cost
from nestopt.cli.exits import flush_stdout, open_stdout, report
from nestopt.cli.export import export_file
from nestopt.cli.generate import generate
from nestopt.cli.library import library
from nestopt.cli.methods import methods
from nestopt.cli.plot import plot
from nestopt.cli.rank4d import rank4d
from nestopt.cli.replan import replan
from nestopt.cli.run import run
from nestopt.cli.setting_help import epilog
from nestopt.cli.simulate import simulate
from nestopt.cli.solve import solve
from nestopt.cli.study import study
from nestopt.cli.sweep import sweep
from nestopt.cli.transfer import import_file
from nestopt.cli.validate import validate
from nestopt.cli.versions import show_versions
from nestopt.core.errors import NestoptError

__all__ = ["app", "main"]

_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 80}
app = typer.Typer(
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    context_settings=dict(_CONTEXT),
)


def _version(wanted: bool) -> None:
    from nestopt._version import __version__

    if wanted:
        print(f"nestopt {__version__}")
        raise typer.Exit


@app.callback()
def nestopt(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
    debug: Annotated[
        bool,
        typer.Option("--debug", help="Show the traceback of an error; may stand anywhere."),
    ] = False,
) -> None:
    """Place training jobs on clusters and synthesize collective schedules.

    Fast answers, exact answers on small instances, certified lower bounds at every
    size, and an independent checker for every plan and schedule.

    \b
    Examples:
      nestopt solve --workload gpt3-175b --cluster fattree-tpuv4-1024
      nestopt solve --collective all-gather --topology mesh2d:8x8 -o ag.json
      nestopt check ag.json
      nestopt bound --collective all-gather --topology dgx1v

    \b
    Exit status of every command:
      0  done; solve: a solution was found, be it at a limit
      1  error
      2  wrong command line
      3  solve: proved infeasible
      4  solve: no solution within the limit
      5  a check failed
      130, 143  ended by Ctrl-C or by SIGTERM: before a search began, with cells
         of a study missing, or by the second one. A search that the first one
         ends returns what it has, with the status that this has
    """


_COMMANDS = (
    (solve, "solve", "Place a training job, or synthesize a collective."),
    (check, "check", "Check a result with the independent checker."),
    (bound, "bound", "Lower bounds of an instance, with their witnesses."),
    (simulate, "simulate", "Play a plan or schedule event by event."),
    (run, "run", "Execute a schedule on real processes, with real data."),
    (replan, "replan", "A new plan or schedule after a failure."),
    (cost, "cost", "Days, money, energy and goodput of a plan."),
    (plot, "plot", "Draw a plan or a schedule."),
    (sweep, "sweep", "Collectives by buffer size; plans by cluster and batch."),
    (rank4d, "rank4d", "Rank the 4D decompositions of a transformer."),
    (validate, "validate", "Compare predictions with measured training runs."),
    (calibrate, "calibrate", "Fit device parameters to your own measured runs."),
    (generate, "generate", "Generate a topology, cluster, workload, instance or table."),
    (import_file, "import", "Read a file of another tool."),
    (export_file, "export", "Write a schedule, plan or topology for another tool."),
    (methods, "methods", "Methods of solve and the keys of --set."),
    (show_versions, "show-versions", "Versions of nestopt and its libraries."),
)
for _function, _name, _summary in _COMMANDS:
    app.command(_name, short_help=_summary, epilog=epilog() if _name == "solve" else None)(
        _function
    )
app.add_typer(
    library,
    name="library",
    short_help="Named instances and the best results known.",
    context_settings=dict(_CONTEXT),
)
app.add_typer(
    study,
    name="study",
    short_help="Run studies of many cells, and report them.",
    context_settings=dict(_CONTEXT),
)


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its status.

    Parameters
    ----------
    argv : sequence of str, optional
        The words after the program's name; those of the process by default.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in words
    open_stdout()
    program = typer.main.get_command(app)
    try:
        program.main(args=[word for word in words if word != "--debug"], prog_name="nestopt")
    except (NestoptError, OSError) as error:
        if debug:
            raise
        sys.exit(report(error, as_json="--json" in words))
    finally:
        flush_stdout()
