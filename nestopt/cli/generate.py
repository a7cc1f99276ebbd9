"""``nestopt generate``."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

import typer

from nestopt.cli.collective_table import make_table
from nestopt.cli.inputs import writable
from nestopt.cli.output import note, print_json
from nestopt.cli.parameters import JsonOption, TimeLimitOption
from nestopt.core.errors import UsageError, unknown_name
from nestopt.core.io import sha256_of, write_json
from nestopt.instances.generate import KINDS
from nestopt.instances.generate import generate as make
from nestopt.instances.options import Options

__all__ = ["generate"]

SCHEMA = "nestopt.generated/1"
MOST_SHOWN = 6
TABLE = "collective-table"


def generate(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND", help="topology, cluster, workload, instance or collective-table."
        ),
    ],
    spec: Annotated[
        str,
        typer.Argument(
            metavar="SPEC",
            help="Family and size, such as torus3d:4x4x4, tree:8x4x16 or random-dag:40; of an "
            "instance its two parts with @ between; of a collective-table its cluster, a name or a "
            "file. `nestopt library list` names the families.",
        ),
    ],
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="F.json", help="Where the result goes.")
    ],
    fail_npus: Annotated[
        int, typer.Option("--fail-npus", metavar="K", help="K random NPUs (devices) fail.")
    ] = 0,
    fail_links: Annotated[
        int, typer.Option("--fail-links", metavar="K", help="K random links fail.")
    ] = 0,
    fail_group: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-group",
            metavar="KIND,K",
            help="K whole groups fail: node, rack, rail, cube, switch, or a level of a cluster. "
            "May be given several times.",
        ),
    ] = None,
    fail_rates: Annotated[
        str | None,
        typer.Option(
            "--fail-rates", metavar="NAME", help="Failures drawn from published rates; with --days."
        ),
    ] = None,
    days: Annotated[float, typer.Option("--days", metavar="D", help="Days at these rates.")] = 0.0,
    heterogeneity: Annotated[
        list[str] | None,
        typer.Option(
            "--heterogeneity",
            metavar="RECIPE",
            help="Uneven bandwidths or devices, such as log-uniform:0.5,2. May be given several "
            "times; applied in order.",
        ),
    ] = None,
    connected: Annotated[
        bool,
        typer.Option("--connected", help="Draw failures until what is left is strongly connected."),
    ] = False,
    tenants: Annotated[
        str | None,
        typer.Option(
            "--tenants",
            metavar="RECIPE",
            help="Collective instance: groups of NPUs that run it at the same time, such as "
            "contiguous:4, random:4,size=8 or overlapping:2.",
        ),
    ] = None,
    sizes: Annotated[
        str | None,
        typer.Option(
            "--sizes",
            metavar="LIST",
            help="Table: buffers to synthesize for. Default: 64KiB,1MiB,64MiB.",
        ),
    ] = None,
    members: Annotated[
        str | None,
        typer.Option(
            "--members", metavar="LIST", help="Table: sizes of groups. Default: 2,4,8,16."
        ),
    ] = None,
    time_limit: TimeLimitOption = None,
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", help="Seed of every random choice.")
    ] = 0,
    json: JsonOption = False,
) -> None:
    """Generate a topology, a cluster, a workload, an instance or a table of collectives.

    The same words and seed give the same bytes on every machine. Of two failure counts
    with one seed the smaller set is a part of the larger one. The options are a suffix
    of the name too: torus2d:8x8+fail-npus:3+seed:1 names the same network everywhere.

    A table of collectives has synthesized algorithms for the groups that plans have on a
    cluster, beside the formulas: `nestopt solve --set collectives=T.json` takes the
    cheapest of both. A --time-limit leaves out its largest groups.

    \b
    Examples:
      nestopt generate topology torus2d:8x8 --fail-npus 3 --connected -o t.json
      nestopt generate topology mesh2d:8x8 --seed 1 \\
          --heterogeneity log-uniform:0.5,2 -o m.json
      nestopt generate cluster tree:8x4x16 --fail-rates llama3 --days 9 -o c.json
      nestopt generate workload random-dag:40,width=4 --seed 7 -o w.json
      nestopt generate instance all-gather@torus2d:8x8 --fail-npus 2 -o i.json
      nestopt generate collective-table h100-spineleaf-64 \\
          --members 2,4,8 -o t.json

    \b
    Exit status:
      0  generated and written
      1  the parameters do not fit the family
      2  wrong command line
    """
    for option, number in (
        ("--fail-npus", fail_npus),
        ("--fail-links", fail_links),
        ("--days", days),
        ("--seed", seed),
    ):
        if not number >= 0:
            raise UsageError(f"{option} {number}: expected 0 or more")
    if (fail_rates is None) != (days == 0):
        raise UsageError("--fail-rates and --days go together")
    target = writable("--output", output, (".json",))
    of_table = {"--sizes": sizes, "--members": members, "--time-limit": time_limit}
    options = Options(
        seed=seed,
        heterogeneity=tuple(heterogeneity or ()),
        fail_npus=fail_npus,
        fail_links=fail_links,
        fail_groups=tuple(fail_group or ()),
        fail_rates=fail_rates,
        days=days,
        connected=connected,
    )
    if kind not in (*KINDS, TABLE):
        raise unknown_name("kind", kind, (*KINDS, TABLE))
    if kind == TABLE:
        if replace(options, seed=0) != Options() or tenants is not None:
            raise UsageError(f"a {TABLE} takes --sizes, --members, --time-limit and --seed")
        data, notes = make_table(spec, sizes, members, time_limit, seed)
    else:
        for option, text in of_table.items():
            if text is not None:
                raise UsageError(f"{option} goes with a {TABLE}, not with a {kind}")
        made = make(kind, spec, options, tenants=tenants)
        data, notes = made.data, made.notes
    write_json(target, data)
    summary = {"name": data["name"], "sha256": sha256_of(data)}
    if json:
        print_json({"schema": SCHEMA, "kind": kind, "written": output} | summary | notes)
        return
    for key, value in (summary | notes).items():
        print(f"{key.replace('_', ' '):<16} {_shown(value)}")
    note(f"wrote {target}")


def _shown(value: Any) -> str:
    """A note for people: a list by its length and first members."""
    if not isinstance(value, list):
        return f"{value:.6g}" if isinstance(value, float) else str(value)
    if len(value) <= MOST_SHOWN:
        return ", ".join(map(str, value)) or "none"
    return f"{', '.join(map(str, value[:MOST_SHOWN]))}, ... ({len(value)} in all)"
