"""``nestopt check``."""

from __future__ import annotations

from nestopt.cli.parameters import JsonOption, ResultArgument
from nestopt.core.errors import CheckError

__all__ = ["check"]

SCHEMA = "nestopt.check/1"


def check(result: ResultArgument, json: JsonOption = False) -> None:
    """Check a result with the independent checker.

    The checker recomputes feasibility, objective and bound witness from the instance
    and the solution in the file alone, with none of the solvers' code. It prints one
    line for each thing it verified, or the first fault.

    \b
    Examples:
      nestopt check plan.json
      nestopt check ag.json --json

    \b
    Exit status:
      0  everything is as the file claims
      1  the file cannot be read or is no result
      5  a check failed (named on stderr)
    """
    from nestopt import api
    from nestopt.cli.output import print_json

    try:
        lines = api.check(result)
    except CheckError as error:
        raise CheckError(f"{result}: {error}") from error
    if json:
        print_json({"schema": SCHEMA, "file": result, "passed": True, "verified": lines})
        return
    for line in lines:
        print(f"ok  {line}")
    print(f"{result}: passed, {len(lines)} points verified")
