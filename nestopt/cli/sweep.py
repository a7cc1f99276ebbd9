"""``nestopt sweep``."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nestopt.cli import inputs
from nestopt.cli.compiling import announce_compilation
from nestopt.cli.costs import (
    CheckpointOption,
    FailuresOption,
    PowerOption,
    PriceOption,
    RepairOption,
    RestartOption,
    SparesOption,
    TokensOption,
    terms_of,
)
from nestopt.cli.output import note, print_json
from nestopt.cli.parameters import (
    CollectiveOption,
    JsonOption,
    SettingOption,
    SpaceOption,
    TimeLimitOption,
    TopologyOption,
    WorkloadOption,
)
from nestopt.cli.sweep_plans import PlanSweep, sweep_plans
from nestopt.collective.model.collective import PATTERNS
from nestopt.collective.model.instance import LATENCY_MODELS, SUM_MODELS
from nestopt.collective.model.topology import Topology
from nestopt.collective.sweep import SWEEP_METHODS, sizes_between
from nestopt.collective.sweep import sweep as rows_of
from nestopt.core.errors import UsageError, unknown_name
from nestopt.core.io import names_file, read_json
from nestopt.core.registry import named
from nestopt.core.units import format_bytes, format_seconds, parse_bytes

if TYPE_CHECKING:
    from nestopt.collective.sweep import SweepRow

__all__ = ["sweep"]

SCHEMA = "nestopt.sweep/1"


def sweep(
    collective: CollectiveOption = None,
    topology: TopologyOption = None,
    workload: WorkloadOption = None,
    cluster: Annotated[
        list[str] | None,
        typer.Option(
            "--cluster",
            metavar="C",
            help="Placement: a cluster's name or file; may be given several times. {N} in a name "
            "stands for each of --sizes.",
        ),
    ] = None,
    sizes: Annotated[
        str | None,
        typer.Option(
            "--sizes",
            metavar="A..B",
            help="First and last size, or a list with commas: the buffer's bytes (default "
            "1KiB..1GiB), or with --workload the devices of the cluster.",
        ),
    ] = None,
    factor: Annotated[
        int | None,
        typer.Option(
            "--factor",
            metavar="N",
            help="Each size is N times the one before. Default: 4 for buffers, 2 for clusters.",
        ),
    ] = None,
    batches: Annotated[
        str | None,
        typer.Option(
            "--batches",
            metavar="B,...",
            help="Placement: global batches, in samples. Default: the workload's.",
        ),
    ] = None,
    chunks: Annotated[
        str | None,
        typer.Option(
            "--chunks",
            metavar="N,...",
            help="Collective: numbers of chunks an NPU to try. Default: 1,4.",
        ),
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(
            "--methods",
            metavar="M,...",
            help="Methods to try. Default: all quick ones; for placement dp.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Seed of random choices.")] = 0,
    setting: SettingOption = None,
    space: SpaceOption = None,
    time_limit: TimeLimitOption = None,
    tokens: TokensOption = None,
    price: PriceOption = None,
    power: PowerOption = None,
    failures: FailuresOption = None,
    checkpoint: CheckpointOption = None,
    restart: RestartOption = None,
    repair: RepairOption = None,
    spares: SparesOption = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="F.jsonl",
            help="Placement: keep each cell here as it is solved; cells that stand there are not "
            "solved again.",
        ),
    ] = None,
    picture: Annotated[
        str | None,
        typer.Option(
            "--plot", metavar="F.pdf", help="Placement: draw the front here (.pdf, .png or .svg)."
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Collectives by buffer size, or plans by cluster and batch: days against money.

    Of a collective: method, time, bandwidths and bound by the buffer of one NPU, as
    benchmarks of collectives count it. algbw is size over time; busbw is comparable with
    the links' bandwidth. Latencies decide for small buffers: `alpha=hardware` gives a
    machine those of its links.

    Of a workload: the best plan for each cluster and global batch, what training on
    --tokens takes, and the Pareto front (*) of days and device-hours, or money with
    --price. --time-limit holds for each cell and method. A stopped sweep goes on from
    its --output file; other terms (tokens, price, failures) need no new solution.

    \b
    Examples:
      nestopt sweep --collective all-reduce --topology dgx-h100:1x8,alpha=hardware
      nestopt sweep --collective all-gather --topology ring:8,alpha=1us
          --sizes 1KiB..1MiB --factor 2 --set sums=moved
      nestopt sweep --workload llama3-70b --cluster dgx-h100-{N} --sizes 64..512
          --batches 512,1024 --tokens 15T --price 2.5 --failures llama3
          --time-limit "60 s" -o sweep.jsonl --plot front.pdf

    \b
    Exit status:
      0  the table was printed
      1  error in a file or name
      2  wrong command line
    """
    words = {
        "--workload": workload, "--cluster": cluster, "--batches": batches, "--space": space,
        "--time-limit": time_limit, "--tokens": tokens, "--price": price, "--power": power,
        "--failures": failures, "--checkpoint": checkpoint, "--restart": restart,
        "--repair": repair, "--spares": spares, "--output": output, "--plot": picture,
    }  # fmt: skip
    if workload is None and not cluster:
        if collective is None or topology is None:
            raise UsageError("give --collective and --topology, or --workload and --cluster")
        strange = next((flag for flag, word in words.items() if word), None)
        if strange is not None:
            raise UsageError(f"{strange} belongs to a sweep of --workload and --cluster")
        _sweep_collective(
            collective, topology, sizes or "1KiB..1GiB", 4 if factor is None else factor,
            chunks or "1,4", method, seed, setting, as_json=json,
        )  # fmt: skip
        return
    for flag, word in (
        ("--collective", collective), ("--topology", topology), ("--chunks", chunks)
    ):  # fmt: skip
        if word is not None:
            raise UsageError(f"{flag} belongs to a sweep of a collective")
    if workload is None or not cluster:
        raise UsageError("a sweep of plans needs --workload and --cluster")
    if tokens is None:
        raise UsageError("a sweep of plans needs --tokens, such as --tokens 15T")

    terms = terms_of(
        tokens, price=price, power=power, failures=failures, checkpoint=checkpoint,
        restart=restart, repair=repair, spares=spares,
    )  # fmt: skip
    assert terms is not None
    asked = PlanSweep(
        workload, tuple(cluster), sizes, 2 if factor is None else factor, batches,
        tuple((method or "dp").split(",")), space, setting or [], time_limit, seed,
    )  # fmt: skip
    sweep_plans(asked, terms, output, picture, as_json=json)


def _sweep_collective(
    collective: str,
    topology: str,
    sizes: str,
    factor: int,
    chunks: str,
    method: str | None,
    seed: int,
    setting: list[str] | None,
    *,
    as_json: bool,
) -> None:
    """The sweep of a collective by buffer size."""
    settings = inputs.parse_settings(setting)
    known = {"latency": LATENCY_MODELS, "sums": SUM_MODELS}
    for key, value in settings.items():
        if key not in known or value not in known[key]:
            expected = "; ".join(f"{k}={'|'.join(v)}" for k, v in known.items())
            raise UsageError(f"--set {key}={value}: expected {expected}")
    methods = tuple(method.split(",")) if method else SWEEP_METHODS
    for name in methods:
        if name not in SWEEP_METHODS:
            raise UsageError(f"--methods {name}: expected some of {', '.join(SWEEP_METHODS)}")
    if not all(text.isdigit() and int(text) > 0 for text in chunks.split(",")):
        raise UsageError(f"--chunks {chunks}: expected positive whole numbers, such as 1,4")
    wanted = _sizes(sizes, factor)
    pattern = _pattern(collective)
    network: Any = (
        Topology.from_json(read_json(topology), file=topology)
        if names_file(topology)
        else named("topology", topology)
    )
    announce_compilation(quiet=as_json)
    if not as_json and not network.alpha_ps.any():
        note(f"all latencies of {topology} are 0; of machines, alpha=hardware gives those of links")
    made = []
    if not as_json:
        print(f"{pattern} on {network.name}, {len(network.npus)} NPUs")
        print(_line("size", "method", "k", "time", "algbw", "busbw", "bound", "gap"))
        print(_line("", "", "", "", "GB/s", "GB/s", "", "to bound"))
    for row in rows_of(
        network,
        pattern,
        wanted,
        chunks=[int(text) for text in chunks.split(",")],
        methods=methods,
        latency=settings.get("latency", "pipelined"),
        sums=settings.get("sums", "copied"),
        seed=seed,
    ):
        made.append(row)
        if not as_json:
            print(_text(row), flush=True)
    if as_json:
        print_json(
            {
                "schema": SCHEMA,
                "collective": pattern,
                "topology": network.name,
                "npus": len(network.npus),
                "latency": settings.get("latency", "pipelined"),
                "sums": settings.get("sums", "copied"),
                "rows": [asdict(row) for row in made],
            }
        )


def _pattern(name: str) -> str:
    if name not in PATTERNS:
        if name.partition(":")[0] in PATTERNS:
            raise UsageError(f"--collective {name}: a pattern alone; --sizes says how much")
        raise unknown_name("collective", name, PATTERNS)
    return name


def _sizes(text: str, factor: int) -> list[int]:
    def whole(part: str) -> int:
        value = parse_bytes(part.strip(), "--sizes")
        if value != int(value) or value < 1:
            raise UsageError(f"--sizes {part}: expected a positive whole number of bytes")
        return int(value)

    first, dots, last = text.partition("..")
    if dots:
        return sizes_between(whole(first), whole(last), factor)
    return [whole(part) for part in text.split(",")]


def _line(*cells: str) -> str:
    widths = (9, -18, 2, 9, 8, 8, 9, 8)
    return " ".join(f"{c:<{-w}}" if w < 0 else f"{c:>{w}}" for c, w in zip(cells, widths))


def _text(row: SweepRow) -> str:
    gap = 100 * (row.time_ps - row.bound_ps) / row.time_ps if row.time_ps else 0.0
    return _line(
        format_bytes(row.size),
        row.method,
        str(row.chunks),
        format_seconds(row.time_ps * 1e-12),
        _rate(row.algorithm_bandwidth),
        _rate(row.bus_bandwidth),
        format_seconds(row.bound_ps * 1e-12),
        "0" if gap == 0 else f"{gap:.1f} %",
    )


def _rate(rate: float) -> str:
    """GB/s with four digits, so that the column compares at a glance."""
    return f"{rate / 1e9:.4g}"
