"""Results of placement for people, in 80 columns."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from nestopt.core.units import format_bytes, format_seconds
from nestopt.placement.economics.report import mfu
from nestopt.placement.judge.check import Pricing, price
from nestopt.placement.model.of_result import instance_of
from nestopt.placement.model.plan import Plan
from nestopt.placement.partitioning.piper import PiperProblem
from nestopt.placement.show.orders import NOTE, has_other_orders, order_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import Console
    from rich.table import Table

    from nestopt.core.result import Result
    from nestopt.placement.model.cluster import Cluster
    from nestopt.placement.model.workload import Workload

__all__ = [
    "describe",
    "describe_maxload",
    "describe_piper",
    "mfu",
    "name_ranges",
    "number_ranges",
    "share_words",
    "utilization",
]

WIDTH = 80
MOST_ROWS = 40


def number_ranges(numbers: Iterable[int]) -> list[str]:
    """Numbers as ranges: 0, 1, 2, 7 become ``0-2`` and ``7``."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return [str(a) if a == b else f"{a}-{b}" for a, b in runs]


def name_ranges(names: Sequence[str]) -> list[str]:
    """Names with numbers at their ends as ranges: ``block 0-11``; order kept."""
    parts: list[tuple[str, list[int]]] = []
    for name in names:
        match = re.fullmatch(r"(.*?)(0|[1-9]\d{0,8})", name)
        stem, number = (match[1], int(match[2])) if match else (name, -1)
        if match and parts and parts[-1][0] == stem and parts[-1][1] == [number - 1]:
            parts[-1][1].append(number)
        elif match and parts and parts[-1][0] == stem and parts[-1][1][-1:] == [number - 1]:
            parts[-1][1][-1] = number
        else:
            parts.append((stem, [number] if match else []))
    return [stem + "-".join(str(n) for n in ends) for stem, ends in parts]


def _number(count: int, noun: str) -> str:
    plural = "es" if noun.endswith("ch") else "s"
    return f"{count} {noun}{'' if count == 1 else plural}"


def _shorten(parts: Sequence[str], most: int) -> str:
    """As many parts as fit into `most` characters, and how many were left out."""
    shown = ""
    for index, part in enumerate(parts):
        longer = f"{shown}, {part}" if shown else part
        rest = len(parts) - index - 1
        if index and len(longer) + (len(f", +{rest} more") if rest else 0) > most:
            return f"{shown}, +{len(parts) - index} more"
        shown = longer
    return shown


@dataclass(slots=True)
class _Run:
    """Consecutive stages that look alike."""

    first: int
    last: int

    def label(self) -> str:
        """Their numbers."""
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


def _share(pricing: Pricing, stage: int) -> float:
    memory, usable = pricing.tightest(stage)
    return 100 * memory / usable if usable > 0 else 100.0


def _runs(workload: Workload, plan: Plan, pricing: Pricing, axes: Sequence[str]) -> list[_Run]:
    def look(index: int) -> tuple[Any, ...]:
        stage, cost = plan.stages[index], pricing.stages[index]
        kinds = sorted(workload.operators[i].kind for i in stage.operators)
        seconds = format_seconds(cost.seconds), format_seconds(cost.sync)
        return stage.config, kinds, *seconds, axes[index]

    runs: list[_Run] = []
    for index in range(len(plan.stages)):
        if runs and look(runs[-1].first) == look(index):
            runs[-1].last = index
        else:
            runs.append(_Run(index, index))
    return runs


def _spread(values: Sequence[str]) -> str:
    low, high = values[0], values[-1]
    return low if low == high else f"{low}..{high}"


def _stage_table(workload: Workload, plan: Plan, pricing: Pricing, axes: Sequence[str]) -> Table:
    """The stages; `axes` are the orders of their axes, shown if there are any."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("stage", no_wrap=True)
    table.add_column("layers", overflow="fold")
    alike = len({stage.config for stage in plan.stages}) == 1
    if not alike:
        table.add_column("config", overflow="fold")
    table.add_column("devices", overflow="fold")
    if any(axes):
        table.add_column("axes", overflow="fold")
    table.add_column("t_q", justify="right", no_wrap=True)
    table.add_column("sync", justify="right", no_wrap=True)
    table.add_column("memory %", justify="right", no_wrap=True)
    runs = _runs(workload, plan, pricing, axes)
    left_out = len(runs) - MOST_ROWS
    for index, run in enumerate(runs):
        if left_out > 0 and MOST_ROWS // 2 <= index < len(runs) - MOST_ROWS // 2:
            if index == MOST_ROWS // 2:
                table.add_row("...", f"{left_out} rows left out")
            continue
        cells = _cells(run, workload, plan, pricing)
        if any(axes):
            alike_stages = plan.stages[run.first : run.last + 1]
            used = np.sort(np.concatenate([stage.devices.ravel() for stage in alike_stages]))
            cells[3] = _shorten(number_ranges(used.tolist()), 20)
            cells.insert(4, axes[run.first])
        if alike:
            del cells[2]
        table.add_row(*(escape(cell) for cell in cells))
    return table


def _cells(run: _Run, workload: Workload, plan: Plan, pricing: Pricing) -> list[str]:
    stages = plan.stages[run.first : run.last + 1]
    costs = pricing.stages[run.first : run.last + 1]
    names = [workload.operators[i].name for stage in stages for i in stage.operators]
    layers = _shorten(name_ranges(names), 40)
    if len(stages) > 1:
        layers += f" ({len(stages[0].operators)} each)"
    devices = [d for stage in stages for d in stage.devices.ravel().tolist()]
    shares = sorted(_share(pricing, q) for q in range(run.first, run.last + 1))
    return [
        run.label(),
        layers,
        stages[0].config.label(),
        _shorten(number_ranges(devices), 20),
        format_seconds(costs[0].seconds),
        format_seconds(costs[0].sync),
        _spread([f"{shares[0]:.0f}", f"{shares[-1]:.0f}"]),
    ]


def _row(console: Console, key: str, text: str) -> None:
    """A term and its text, wrapped below itself."""
    from textwrap import wrap

    for number, line in enumerate(wrap(text, min(WIDTH, console.width) - 13) or [""]):
        console.print(f"  {key if number == 0 else '':<11}{line}", markup=False)


def _verdict(result: Result, over: str) -> str:
    reason, limit = result.termination.reason.value, result.termination.limit.value
    if reason == "optimal":
        proved = " within the gap asked for" if result.gap and result.gap > 1e-6 else ""
        return f"OPTIMAL{proved}{over}"
    if reason == "feasible":
        ended = {"iterations": "its search ended", "interrupted": "interrupted"}
        return f"FEASIBLE{over}, not proved optimal ({ended.get(limit, f'{limit} limit')})"
    if reason == "infeasible":
        return f"INFEASIBLE{over}: proved that no plan exists, because"
    return f"NO PLAN FOUND{over} ({limit} limit)" if reason == "no-solution" else reason.upper()


def _gap(result: Result) -> str:
    if not math.isfinite(result.bound):
        return "no bound"
    gap = result.gap
    proved = f"bound {format_seconds(result.bound)}"
    return proved if gap is None else f"{proved}, gap to bound {100 * max(gap, 0.0):.3g} %"


def _headline(result: Result, console: Console, over: str = "") -> None:
    reason = result.termination.reason.value
    colour = {"optimal": "bold green", "feasible": "bold yellow"}.get(reason, "bold red")
    name = result.instance.get("name", "placement")
    console.print(f"{name}, by {result.method} in {format_seconds(result.seconds)}", markup=False)
    console.print(_verdict(result, over), style=colour, markup=False)
    for line in result.infeasible_because:
        console.print(f"  {line}", markup=False)


def describe(result: Result, console: Console) -> None:
    """Print a result of the pipeline model.

    Verdict, iteration time, MFU, devices, and a table of stages in which runs of stages that look
    alike share a row.

    Parameters
    ----------
    result : Result
        Holds its instance.
    console : rich.console.Console
    """
    instance = instance_of(result)
    _headline(result, console, f" over space {instance.space.label}")
    if result.solution_json is None:
        console.print(_gap(result))
        return
    workload, cluster = instance.workload, instance.cluster
    plan = Plan.from_json(result.solution_json)
    pricing = price(workload, cluster, plan)
    seconds = pricing.iteration_time
    used = sum(stage.devices.size for stage in plan.stages)
    idle = len(cluster.alive) - used
    failed = f", {len(cluster.failed)} failed" if cluster.failed else ""
    chunks = f" x {plan.chunks} chunks" if plan.chunks > 1 else ""
    alike = len({stage.config for stage in plan.stages}) == 1
    fullest = max(range(len(plan.stages)), key=lambda q: _share(pricing, q))
    memory, usable = pricing.tightest(fullest)
    table = cluster.collectives
    beside = [("table", f"{_number(len(table.rows), 'row')} beside the formulas")] if table else []
    busy = utilization(workload, cluster, plan, seconds)
    axes = [""] * len(plan.stages)
    if has_other_orders(cluster, plan):
        axes = [order_words(cluster, stage) for stage in plan.stages]
        beside.append(("axes", NOTE))
    rows = [
        ("iteration", f"{format_seconds(seconds)}, {busy}"),
        ("bottleneck", f"{format_seconds(pricing.bottleneck)} a micro-batch"),
        ("proof", f"{_gap(result)} ({instance.objective})"),
        ("space", str(instance.space)),
        ("prices", instance.pricing),
        ("devices", f"{used} used, {idle} idle{failed}"),
        *_batch_rows(workload, plan, pricing),
        ("schedule", f"{plan.schedule}, {_number(len(plan.stages), 'stage')}{chunks}"),
        *([("config", f"{plan.stages[0].config.label()}, all stages")] if alike else []),
        *beside,
        ("memory", f"up to {format_bytes(memory)} of {format_bytes(usable)}"),
    ]  # fmt: skip
    for key, text in rows:
        _row(console, key, text)
    console.print()
    console.print(_stage_table(workload, plan, pricing, axes), width=min(WIDTH, console.width))


def _batch_rows(workload: Workload, plan: Plan, pricing: Pricing) -> list[tuple[str, str]]:
    """How the global batch is dealt to the replicas."""
    batch, samples = workload.global_batch, _number(plan.microbatch, "sample")
    if not plan.shares:
        each = _number(pricing.microbatches, "micro-batch")
        return [("batch", f"{batch} = {_number(plan.replicas, 'replica')} x {each} x {samples}")]
    all_of_them = _number(sum(plan.shares), "micro-batch")
    return [
        ("batch", f"{batch} = {all_of_them} x {samples}, unequal shares"),
        ("shares", share_words(plan.shares)),
    ]


def share_words(shares: Sequence[int]) -> str:
    """Shares in words: ``replicas 0-3 take 12 micro-batches each, replica 4 takes 5``."""
    by_share: dict[int, list[int]] = {}
    for replica, share in enumerate(shares):
        by_share.setdefault(share, []).append(replica)
    parts = []
    for share, replicas in by_share.items():
        who = ", ".join(number_ranges(replicas))
        takes = _number(share, "micro-batch")
        one = len(replicas) == 1
        parts.append(f"replica {who} takes {takes}" if one else f"replicas {who} take {takes} each")
    return "; ".join(parts)


def utilization(workload: Workload, cluster: Cluster, plan: Plan, seconds: float) -> str:
    """The MFU over the devices used, and over all alive ones where some stay idle."""
    used = mfu(workload, cluster, plan, seconds)
    if sum(stage.devices.size for stage in plan.stages) == len(cluster.alive):
        return f"MFU {100 * used:.1f} %"
    peak = sum(cluster.types[kind].peak for kind in cluster.type_of[cluster.alive].tolist())
    alive = workload.iteration_flops / (seconds * peak)
    return f"MFU {100 * used:.1f} % of the devices used, {100 * alive:.1f} % of all alive"


def _to_nine_digits(seconds: float) -> str:
    """A time for people, and in seconds as publications print it."""
    short, long = format_seconds(seconds), f"{seconds:.9g} s"
    return short if short == long else f"{short} ({long})"


def describe_maxload(result: Result, console: Console) -> None:
    """Print a result of the max-load model: verdict, largest load, and the devices' stages."""
    from rich.table import Table

    _headline(result, console)
    if result.objective is not None:
        console.print(f"  largest load {_to_nine_digits(result.objective)}", markup=False)
    console.print(f"  {_gap(result)}", markup=False)
    if result.solution_json is None:
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for column in ("stage", "device", "operators", "load", "memory"):
        table.add_column(column, justify="left" if column == "device" else "right")
    for index, stage in enumerate(result.solution_json["stages"]):
        table.add_row(
            str(index),
            stage["device"],
            str(len(stage["operators"])),
            format_seconds(stage["load"]),
            format_bytes(stage["memory"]),
        )
    console.print()
    console.print(table, width=min(WIDTH, console.width))


def describe_piper(result: Result, console: Console) -> None:
    """Print a result of Piper's model: verdict, time per sample, devices, and the stages.

    Parameters
    ----------
    result : Result
        Holds its instance.
    console : rich.console.Console
    """
    from rich.markup import escape
    from rich.table import Table

    _headline(result, console)
    if result.solution_json is None:
        console.print(_gap(result))
        return
    problem = PiperProblem.from_json(result.instance["data"])
    stages, used = result.solution_json["stages"], result.solution_json["devices"]
    variants = [_piper_variants(problem, stage) for stage in stages]
    known = list(dict.fromkeys(name for names in variants for name in names))
    rows = [
        ("sample", _to_nine_digits(max(stage["time"] for stage in stages))),
        ("proof", f"{_gap(result)} (bottleneck)"),
        ("devices", f"{used} used, {problem.devices - used} idle; a stage takes data x tensor"),
        ("batch", _number(problem.micro_batches, "micro-batch")),
        ("memory", f"up to {format_bytes(max(stage['memory'] for stage in stages))} of "
         f"{format_bytes(problem.memory)}"),
        ("variants", " + ".join(known)),
    ]  # fmt: skip
    for key, text in rows:
        _row(console, key, text)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("stage", no_wrap=True)
    table.add_column("layers", overflow="ellipsis", no_wrap=True, max_width=32)
    table.add_column("devices", justify="right", no_wrap=True)
    table.add_column("variants", overflow="fold")
    table.add_column("a sample", justify="right", no_wrap=True)
    table.add_column("memory", justify="right", no_wrap=True)
    left_out = len(stages) - MOST_ROWS
    for index, (stage, names) in enumerate(zip(stages, variants)):
        if left_out > 0 and MOST_ROWS // 2 <= index < len(stages) - MOST_ROWS // 2:
            if index == MOST_ROWS // 2:
                table.add_row("...", f"{left_out} rows left out")
            continue
        table.add_row(
            str(index),
            escape(_piper_layers(problem, stage)),
            f"{stage['data']} x {stage['tensor']}",
            " + ".join(str(names[name]) for name in known),
            format_seconds(stage["time"]),
            format_bytes(stage["memory"]),
        )
    console.print()
    console.print(table, width=min(WIDTH, console.width))


def _piper_layers(problem: PiperProblem, stage: dict[str, Any]) -> str:
    """Names of a stage's layers, the most frequent first."""
    names = Counter(
        layer.name or f"layer {layer.id}"
        for layer in problem.layers
        if str(layer.id) in stage["variants"]
    )
    return ", ".join(
        name if count == 1 else f"{count} {name}" for name, count in names.most_common()
    )


def _piper_variants(problem: PiperProblem, stage: dict[str, Any]) -> Counter[str]:
    """How many of a stage's layers run in which variant."""
    return Counter(
        layer.variants[stage["tensor"]][stage["variants"][str(layer.id)]].name
        for layer in problem.layers
        if str(layer.id) in stage["variants"]
    )
