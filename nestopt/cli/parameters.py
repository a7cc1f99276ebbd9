"""Arguments and options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = [
    "CalibrationOption",
    "ClusterOption",
    "CollectiveOption",
    "FailOption",
    "InstanceArgument",
    "JsonOption",
    "ObjectiveOption",
    "ResultArgument",
    "SettingOption",
    "SpaceOption",
    "ThreadsOption",
    "TimeLimitOption",
    "TopologyOption",
    "WorkloadOption",
]

InstanceArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="INSTANCE",
        help="Instance file of either problem, or a name of `nestopt library list`; or name its "
        "two parts with the options.",
        show_default=False,
    ),
]
ResultArgument = Annotated[
    str, typer.Argument(metavar="RESULT.json", help="File that `nestopt solve --output` wrote.")
]
WorkloadOption = Annotated[
    str | None,
    typer.Option(
        "--workload",
        metavar="W",
        help="Placement: what is trained, such as gpt3-175b; a library name or a file.",
    ),
]
ClusterOption = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="C",
        help="Placement: on what; a library name or a file. With model=max-load ACCELERATORS+CPUS "
        "(6+1), with model=piper DEVICESxMEMORY (64x8GiB), or `file` for what W says.",
    ),
]
CollectiveOption = Annotated[
    str | None,
    typer.Option(
        "--collective",
        metavar="K",
        help="Collective: the pattern, such as all-gather; a library name or a file.",
    ),
]
TopologyOption = Annotated[
    str | None,
    typer.Option(
        "--topology",
        metavar="T",
        help="Collective: the network, such as mesh2d:8x8; a library name or a file.",
    ),
]
FailOption = Annotated[
    str | None,
    typer.Option(
        "--fail",
        metavar="N,N,...",
        help="Numbers of devices (NPUs) that have failed, such as 13,200 or 0-7; the same as "
        "+fail:13:200 behind the name of the cluster or topology.",
    ),
]
ObjectiveOption = Annotated[
    str | None,
    typer.Option(
        "--objective",
        metavar="NAME",
        help="Placement: what to minimize, iteration-time (seconds per training iteration, the "
        "default) or bottleneck (the slowest stage; the only one with model=max-load and "
        "model=piper). Collectives: makespan.",
    ),
]
SpaceOption = Annotated[
    str | None,
    typer.Option(
        "--space",
        metavar="NAME",
        help="Placement: which plans count. A name (full, the default; 4d, megatron-core, "
        "torchtitan, default-1), a structure (structured: every stage on a run of devices, its "
        "axes in any order; contiguous: in the usual one; general: any devices), or both; full and "
        "4d are structured, the others contiguous. `--set tensor=1,2` and the like narrow it.",
    ),
]
CalibrationOption = Annotated[
    str | None,
    typer.Option(
        "--calibration",
        metavar="FILE",
        help="Parameters of devices and frameworks: a file of `nestopt calibrate`, or a set's name "
        "(nestopt-1, nestopt-2). Default: nestopt-2.",
    ),
]
SettingOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="A setting of the instance or of the method; may be given several times. "
        "`nestopt methods` lists the keys. Quantities carry their unit: size=16MiB.",
    ),
]
TimeLimitOption = Annotated[
    str | None,
    typer.Option(
        "--time-limit",
        metavar="TIME",
        help="Stop after this wall-clock time: a number of seconds, or text with a unit "
        "('90 s', '5 min'). Default: none.",
    ),
]
ThreadsOption = Annotated[
    int | None,
    typer.Option(
        "--threads", metavar="N", help="Threads to use. Default: all that this process may use."
    ),
]
JsonOption = Annotated[
    bool,
    typer.Option("--json", help="Print exactly one JSON object on stdout, with its `schema`."),
]
