"""Predicted against measured: iteration times, layer times and memory, table by table.

References
----------
Narayanan et al., arXiv 2104.04473 (Tables 1, 2); Korthikanti et al., arXiv 2205.05198 (Tables 4,
5, Figures 1, 7); Jiang et al., arXiv 2402.15627 (MegaScale, Table 2); Smith et al., arXiv
2201.11990 (MT-NLG); Megatron-LM's README (H100); Llama 3, arXiv 2407.21783 (Table 4). AxoNN's
figures: `nestopt.fourd.axonn`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nestopt.core.errors import unknown_name
from nestopt.core.registry import named
from nestopt.fourd.axonn import axonn_20b, axonn_80b
from nestopt.fourd.predict import predict
from nestopt.fourd.report import ITERATION, Report, Row
from nestopt.fourd.runs import Run, read_table, runs, workload_of
from nestopt.placement.model.schedules import make_schedule
from nestopt.placement.model.transformer import Transformer, expand
from nestopt.placement.pricing.comm import Network, families_of, family_profiles
from nestopt.placement.pricing.cost import Grid, Mode, StageCosts
from nestopt.placement.pricing.parameters import current_set

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["table_names", "validate"]


def validate(tables: Sequence[str] = ()) -> list[Report]:
    """Reports of the tables: iteration times, then layer times, then memory.

    Parameters
    ----------
    tables : sequence of str
        Names of `table_names`; none stands for all. What is not asked for is not computed.

    Raises
    ------
    UsageError
        If a name is none of them (with a suggestion).
    """
    known = table_names()
    for name in tables:
        if name not in known:
            raise unknown_name("table", name, known)
    return [_report(name) for name in known if not tables or name in tables]


def table_names() -> list[str]:
    """The tables, in the order of `validate`."""
    return [*dict.fromkeys(run.table for run in runs()), *_OTHERS]


def _report(name: str) -> Report:
    if name in _OTHERS:
        return _OTHERS[name]()
    return _iteration_times(name, [run for run in runs() if run.table == name])


def _iteration_times(table: str, found: list[Run]) -> Report:
    from scipy.stats import spearmanr

    rows, measured, predicted = [], [], []
    times: dict[str, list[tuple[float, float]]] = {}
    for run in found:
        time = predict(run)
        fitted = run.name in current_set().device(run.device).fitted_on
        rows.append(Row(run.row, run.seconds, time, fitted, run.assumed))
        work = workload_of(run).iteration_flops / run.gpus
        measured.append(work / run.seconds)
        predicted.append(work / time)
        if run.group:
            times.setdefault(run.group, []).append((time, run.seconds))
    regrets = [
        min(group)[1] / min(seconds for _, seconds in group) - 1
        for group in times.values()
        if len(group) > 1
    ]
    return Report(
        table,
        ITERATION,
        tuple(rows),
        float(spearmanr(measured, predicted).statistic),
        max(regrets) if regrets else None,
        remarks=_same_plans(found) + _REMARKS.get(table, ()),
    )


_REMARKS = {
    "narayanan2021_table2": (
        "ZeRO-3: 640, 1120 and 2240 GPUs fill the cluster's units of 160 evenly and get the "
        "hierarchical all-gather, the others a flat ring at 25 GB/s a GPU; the measured stack "
        "gathers at about the flat ring's rate on all of them",
    ),
}


def _same_plans(found: list[Run]) -> tuple[str, ...]:
    """What another source measured for a run's plan with another batch.

    Model, devices, degrees, micro-batch and recomputation are the same, so that under 1F1B the
    time goes with micro-batches + stages - 1 (one synchronisation aside). Where the two sources
    differ by more than this, no model of these inputs meets both.
    """
    remarks = []
    for run in found:
        for other in runs():
            if other.table == run.table or _plan(other) != _plan(run) or other.batch == run.batch:
                continue
            each = run.data * run.microbatch
            steps, others = (r.batch // each + r.pipeline - 1 for r in (run, other))
            remarks.append(
                f"{run.row}: {other.name} is the same plan, {other.seconds:.4g} s at batch "
                f"{other.batch}; by micro-batches + stages - 1 that is "
                f"{other.seconds * steps / others:.4g} s at batch {run.batch}, measured here "
                f"{run.seconds:.4g} s"
            )
    return tuple(remarks)


def _plan(run: Run) -> tuple[object, ...]:
    degrees = (run.gpus, run.tensor, run.context, run.pipeline, run.data, run.microbatch)
    return (
        run.model, run.device, *degrees, run.chunks, run.recompute, run.sequence_parallel, run.zero
    )  # fmt: skip


_TABLE4 = {
    "baseline no recompute": Mode(False, 0, "none"),
    "sequence parallel": Mode(True, 0, "none"),
    "full recompute": Mode(False, 0, "full"),
    "selective recompute": Mode(False, 0, "selective"),
    "selective + sequence parallel": Mode(True, 0, "selective"),
}


def _layer_times() -> Report:
    """One block of the 22B model, micro-batch 4, on 8 A100: forward and backward together."""
    workload = expand("22B", Transformer(48, 6144, 64, 2048, 51200), 4, {"bytes_gradient": 2.0})
    cluster = named("cluster", "dgx-a100-8")
    costs = StageCosts(workload)
    grid = Grid(1, 8, 1, 1, 1)
    devices = np.arange(8, dtype=np.int64)
    start = np.zeros(1, dtype=np.int64)
    families = families_of(devices.reshape(1, 8), *grid)
    network = Network.of(cluster)
    profiles = np.concatenate(
        [family_profiles(network, devices, start, family) for family in families]
    )
    modes = list(_TABLE4.values())
    rates = costs.rates(grid, modes, 4, 1, profiles, cluster.types)[costs.kind_of[1]]
    measured = {
        row["experiment"]: float(row["total_ms"])
        for row in read_table("korthikanti2022_table4_layer_times_22B")
    }
    rows = tuple(Row(name, measured[name], 1e3 * rates[i]) for i, name in enumerate(_TABLE4))
    return Report("korthikanti2022_table4", "ms a layer", rows)


_SIZES = {
    # name: layers, hidden, heads, pipeline, chunks, micro-batch, micro-batches
    "22B": (48, 6144, 64, 1, 1, 4, 1),
    "175B": (96, 12288, 96, 8, 3, 1, 64),
    "530B": (105, 20480, 128, 35, 3, 1, 280),
    "1T": (128, 25600, 160, 64, 1, 1, 512),
}
_FIGURE1 = {
    "tensor_parallel_only_no_recompute": Mode(False, 0, "none"),
    "seqpar+selective": Mode(True, 0, "selective"),
}


def _first_stage(name: str, mode: Mode) -> tuple[float, float]:
    """GiB of states and of stored activations of a first stage's blocks, tensor degree 8."""
    layers, hidden, heads, stages, chunks, size, count = _SIZES[name]
    workload = expand(name, Transformer(layers, hidden, heads, 2048, 51200), size * count)
    costs = StageCosts(workload)
    inside = range(1, 1 + layers // stages)
    block = costs.blocks([list(inside)])
    stored = costs.memory(block, Grid(1, 8, 1, 1, 1), [mode], size, 1).stored[0, 0]
    schedule = make_schedule("interleaved" if chunks > 1 else "1f1b", chunks)
    held = schedule.in_flight(count, stages, stages)
    bytes_each = workload.bytes_weight + workload.bytes_gradient + workload.bytes_optimizer
    states = bytes_each * sum(workload.operators[i].params for i in inside) / 8
    return states / 2**30, held * stored / 2**30


def _memory(table: str, column: str, part: int) -> Report:
    """Figure 1's states (part 0) or stored activations (part 1)."""
    rows = []
    for row in read_table("korthikanti2022_fig1_memory_GiB"):
        name = f"{row['model']} {row['mode'].replace('_', ' ')}"
        predicted = _first_stage(row["model"], _FIGURE1[row["mode"]])[part]
        rows.append(Row(name, float(row[column]), predicted))
    return Report(table, "GiB", tuple(rows))


_FIGURE7 = {
    "seqpar": Mode(True, 0, "none"),
    "selective": Mode(False, 0, "selective"),
    "seqpar+selective": Mode(True, 0, "selective"),
    "full": Mode(False, 0, "full"),
}


def _activation_shares() -> Report:
    rows = []
    for row in read_table("korthikanti2022_fig7_activation_pct"):
        whole = _first_stage(row["model"], Mode(False, 0, "none"))[1]
        for column, mode in _FIGURE7.items():
            share = 100 * _first_stage(row["model"], mode)[1] / whole
            rows.append(Row(f"{row['model']} {column}", float(row[column]), share))
    return Report("korthikanti2022_fig7", "% of the activations", tuple(rows))


_STATES, _ACTIVATIONS = "korthikanti2022_fig1 states", "korthikanti2022_fig1 activations"
_OTHERS: dict[str, Callable[[], Report]] = {
    "axonn_80b": axonn_80b,
    "axonn_20b": axonn_20b,
    "korthikanti2022_table4": _layer_times,
    _STATES: lambda: _memory(_STATES, "params_opt_GiB", 0),
    _ACTIVATIONS: lambda: _memory(_ACTIVATIONS, "activations_GiB", 1),
    "korthikanti2022_fig7": _activation_shares,
}
