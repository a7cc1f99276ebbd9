"""Measured training runs from the literature, read from the data files.

Each file names its source. What a source leaves open and the prediction needs is written down in
`Run.assumed`.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from nestopt.fourd.network import iteration_flops
from nestopt.placement.model.transformer import Transformer, expand
from nestopt.placement.pricing.parameters import current_set

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nestopt.placement.model.workload import Workload

__all__ = ["Run", "read_table", "runs", "workload_of"]

_HALF, _SINGLE = 2.0, 4.0


def read_table(name: str) -> list[dict[str, str]]:
    """Rows of a measured table; the first line of a file is its source."""
    path = files("nestopt").joinpath("data", "measured", f"{name}.csv")
    lines = path.read_text(encoding="utf-8").splitlines()
    return list(csv.DictReader(line for line in lines if not line.startswith("#")))


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One measured training iteration.

    Attributes
    ----------
    table, row : str
        Where it is from.
    model : Transformer
    device : str
        Device type; the cluster is ``dgx-DEVICE`` unless `cluster` names another.
    cluster : str
    gpus, tensor, context, pipeline, data : int
    batch : int
        Global batch in sequences.
    microbatch, chunks : int
        0 if not published; the prediction then takes the best.
    recompute : str
    sequence_parallel : bool
    zero : int
    gradient_bytes : float
        Bytes of a reduced gradient.
    framework : str
        What the run was made with; the parameter set says what it hides.
    seconds : float
        Measured time of an iteration.
    group : str
        Runs of one group are alternatives for the same job on as many devices.
    assumed : tuple of str
        What the source does not say.
    """

    table: str
    row: str
    model: Transformer
    device: str
    gpus: int
    tensor: int
    pipeline: int
    data: int
    batch: int
    seconds: float
    context: int = 1
    microbatch: int = 1
    chunks: int = 1
    recompute: str = "full"
    sequence_parallel: bool = False
    zero: int = 0
    gradient_bytes: float = _HALF
    framework: str = "megatron-lm"
    group: str = ""
    cluster: str = ""
    assumed: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """``TABLE: ROW``."""
        return f"{self.table}: {self.row}"


def workload_of(run: Run) -> Workload:
    """The workload of a run, as the parameter set in force prices transformers."""
    settings = {"bytes_gradient": run.gradient_bytes}
    return expand(run.row, current_set().transformer(run.model), run.batch, settings)


def _gpt(row: dict[str, str], vocabulary: int = 0, *, flash: bool = False) -> Transformer:
    return Transformer(
        int(row["layers"]),
        int(row["hidden"]),
        int(row["heads"]),
        int(row["seq"]),
        vocabulary or int(row["vocab"]),
        flash=flash,
    )


_GPUS = {
    "gpus_A100_80GB": "a100",
    "gpus_A100": "a100",
    "gpus_Ampere": "a100",
    "gpus_H100": "h100",
}
"""Columns that count the devices, and the device type of each."""


def _columns(row: dict[str, str]) -> dict[str, Any]:
    """The fields of a `Run` that a table gives in a column; 0 for what was not published."""
    names = {"tensor": "tp", "context": "cp", "pipeline": "pp", "data": "dp"}
    names |= {"batch": "global_batch", "microbatch": "micro_batch", "chunks": "virtual_stages"}
    found: dict[str, Any] = {
        field: 0 if row[column] == "not published" else int(row[column])
        for field, column in names.items()
        if column in row
    }
    (counted,) = (column for column in _GPUS if column in row)
    return found | {"device": _GPUS[counted], "gpus": int(row[counted])}


def _narayanan_table1() -> Iterator[Run]:
    for row in read_table("narayanan2021_table1"):
        yield Run(
            table="narayanan2021_table1",
            row=f"{row['params_b']}B",
            model=_gpt(row),
            seconds=float(row["DERIVED_iter_time_s"]),
            **_columns(row),
        )


def _narayanan_table2() -> Iterator[Run]:
    for row in read_table("narayanan2021_table2_zero3_vs_ptdp"):
        job = f"{float(row['params_b']):.0f}B {row['gpus_A100_80GB']}"
        yield Run(
            table="narayanan2021_table2",
            row=f"{row['scheme']} {job}",
            model=_gpt(row),
            zero=3 if row["scheme"] == "ZeRO-3" else 0,
            seconds=float(row["DERIVED_iter_time_s"]),
            group=job,
            assumed=("no interleaving", "full recomputation", "ZeRO-3 of 2021 hides nothing"),
            **_columns(row),
        )


def _korthikanti_table5() -> Iterator[Run]:
    for row in read_table("korthikanti2022_table5"):
        modes = (
            ("full", False, "iter_s_full_recompute"),
            ("selective", True, "iter_s_seqpar_selective"),
        )
        for recompute, split, column in modes:
            if row[column]:
                gpus = row["gpus_A100_80GB"]
                yield Run(
                    table="korthikanti2022_table5",
                    row=f"{row['model']} {recompute} {gpus}",
                    model=_gpt(row),
                    recompute=recompute,
                    sequence_parallel=split,
                    seconds=float(row[column]),
                    group=f"{row['model']} {gpus}",
                    **_columns(row),
                )


def _megascale() -> Iterator[Run]:
    for row in read_table("megascale2024_table2_175B"):
        if row["system"] == "Megatron-LM":
            yield Run(
                table="megascale2024_table2",
                row=f"Megatron-LM {row['gpus_Ampere']} batch {row['global_batch']}",
                model=_gpt(row, 51200),
                chunks=6,
                recompute="selective",
                sequence_parallel=True,
                zero=1,
                gradient_bytes=_SINGLE,
                seconds=float(row["iter_s"]),
                assumed=(
                    "micro-batch 1",
                    "6 chunks a stage",
                    "selective recomputation, sequence parallelism, ZeRO-1",
                    "vocabulary 51200",
                    "A100",
                ),
                **_columns(row),
            )


def _mtnlg() -> Iterator[Run]:
    for row in read_table("mtnlg_530b"):
        yield Run(
            table="mtnlg_530b",
            row=f"530B {row['gpus_A100']}",
            model=_gpt(row),
            seconds=float(row["iter_s"]),
            assumed=("no interleaving", "full recomputation"),
            **_columns(row),
        )


def _megatron_core() -> Iterator[Run]:
    for row in read_table("megatron_core_h100_readme"):
        model, columns = _gpt(row, flash=True), _columns(row)
        flops = iteration_flops(model, columns["batch"], recompute=False) / columns["gpus"]
        yield Run(
            table="megatron_core_h100_readme",
            row=f"{row['params_b']}B",
            model=model,
            chunks=0,
            recompute="none",
            sequence_parallel=columns["tensor"] > 1,
            zero=1,
            gradient_bytes=_SINGLE,
            framework="megatron-core",
            seconds=flops / (float(row["tflops_per_gpu(model flops)"]) * 1e12),
            assumed=("best micro-batch and chunks", "no recomputation", "attention counted whole"),
            **columns,
        )


def _llama3() -> Iterator[Run]:
    for row in read_table("llama3_405b_table4"):
        model = Transformer(
            int(row["layers"]),
            int(row["hidden"]),
            int(row["heads"]),
            int(row["seq"]),
            int(row["vocab"]),
            kv_heads=int(row["kv_heads"]),
            ffn=int(row["ffn"]),
            gated=True,
            tied=False,
            flash=True,
            biases=False,
            dropout=False,
            lean=True,
        )
        columns = _columns(row)
        run = Run(
            table="llama3_405b_table4",
            row=f"405B {row['gpus_H100']} seq {row['seq']}",
            model=model,
            batch=int(row["batch_per_dp"]) * columns["data"],
            chunks=8,
            recompute="none",
            sequence_parallel=True,
            zero=1,
            gradient_bytes=_SINGLE,
            framework="megatron-core",
            seconds=1.0,
            assumed=("micro-batch 1", "a layer a chunk", "attention counted half (causal mask)"),
            **columns,
        )
        flops = 3 * run.batch * sum(o.flops + o.flops_attn for o in workload_of(run).operators)
        yield replace(run, seconds=flops / run.gpus / (float(row["tflops_per_gpu"]) * 1e12))


def runs() -> list[Run]:
    """All measured runs, table by table."""
    tables = (
        _narayanan_table1,
        _narayanan_table2,
        _korthikanti_table5,
        _megascale,
        _mtnlg,
        _megatron_core,
        _llama3,
    )
    return [run for table in tables for run in table()]
