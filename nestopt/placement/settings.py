"""The settings of placement: of its instances, its plan space and its methods."""

from __future__ import annotations

from nestopt.core.pricing import DEFAULT_SET, SETS
from nestopt.core.settings import Setting

__all__ = ["SETTINGS"]

_DEGREES = "numbers apart by commas, or all"

_ROWS = (
    # the instance
    Setting("batch", "whole number", "the workload's", "Global batch, in samples; with model=piper "
            "the number of micro-batches.", "batch=1536", low=1),
    Setting("model", "word", "pipeline", "The planning model: nestopt's own, or a published one.",
            "model=max-load", ("pipeline", "max-load", "piper")),
    Setting("bandwidth", "bandwidth", "the file's", "Bandwidth between devices, with model=piper.",
            "bandwidth=25GiB/s"),
    Setting("collectives", "file", "none", "A table of synthesized collectives for the cluster "
            "(`nestopt generate collective-table`).", "collectives=table.json"),
    Setting("pricing", "word", DEFAULT_SET, "The set of parameters that prices a stage "
            "(efficiencies, latencies, what overlaps).", f"pricing={SETS[0]}", SETS),
    # the plan space
    Setting("tensor", _DEGREES, "all", "Tensor-parallel degrees of a stage.", "tensor=1,2,4,8"),
    Setting("context", _DEGREES, "all", "Context-parallel degrees of a stage.", "context=1,2"),
    Setting("expert", _DEGREES, "all", "Expert-parallel degrees of a stage.", "expert=1,8"),
    Setting("zero", "0 to 3, apart by commas", "0,1,2,3", "ZeRO stages.", "zero=0,1"),
    Setting("recompute", "words apart by commas", "none,selective,full",
            "What the backward pass may recompute.", "recompute=none,full"),
    Setting("sequence", "0 and 1, apart by commas", "0,1", "Sequence parallelism off, on or both.",
            "sequence=1"),
    Setting("microbatch", _DEGREES, "all", "Samples of a micro-batch.", "microbatch=1,2"),
    Setting("replicas", _DEGREES, "all", "Data-parallel replicas.", "replicas=8,16"),
    Setting("layout", "words apart by commas", "inner,outer", "Replicas inside a stage's block of "
            "devices, or blocks inside a replica.", "layout=inner"),
    Setting("schedule", "words apart by commas, or all", "all", "Pipeline schedules.",
            "schedule=1f1b,interleaved"),
    Setting("chunks", _DEGREES, "all", "Chunks a stage of the interleaved schedule.",
            "chunks=2,4"),
    Setting("uniform", "true or false", "false", "One configuration for all stages.",
            "uniform=true"),
    Setting("decomposition", "word", "megatron", "Tensor degrees in one dimension, or in the three "
            "of AxoNN.", "decomposition=4d"),
    Setting("overlap", "0 and 1, apart by commas", "0", "Overlap of tensor communication off, on "
            "or both.", "overlap=0,1"),
    Setting("hides", "words", "none", "What the framework runs behind computation.", "hides=sync"),
    Setting("structure", "word", "structured", "Stages on runs of devices with their axes in any "
            "order (structured) or in the usual one (contiguous), or anywhere (general).",
            "structure=general"),
    Setting("shares", "word", "equal", "Whether every replica takes as many micro-batches (equal), "
            "or each as many as suits its devices (unequal).", "shares=unequal",
            ("equal", "unequal")),
    # the methods
    Setting("start", "word", "dp", "What the exact models start from: the dynamic program's plan "
            "and bounds, or nothing.", "start=none", ("dp", "none")),
    Setting("iterations", "whole number", "the method's", "Plans tried at most.",
            "iterations=5000", low=1),
    Setting("ideal-limit", "whole number", "2,000,000 (piper: 20,000)", "Downsets of the graph at "
            "most, with model=max-load or piper.", "ideal-limit=50000", low=1),
)  # fmt: skip

_OF_ONE_METHOD = {
    "lns.start": Setting(
        "start",
        "word",
        "dp",
        "What lns starts from: the plan of the dynamic program (or else of megatron), of a "
        "baseline, or nothing.",
        "start=megatron",
        ("dp", "megatron", "grid", "flat-dp", "mcmc", "random", "none"),
    ),
}

SETTINGS: dict[str, Setting] = {row.key: row for row in _ROWS} | _OF_ONE_METHOD
"""By key, or by method and key where one method reads it in its own way."""
