"""``nestopt export``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nestopt.cli.inputs import parse_limit, parse_settings, writable
from nestopt.cli.launch import export_launch
from nestopt.cli.output import note
from nestopt.cli.parameters import TimeLimitOption
from nestopt.collective.model.topology import Topology
from nestopt.core.errors import UsageError, unknown_name
from nestopt.core.io import read_json
from nestopt.instances.network import network_of
from nestopt.instances.readers import FORMATS as READ
from nestopt.instances.readers import write
from nestopt.instances.topologies import network_by_name
from nestopt.interop.formats import FORMATS, export_solution

__all__ = ["export_file"]

NETWORKS = ("simai", "ns3", "sccl", "teccl", "graphml")


def export_file(
    format_name: Annotated[
        str,
        typer.Argument(
            metavar="FORMAT",
            help="A schedule: msccl-xml, mscclpp-plan, chakra. A schedule or a plan: perfetto, "
            "csv, parquet. A plan: launch. A topology: simai, ns3, sccl, teccl, graphml.",
        ),
    ],
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="The result file of a schedule or plan; or a topology, of the library "
            "(mesh2d:8x8) or a file.",
        ),
    ],
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Where the result goes; a directory for launch and chakra.",
        ),
    ],
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="What the schedule does not say, such as proto=LL; may be given several times. A "
            "wrong key lists the right ones.",
        ),
    ] = None,
    framework: Annotated[
        str | None,
        typer.Option(
            "--for",
            metavar="NAME",
            help="Format launch: megatron, megatron-bridge, torchtitan, deepspeed, nanotron or "
            "jax-mesh.",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            metavar="M",
            help="Format launch: the architecture, a library workload or config.json,seq=N,batch=B "
            "(default: the plan's workload).",
        ),
    ] = None,
    time_limit: TimeLimitOption = None,
) -> None:
    """Write a schedule, a plan or a topology in the format of another tool.

    What the format cannot express is an error that says why, never dropped. A way
    through switches becomes one transfer between NPUs. A plan that a framework cannot
    launch is told, with the best plan found that it can, and that one is written.

    \b
    Examples:
      nestopt export msccl-xml ar.json -o ar.xml --set inplace=yes --set proto=LL
      nestopt export mscclpp-plan ar.json -o ar-plan.json
      nestopt export chakra ag.json -o traces/
      nestopt export perfetto plan.json -o trace.json
      nestopt export parquet ag.json -o sends.parquet
      nestopt export launch plan.json --for megatron -o job/
      nestopt export graphml torus2d:4x4 -o torus.graphml

    \b
    Exit status:
      0  written
      1  the format cannot express the source, or a package is missing
      2  wrong command line
      5  the schedule is wrong
    """
    if format_name == "launch":
        if setting:
            raise UsageError("--set does not belong to the format launch")
        if framework is None:
            raise UsageError("export launch needs --for: the framework that is to launch the plan")
        limit = 60.0 if time_limit is None else parse_limit(time_limit)
        export_launch(source, framework, output, model, limit)
        return
    if framework is not None or model is not None or time_limit is not None:
        raise UsageError("--for, --model and --time-limit belong to the format launch")
    settings = parse_settings(setting)
    if format_name in FORMATS:
        target = Path(output) if FORMATS[format_name].folder else writable("--output", output)
        for path in export_solution(format_name, source, target, settings):
            note(f"wrote {path}")
        return
    if format_name not in NETWORKS:
        if format_name in READ:
            raise UsageError(f"{format_name} files are only read")
        raise unknown_name("format", format_name, (*FORMATS, *NETWORKS, "launch"))
    if settings:
        raise UsageError(f"--set does not belong to the format {format_name}")
    _export_topology(format_name, source, output)


def _export_topology(format_name: str, source: str, output: str) -> None:
    target = writable("--output", output)
    if source.endswith(".json") or Path(source).is_file():
        network = network_of(Topology.from_json(read_json(source), file=source))
    else:
        network = network_by_name(source)
    for path in write(format_name, network, target):
        note(f"wrote {path}")
