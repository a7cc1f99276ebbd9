"""``nestopt sweep``."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nestopt.cli.parameters import JsonOption, SettingOption
from nestopt.core.errors import UsageError

if TYPE_CHECKING:
    from nestopt.collective.sweep import SweepRow

__all__ = ["sweep"]

SCHEMA = "nestopt.sweep/1"


def sweep(
    collective: Annotated[
        str, typer.Option("--collective", metavar="K", help="Pattern, such as all-reduce.")
    ],
    topology: Annotated[
        str, typer.Option("--topology", metavar="T", help="Network: a name or a file.")
    ],
    sizes: Annotated[
        str,
        typer.Option(
            "--sizes", metavar="A..B", help="First and last buffer size; or a list with commas."
        ),
    ] = "1KiB..1GiB",
    factor: Annotated[
        int, typer.Option("--factor", metavar="N", help="Each size is N times the one before.")
    ] = 4,
    chunks: Annotated[
        str,
        typer.Option("--chunks", metavar="N,...", help="Numbers of chunks an NPU to try."),
    ] = "1,4",
    method: Annotated[
        str | None,
        typer.Option("--methods", metavar="M,...", help="Methods to try. Default: all quick ones."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Seed of greedy.")] = 0,
    setting: SettingOption = None,
    json: JsonOption = False,
) -> None:
    """Best schedule by buffer size: method, time, bandwidths and bound.

    The size is the buffer of one NPU, as benchmarks of collectives count it. algbw is
    size over time; busbw is comparable with the links' bandwidth. Latencies decide for
    small buffers: `alpha=hardware` gives a machine those of its links.

    \b
    Examples:
      nestopt sweep --collective all-reduce --topology dgx-h100:1x8,alpha=hardware
      nestopt sweep --collective all-gather --topology ring:8,alpha=1us
          --sizes 1KiB..1MiB --factor 2 --set sums=moved

    \b
    Exit status:
      0  the table was printed
      1  error in a file or name
      2  wrong command line
    """
    from nestopt.cli import inputs
    from nestopt.cli.compiling import announce_compilation
    from nestopt.cli.output import note, print_json
    from nestopt.collective.model.instance import LATENCY_MODELS, SUM_MODELS
    from nestopt.collective.model.topology import Topology
    from nestopt.collective.sweep import SWEEP_METHODS
    from nestopt.collective.sweep import sweep as rows_of
    from nestopt.core.io import names_file, read_json
    from nestopt.core.registry import named

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
    announce_compilation(quiet=json)
    if not json and not network.alpha_ps.any():
        note(f"all latencies of {topology} are 0; of machines, alpha=hardware gives those of links")
    made = []
    if not json:
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
        if not json:
            print(_text(row), flush=True)
    if json:
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
    from nestopt.collective.model.collective import PATTERNS
    from nestopt.core.errors import unknown_name

    if name not in PATTERNS:
        if name.partition(":")[0] in PATTERNS:
            raise UsageError(f"--collective {name}: a pattern alone; --sizes says how much")
        raise unknown_name("collective", name, PATTERNS)
    return name


def _sizes(text: str, factor: int) -> list[int]:
    from nestopt.collective.sweep import sizes_between
    from nestopt.core.units import parse_bytes

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
    from nestopt.core.units import format_bytes, format_seconds

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
