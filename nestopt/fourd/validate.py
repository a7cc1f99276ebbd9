"""Predicted against measured: iteration times, layer times and memory, table by table.

References
----------
Narayanan et al., arXiv 2104.04473 (Tables 1, 2); Korthikanti et al., arXiv 2205.05198 (Tables 4,
5, Figures 1, 7); Jiang et al., arXiv 2402.15627 (MegaScale, Table 2); Smith et al., arXiv
2201.11990 (MT-NLG); Megatron-LM's README (H100); Llama 3, arXiv 2407.21783 (Table 4).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby, product
from typing import TYPE_CHECKING, Any

import numpy as np

from nestopt.fourd.models import machine_of, named_model
from nestopt.fourd.network import iteration_flops
from nestopt.fourd.predict import calibrated, calibration, plan_of, predict
from nestopt.fourd.rank import rank
from nestopt.fourd.runs import Run, read_table, runs, workload_of
from nestopt.placement.comm import Network, families_of, family_profiles
from nestopt.placement.cost import Grid, Mode, StageCosts
from nestopt.placement.evaluate import evaluate
from nestopt.placement.plan import in_flight
from nestopt.placement.transformer import Transformer, expand
from nestopt.registry import named

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Report", "Row", "describe", "validate"]


@dataclass(frozen=True, slots=True)
class Row:
    """One measured figure, its prediction, and whether the calibration saw it."""

    row: str
    measured: float
    predicted: float
    fitted: bool = False
    assumed: tuple[str, ...] = ()

    @property
    def error(self) -> float:
        """(predicted - measured) / measured."""
        return (self.predicted - self.measured) / self.measured


@dataclass(frozen=True, slots=True)
class Report:
    """A table's rows and statistics.

    Attributes
    ----------
    table, quantity : str
        Where the figures are from, and what they are, with the unit.
    rows : tuple of Row
    spearman : float or None
        Rank correlation of measured and predicted FLOP/s per device; None for other quantities.
    regret : float or None
        Largest, over groups of alternative ways to run the same job on as many devices, of measured
        time of the predicted best / measured time of the best - 1; None without such groups.
    """

    table: str
    quantity: str
    rows: tuple[Row, ...]
    spearman: float | None = None
    regret: float | None = None

    @property
    def mape(self) -> float:
        """Mean absolute relative error of all rows."""
        return float(np.mean([abs(row.error) for row in self.rows]))

    @property
    def mape_predicted(self) -> float | None:
        """The same over the rows that were not fitted; None if all were."""
        errors = [abs(row.error) for row in self.rows if not row.fitted]
        return float(np.mean(errors)) if errors else None

    def to_json(self) -> dict[str, Any]:
        """The report as JSON."""
        return {
            "table": self.table,
            "quantity": self.quantity,
            "mape": self.mape,
            "mape_of_rows_not_fitted": self.mape_predicted,
            "spearman": self.spearman,
            "regret": self.regret,
            "rows": [
                {
                    "row": row.row,
                    "measured": row.measured,
                    "predicted": row.predicted,
                    "error": row.error,
                    "fitted": row.fitted,
                    "assumed": list(row.assumed),
                }
                for row in self.rows
            ],
        }


def validate() -> list[Report]:
    """Reports of all tables: iteration times, then layer times, then memory."""
    reports = [
        _iteration_times(table, list(group))
        for table, group in groupby(runs(), key=lambda run: run.table)
    ]
    return [*reports, _axonn(), _layer_times(), *_memory(), _activation_shares()]


def _iteration_times(table: str, found: list[Run]) -> Report:
    from scipy.stats import spearmanr

    rows, measured, predicted = [], [], []
    times: dict[str, list[tuple[float, float]]] = {}
    for run in found:
        time = predict(run)
        fitted = run.name in calibration(run.device).fitted_on
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
        "seconds an iteration",
        tuple(rows),
        float(spearmanr(measured, predicted).statistic),
        max(regrets) if regrets else None,
    )


def _axonn() -> Report:
    """80B on 1,024 GPUs of Perlmutter: AxoNN's best decomposition beside Megatron-LM's best plan.

    Megatron-LM is given every even tensor and pipeline degree and micro-batch that fits.
    """
    model, gpus, batch = named_model("axonn-80b")[0], 1024, 1024
    cluster = calibrated(named("cluster", f"perlmutter-{gpus}"), calibration("a100"))
    device = cluster.types[0]
    best = rank(model, machine_of(cluster), gpus, batch, device=device)[0]
    speed = iteration_flops(model, batch, recompute=True) / best.iteration / gpus
    workload = expand("80B", model, batch)
    costs = StageCosts(workload)
    times = []
    for tensor, stages, size in product((2, 4, 8), (1, 2, 4, 8, 16), (1, 2, 4)):
        data = gpus // (tensor * stages)
        if batch % (data * size):
            continue
        run = Run(
            table="arXiv 2305.13525", row="80B", model=model, device="a100", gpus=gpus,
            tensor=tensor, pipeline=stages, data=data, batch=batch, zero=1, seconds=1.0,
        )  # fmt: skip
        priced = evaluate(workload, cluster, plan_of(run, workload, size, 1), costs)
        if priced.fits:
            times.append(priced.iteration_time)
    gain = min(times) / best.iteration - 1
    assumed = ("batch 1024", "flash attention")
    rows = (
        Row(
            "80B on 1,024 A100, recomputation counted",
            57.0,
            100 * speed / device.peak,
            False,
            assumed,
        ),
        Row("its gain over Megatron-LM", 26.0, 100 * gain, False, assumed),
    )
    return Report("axonn arXiv 2305.13525", "% of peak; %", rows)


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
    cluster = calibrated(named("cluster", "dgx-a100-8"), calibration("a100"))
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
    schedule = "interleaved" if chunks > 1 else "1f1b"
    held = in_flight(schedule, count, stages, stages, chunks)
    bytes_each = workload.bytes_weight + workload.bytes_gradient + workload.bytes_optimizer
    states = bytes_each * sum(workload.operators[i].params for i in inside) / 8
    return states / 2**30, held * stored / 2**30


def _memory() -> list[Report]:
    states, activations = [], []
    for row in read_table("korthikanti2022_fig1_memory_GiB"):
        name = f"{row['model']} {row['mode'].replace('_', ' ')}"
        state, stored = _first_stage(row["model"], _FIGURE1[row["mode"]])
        states.append(Row(name, float(row["params_opt_GiB"]), state))
        activations.append(Row(name, float(row["activations_GiB"]), stored))
    return [
        Report("korthikanti2022_fig1 states", "GiB", tuple(states)),
        Report("korthikanti2022_fig1 activations", "GiB", tuple(activations)),
    ]


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


def describe(reports: list[Report], console: Console) -> None:
    """Print all rows and each table's statistics in 80 columns."""
    from rich.table import Table

    for report in reports:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        table.add_column(f"{report.table}\n{report.quantity}", no_wrap=True, min_width=40)
        for column in ("measured", "predicted", "error", ""):
            table.add_column(column, justify="right", no_wrap=True)
        for row in report.rows:
            table.add_row(
                row.row,
                f"{row.measured:.4g}",
                f"{row.predicted:.4g}",
                f"{100 * row.error:+.1f} %",
                "fitted" if row.fitted else "",
            )
        console.print(table)
        parts = [f"MAPE {100 * report.mape:.1f} %"]
        if report.mape_predicted is not None and any(row.fitted for row in report.rows):
            parts.append(f"{100 * report.mape_predicted:.1f} % of rows not fitted")
        if report.spearman is not None:
            parts.append(f"Spearman {report.spearman:.2f} (FLOP/s a device)")
        if report.regret is not None:
            parts.append(f"regret {100 * report.regret:.1f} %")
        console.print("  " + "; ".join(parts))
        assumed = sorted({text for row in report.rows for text in row.assumed})
        if assumed:
            console.print("  assumed: " + "; ".join(assumed))
        console.print()
