"""The pydantic models of cluster, workload and plan files: shape and types only.

Values with meaning (positive, known, refining) are checked where they are used, by the classes
that own them.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool

from nestopt.placement.model.cluster import DeviceType, parse_device_type

__all__ = [
    "ClusterFile",
    "CollectiveTableFile",
    "ConfigFile",
    "EdgeFile",
    "OperatorFile",
    "PlanFile",
    "StageFile",
    "WorkloadFile",
    "device_type_from_file",
]

# a truth value or a number in quotes is no number
Real = Annotated[float, Field(allow_inf_nan=False, strict=True)]
Quantity = str | Real
Number = Annotated[float, Field(allow_inf_nan=False, ge=0, strict=True)]
Count = Annotated[int, Field(ge=1, lt=2**31, strict=True)]
Index = Annotated[int, Field(ge=0, lt=2**31, strict=True)]
# each of these is an entry in memory
Several = Annotated[int, Field(ge=1, le=10**6, strict=True)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class DeviceTypeFile(_Strict):
    """A device type."""

    peak: Quantity
    memory: Quantity
    memory_bandwidth: Quantity
    efficiency: Real = 1.0
    half_flops: Real = 0.0
    reserve: Quantity = 0.0


class GroupsFile(_Strict):
    """A run of groups of equal size."""

    size: Count
    count: Several = 1


class LevelFile(_Strict):
    """A level of the tree."""

    name: str
    latency: Quantity
    port: Quantity
    uplink: Quantity | None = None
    groups: list[GroupsFile]


class DevicesFile(_Strict):
    """A run of devices of one type."""

    type: str
    count: Several = 1


class OverrideFile(_Strict):
    """Other figures for one group."""

    level: Index
    group: Index
    latency: Quantity | None = None
    port: Quantity | None = None
    uplink: Quantity | None = None


class FiguresFile(_Strict):
    """What a table of collectives knows of a level."""

    latency: Number
    port: Number
    uplink: Number | None = None


class LineFile(_Strict):
    """A line of a table of collectives."""

    alpha: Number
    beta: Number


class RowFile(_Strict):
    """A row of a table of collectives."""

    pattern: str
    counts: list[Count]
    sharing: list[Count]
    lines: list[LineFile]


class CollectiveTableFile(_Strict):
    """A table of collectives."""

    schema_: Literal["nestopt.collective-table/1"] = Field(alias="schema")
    name: str = ""
    levels: list[FiguresFile]
    rows: list[RowFile]


class ClusterFile(_Strict):
    """A cluster."""

    schema_: Literal["nestopt.cluster/1"] = Field(alias="schema")
    name: str
    device_types: dict[str, DeviceTypeFile]
    levels: list[LevelFile]
    devices: list[DevicesFile]
    failed: list[Index] = []
    overrides: list[OverrideFile] = []
    collectives: CollectiveTableFile | None = None


class OperatorFile(_Strict):
    """An operator."""

    name: str
    kind: str | None = None
    flops: Number = 0.0
    flops_attn: Number = 0.0
    bytes_full: Number = 0.0
    bytes_shard: Number = 0.0
    bytes_attn: Number = 0.0
    params: Number = 0.0
    params_expert: Number = 0.0
    act_full: Number = 0.0
    act_shard: Number = 0.0
    act_attn: Number = 0.0
    act_input: Number = 0.0
    tp_bytes: Number = 0.0
    tp_fwd: Index = 0
    tp_bwd: Index = 0
    cp_bytes: Number = 0.0
    ep_bytes: Number = 0.0
    logits_bytes: Number = 0.0
    flops_expert: Number = 0.0
    rows: Number = 0.0
    x_fwd: list[Number] = []
    x_bwd: list[Number] = []
    tensor_divides: list[Count] = []
    x_divides: list[Count] = []
    context_divides: Index = 0
    experts: Index = 0
    time_fwd: dict[str, Number] = {}
    time_bwd: dict[str, Number] = {}


class EdgeFile(_Strict):
    """An edge of the operator graph."""

    source: Index
    target: Index
    bytes: Number


class TiedFile(_Strict):
    """Two operators that share parameters."""

    first: Index
    second: Index
    params: Number


class WorkloadFile(_Strict):
    """A workload."""

    schema_: Literal["nestopt.workload/1"] = Field(alias="schema")
    name: str
    global_batch: Count
    bytes_weight: Number = 2.0
    bytes_gradient: Number = 4.0
    bytes_optimizer: Number = 12.0
    operators: list[OperatorFile]
    edges: list[EdgeFile]
    tied: TiedFile | None = None
    model_flops: Number | None = None
    sequence: Index = 0


class ConfigFile(_Strict):
    """A stage's configuration."""

    tensor: tuple[Count, Count, Count]
    context: Count
    expert: Count
    sequence_parallel: StrictBool
    zero: Annotated[int, Field(ge=0, le=3, strict=True)]
    recompute: Literal["none", "selective", "full"]
    overlap: StrictBool = False
    hides: list[Literal["tensor", "sync", "gathers"]] = []


class StageFile(_Strict):
    """A stage of a plan."""

    operators: list[Index]
    config: ConfigFile
    devices: list[list[Index]]


class PlanFile(_Strict):
    """A plan."""

    schema_: Literal["nestopt.plan/1"] = Field(alias="schema")
    replicas: Count
    microbatch: Count
    schedule: Literal["1f1b", "gpipe", "interleaved"]
    chunks: Count = 1
    shares: list[Count] = []
    stages: list[StageFile]
    report: dict[str, Any] = {}


def device_type_from_file(name: str, entry: DeviceTypeFile) -> DeviceType:
    """The device type of a file's entry."""
    return parse_device_type(name, entry.model_dump())
