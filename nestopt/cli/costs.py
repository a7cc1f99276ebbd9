"""Options that ask what a plan costs, and ``nestopt cost``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from nestopt.cli.inputs import read_result
from nestopt.cli.output import definitions, print_json
from nestopt.cli.parameters import JsonOption, ResultArgument
from nestopt.core.errors import InputError, NestoptError, UsageError
from nestopt.placement.economics.report import cost_of
from nestopt.placement.economics.terms import Terms
from nestopt.placement.model.plan import Plan

if TYPE_CHECKING:
    from nestopt.core.result import Result
    from nestopt.placement.economics.report import CostReport
    from nestopt.placement.economics.terms import Terms

__all__ = [
    "CheckpointOption", "FailuresOption", "PowerOption", "PriceOption", "RepairOption",
    "RestartOption", "SparesOption", "TokensOption", "cost", "print_report", "report_of",
    "terms_of",
]  # fmt: skip

TokensOption = Annotated[
    str | None,
    typer.Option(
        "--tokens",
        metavar="N",
        help="Placement: say what training on N tokens takes (15T, 300B): tokens/s, MFU, days.",
    ),
]
PriceOption = Annotated[
    str | None,
    typer.Option(
        "--price", metavar="X", help="With --tokens: money for a device and hour; all alive pay."
    ),
]
PowerOption = Annotated[
    str | None,
    typer.Option(
        "--power", metavar="P", help="With --tokens: power of a device used, such as '700 W'."
    ),
]
FailuresOption = Annotated[
    str | None,
    typer.Option(
        "--failures",
        metavar="RATES",
        help="With --tokens: goodput at the rates llama3, rsc1, rsc2 or tpuv4, or at a number of "
        "interruptions a device and day.",
    ),
]
CheckpointOption = Annotated[
    str | None,
    typer.Option(
        "--checkpoint",
        metavar="TIME",
        help="With --failures: how long a checkpoint stops the job. Default: 60 s, assumed.",
    ),
]
RestartOption = Annotated[
    str | None,
    typer.Option(
        "--restart",
        metavar="TIME",
        help="With --failures: from an interruption to work again. Default: 10 min, assumed.",
    ),
]
RepairOption = Annotated[
    str | None,
    typer.Option(
        "--repair",
        metavar="TIME",
        help="With --failures: how long a broken node is out. Default: replaced at the restart.",
    ),
]
SparesOption = Annotated[
    str | None,
    typer.Option(
        "--spares",
        metavar="K",
        help="With --repair: spare nodes beside the cluster, paid too. Default: 0.",
    ),
]


def terms_of(tokens: str | None, **words: str | None) -> Terms | None:
    """The terms that options state; None without ``--tokens``.

    Raises
    ------
    UsageError
        If an option is wrong, or stands without the one that it belongs to.
    """
    given = {name: word for name, word in words.items() if word is not None}
    if tokens is None:
        if given:
            raise UsageError(f"--{next(iter(given))} needs --tokens, such as --tokens 15T")
        return None
    for name in ("checkpoint", "restart", "repair"):
        if name in given and "failures" not in given:
            raise UsageError(f"--{name} needs --failures")
    if "spares" in given and "repair" not in given:
        raise UsageError("--spares needs --repair")

    try:
        return Terms.of(tokens, **given)
    except InputError as error:
        raise UsageError(f"--{error}") from error


def report_of(result: Result, terms: Terms) -> CostReport:
    """What a result's plan costs.

    Raises
    ------
    NestoptError
        If the result has no plan of the pipeline model.
    """
    if result.problem != "placement":
        raise NestoptError("--tokens is for plans; a collective trains nothing")
    if result.solution_json is None:
        raise InputError("is null; nothing to price", field="solution")
    plan = result.solution
    if not isinstance(plan, Plan):
        raise NestoptError("a plan of a published model has no iteration to price")
    if plan.workload is None or plan.cluster is None:
        raise InputError("is missing; the price needs the instance", field="instance.data")
    return cost_of(plan.workload, plan.cluster, plan, terms)


def print_report(report: CostReport) -> None:
    """Print a report for people, in 80 columns."""
    definitions(report.rows())


def cost(
    result: ResultArgument,
    tokens: Annotated[
        str, typer.Option("--tokens", metavar="N", help="Tokens to train on, such as 15T or 300B.")
    ],
    price: PriceOption = None,
    power: PowerOption = None,
    failures: FailuresOption = None,
    checkpoint: CheckpointOption = None,
    restart: RestartOption = None,
    repair: RepairOption = None,
    spares: SparesOption = None,
    json: JsonOption = False,
) -> None:
    """Say what training with a plan takes: tokens/s, MFU, days, money, energy, goodput.

    Failures are a Poisson process. Checkpoints are written at the interval that ends the
    job soonest (Daly's model; Young's estimate is printed beside it). With --repair a
    broken node is out so long, and the job stands still while more nodes are out than
    there are spares.

    \b
    Examples:
      nestopt cost plan.json --tokens 15T --price 2.5
      nestopt cost plan.json --tokens 15T --price 2.5 --power "700 W" \\
          --failures llama3 --checkpoint "30 s" --repair "1 d" --spares 8

    \b
    Exit status:
      0  priced
      1  the file cannot be read, or holds no plan
      2  wrong command line
    """
    terms = terms_of(
        tokens, price=price, power=power, failures=failures, checkpoint=checkpoint,
        restart=restart, repair=repair, spares=spares,
    )  # fmt: skip
    assert terms is not None
    report: Any = report_of(read_result(result), terms)
    if json:
        print_json(report.to_json() | {"file": result})
    else:
        print_report(report)
