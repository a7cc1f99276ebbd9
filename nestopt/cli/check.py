"""``nestopt check``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nestopt import api
from nestopt.cli.output import print_json, printable
from nestopt.cli.parameters import JsonOption, ResultArgument
from nestopt.core.errors import CheckError
from nestopt.core.verdict import NotProvedError, Verdict
from nestopt.interop.msccl_check import check_algorithm
from nestopt.interop.msccl_file import read_algorithm

if TYPE_CHECKING:
    from nestopt.core.verdict import Verdict

__all__ = ["check"]

SCHEMA = "nestopt.check/1"


def check(result: ResultArgument, json: JsonOption = False) -> None:
    """Check a result with the independent checker, or an MSCCL XML algorithm.

    The checker recomputes feasibility and objective and verifies the bound's witness
    from the instance and the solution in the file alone, with none of the solvers' code.
    It prints one line for each thing it verified, or the first fault. What the file
    claims and no witness can prove (an optimum by exhausted search, say) is listed
    apart as claimed, and "passed" does not cover it. A claim without even a stated
    ground is refused as not proved.

    An algorithm (.xml) is held to the runtimes' limits and played on symbols: its
    messages, deadlocks, races and result.

    \b
    Examples:
      nestopt check plan.json
      nestopt check ag.json --json
      nestopt check algo.xml

    \b
    Exit status:
      0  everything verified is as the file says; claims, if any, are listed
      1  the file cannot be read or is no result
      5  a check failed, or a claim is not proved (named on stderr)
    """
    try:
        verdict = _verify_xml(result) if result.endswith(".xml") else api.check(result)
    except NotProvedError as error:
        if not json:
            for line in error.verdict.verified:
                print(f"ok  {printable(line)}")
        raise CheckError(f"{result}: {error}") from error
    except CheckError as error:
        raise CheckError(f"{result}: {error}") from error
    if json:
        print_json(
            {"schema": SCHEMA, "file": result, "passed": True}
            | {"verified": verdict.verified, "claimed": verdict.claimed}
        )
        return
    for line in verdict.verified:
        print(f"ok  {printable(line)}")
    for line in verdict.claimed:
        print(f"--  claimed, not verified: {printable(line)}")
    tail = f"; {len(verdict.claimed)} claimed, not verified" if verdict.claimed else ""
    print(f"{result}: passed, {len(verdict.verified)} points verified{tail}")


def _verify_xml(file: str) -> Verdict:
    return Verdict(check_algorithm(read_algorithm(file)))
