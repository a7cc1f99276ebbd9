"""``nestopt import``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from nestopt.cli.inputs import parse_limit, parse_settings, writable
from nestopt.cli.launch import import_launch
from nestopt.cli.output import note, print_json
from nestopt.cli.parameters import ClusterOption, JsonOption, TimeLimitOption
from nestopt.core.errors import InputError, UsageError, unknown_name
from nestopt.core.io import write_json
from nestopt.core.units import format_rate, parse_bandwidth, parse_bytes
from nestopt.instances.clustering import cluster_of
from nestopt.instances.readers import FORMATS, read
from nestopt.instances.trees import device_type

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nestopt.instances.network import Network

__all__ = ["import_file"]

SCHEMA = "nestopt.import/1"
FORMS = ("topology", "cluster")
JOBS = {"dnn-partitioning": (), "piper": ("devices", "memory", "bandwidth", "micro-batches")}


def import_file(
    format_name: Annotated[
        str,
        typer.Argument(
            metavar="FORMAT",
            help="nvidia-smi, nccl, astra-sim, simai, ns3, taccl, sccl, teccl, slurm, topograph, "
            "graphml, dnn-partitioning or piper; or launch, a Megatron argument line or a "
            "torchtitan job file.",
        ),
    ],
    file: Annotated[str, typer.Argument(metavar="FILE", help="The file to read.")],
    output: Annotated[
        str | None,
        typer.Option(
            "--output", "-o", metavar="F.json", help="Where the result goes (not with launch)."
        ),
    ] = None,
    form: Annotated[
        str,
        typer.Option(
            "--as",
            metavar="FORM",
            help="What a network becomes: topology, or cluster (a tree of levels by widest-path "
            "clustering).",
        ),
    ] = FORMS[0],
    device: Annotated[
        str | None,
        typer.Option(
            "--device", metavar="NAME", help="Form cluster: the type of its devices, such as h100."
        ),
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="What the format does not say, such as gpus=8 or nic=50GB/s; may be given several "
            "times. A wrong key lists the right ones. Format launch: a variable of the script.",
        ),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Make an error of whatever looks odd in the file.")
    ] = False,
    cluster: ClusterOption = None,
    world: Annotated[
        int | None,
        typer.Option(
            "--world", metavar="N", min=1, help="Format launch: processes, if the file is silent."
        ),
    ] = None,
    time_limit: TimeLimitOption = None,
    json: JsonOption = False,
) -> None:
    """Read a file of another tool as a topology, a cluster or an instance.

    With the format launch: price what you run today on --cluster, say whether it fits the memory,
    solve for the best plan and name the arguments to change.

    Units are each format's own and never guessed. What is odd but readable (a header
    that understates the number of links, say) is told on stderr. The totals of what was
    read are printed, so that they can be compared with what the machine should have.

    \b
    Examples:
      nestopt import nvidia-smi topo.txt --set gpu=h100 -o node.json
      nestopt import slurm topology.conf --set gpus=8 --set nvlink=450GB/s \\
          --set nic=50GB/s --set uplink=400GB/s -o pod.json
      nestopt import graphml net.graphml --as cluster --device h100 -o c.json
      nestopt import dnn-partitioning bert24_inference.json -o bert24.json
      nestopt import piper bert32a100.json --set devices=8 -o bert32.json
      nestopt import launch pretrain.sh --cluster dgx-h100-64 --set NNODES=8

    \b
    Exit status:
      0  read and written
      1  the file is malformed (file, line and field are named)
      2  wrong command line
    """
    if format_name == "launch":
        if cluster is None:
            raise UsageError("import launch needs --cluster, where the job runs")
        limit = 60.0 if time_limit is None else parse_limit(time_limit)
        import_launch(file, cluster, world, parse_settings(setting), limit, as_json=json)
        return
    if cluster is not None or world is not None or time_limit is not None:
        raise UsageError("--cluster, --world and --time-limit belong to the format launch")
    if output is None:
        raise UsageError(f"import {format_name} needs --output F.json")
    if form not in FORMS:
        raise unknown_name("form", form, FORMS)
    if (device is not None) != (form == "cluster"):
        raise UsageError("--as cluster and --device go together")
    target = writable("--output", output, (".json",))
    settings = parse_settings(setting)
    complaints: tuple[str, ...] = ()
    if format_name in JOBS:
        if form != FORMS[0]:
            raise UsageError(f"{format_name} holds no network for --as")
        _refuse_unknown(format_name, settings, JOBS[format_name])
        data, summary = _read_job(format_name, file, settings)
    else:
        network, complaints = _read_network(format_name, file, settings, strict=strict)
        summary = _totals(network)
        data = _cluster(network, device) if device else network.topology().to_json()
    for complaint in complaints:
        note(f"warning: {complaint}")
    write_json(target, data)
    if json:
        print_json(
            {"schema": SCHEMA, "file": file, "format": format_name, "written": output}
            | {"totals": summary, "complaints": list(complaints)}
        )
        return
    for key, value in summary.items():
        print(f"{key.replace('_', ' '):<16} {_shown(key, value)}")
    note(f"wrote {target}")


def _read_network(
    format_name: str, file: str, settings: dict[str, str], *, strict: bool
) -> tuple[Network, tuple[str, ...]]:
    if format_name not in FORMATS:
        raise unknown_name("format", format_name, (*FORMATS, *JOBS))
    _refuse_unknown(format_name, settings, FORMATS[format_name].settings)
    reading = read(format_name, file, settings, strict=strict)
    return reading.network, reading.complaints


def _refuse_unknown(format_name: str, settings: dict[str, str], known: Sequence[str]) -> None:
    for key in settings:
        if key not in known:
            raise unknown_name(f"setting of {format_name}", key, known)


def _read_job(
    format_name: str, file: str, settings: dict[str, str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """An instance of one of the published partitioning problems."""
    if format_name == "piper":
        from nestopt.instances.readers.piper import read_piper

        memory, bandwidth = settings.get("memory"), settings.get("bandwidth")
        planning = read_piper(
            file,
            devices=_count(settings, "devices"),
            memory=None if memory is None else parse_bytes(memory, "--set memory"),
            bandwidth=None if bandwidth is None else parse_bandwidth(bandwidth, "--set bandwidth"),
            micro_batches=_count(settings, "micro-batches"),
        )
        return planning.to_json(), {
            "layers": len(planning.layers),
            "devices": planning.devices,
            "micro_batches": planning.micro_batches,
        }
    from nestopt.instances.readers.dnn_partitioning import read_dnn_partitioning

    partitioning = read_dnn_partitioning(file)
    return partitioning.to_json(), {
        "operators": len(partitioning.operators),
        "edges": len(partitioning.edges),
        "accelerators": partitioning.accelerators,
        "cpus": partitioning.cpus,
    }


def _count(settings: dict[str, str], key: str) -> int | None:
    text = settings.get(key)
    if text is None:
        return None
    if not text.isdecimal() or int(text) < 1:
        raise InputError(f"{text!r}; expected a positive integer", field=f"--set {key}")
    return int(text)


def _cluster(network: Network, device: str) -> dict[str, Any]:
    cluster, _ = cluster_of(network, device_type(device, "--device"))
    return cluster.to_json()


def _totals(network: Network) -> dict[str, Any]:
    topology = network.topology()
    return {
        "npus": len(network.npus),
        "switches": network.num_nodes - len(network.npus),
        "links": network.num_links,
        "total_bandwidth": float(topology.bandwidth.sum()),
    }


def _shown(key: str, value: Any) -> str:
    return format_rate(value) if key == "total_bandwidth" else str(value)
