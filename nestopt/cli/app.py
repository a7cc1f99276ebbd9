"""The program: its commands, and what becomes of an error."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperGroup

from nestopt._version import __version__
from nestopt.cli.exits import flush_stdout, open_stdout, report
from nestopt.core.errors import NestoptError

__all__ = ["COMMANDS", "Command", "app", "main"]

_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 80}


class Command(NamedTuple):
    """A command, or a group of them, in a module of its own that is imported when it runs.

    Attributes
    ----------
    module : str
        Module of `nestopt.cli`.
    name : str
        What it is called there: a function, or a `typer.Typer` of several.
    summary : str
        Its line in ``nestopt --help``.
    """

    module: str
    name: str
    summary: str


COMMANDS = {
    "solve": Command("solve", "solve", "Place a training job, or synthesize a collective."),
    "check": Command("check", "check", "Check a result with the independent checker."),
    "bound": Command("bound", "bound", "Lower bounds of an instance, with their witnesses."),
    "simulate": Command("simulate", "simulate", "Play a plan or schedule event by event."),
    "run": Command("run", "run", "Execute a schedule on real processes, with real data."),
    "replan": Command("replan", "replan", "A new plan or schedule after a failure."),
    "cost": Command("costs", "cost", "Days, money, energy and goodput of a plan."),
    "plot": Command("plot", "plot", "Draw a plan or a schedule."),
    "sweep": Command("sweep", "sweep", "Collectives by buffer size; plans by cluster and batch."),
    "rank4d": Command("rank4d", "rank4d", "Rank the 4D decompositions of a transformer."),
    "validate": Command("validate", "validate", "Compare predictions with measured training runs."),
    "calibrate": Command(
        "calibrate", "calibrate", "Fit device parameters to your own measured runs."
    ),
    "generate": Command(
        "generate", "generate", "Generate a topology, cluster, workload, instance or table."
    ),
    "import": Command("transfer", "import_file", "Read a file of another tool."),
    "export": Command(
        "export", "export_file", "Write a schedule, plan or topology for another tool."
    ),
    "methods": Command("methods", "methods", "Methods of solve and the keys of --set."),
    "show-versions": Command("versions", "show_versions", "Versions of nestopt and its libraries."),
    "library": Command("library", "library", "Named instances and the best results known."),
    "study": Command("study", "study", "Run studies of many cells, and report them."),
}


class _Commands(Mapping[str, Any]):
    """The commands by name; each is imported when it is asked for."""

    def __getitem__(self, name: str) -> Any:
        return _load(name, COMMANDS[name])

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


@cache
def _load(name: str, command: Command) -> Any:
    """typer's command, or group, of a name; a module's `epilog` follows the help of its command."""
    module = import_module(f"nestopt.cli.{command.module}")
    what = getattr(module, command.name)
    holder = typer.Typer(rich_markup_mode=None)
    if isinstance(what, typer.Typer):
        holder.add_typer(
            what, name=name, short_help=command.summary, context_settings=dict(_CONTEXT)
        )
    else:
        more = getattr(module, "epilog", None)
        holder.command(name, short_help=command.summary, epilog=more() if more else None)(what)
    return typer.main.get_group(holder).commands[name]


class _Group(TyperGroup):
    """``nestopt`` itself: its help page needs none of the commands."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands: Any = _Commands()

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the table of commands."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.summary) for name, command in COMMANDS.items()])


app = typer.Typer(
    cls=_Group,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    context_settings=dict(_CONTEXT),
)


def _version(wanted: bool) -> None:
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
