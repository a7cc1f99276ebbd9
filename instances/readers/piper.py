"""Reader of Piper's input format (NeurIPS 2021).

References
----------
https://github.com/msr-fiddle/piper, section "Input format" of its README.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from nestopt.core.errors import InputError
from nestopt.core.io import read_json, validate_model
from nestopt.placement.partitioning.piper.model import Layer, PiperProblem, Variant
from nestopt.placement.partitioning.piper.schema import build_problem

__all__ = ["is_piper", "parse_piper", "read_piper"]

_Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_Degree = Annotated[int, Field(ge=1)]


class _Tmpc(BaseModel):
    model_config = ConfigDict(extra="ignore")

    id: str
    timePerSample: _Amount
    parameterSize: _Amount
    memoryUsageA: _Amount
    memoryUsageB: _Amount
    syncTimeFw: dict[int, _Amount]
    syncTimeBw: dict[int, _Amount]


class _Node(BaseModel):
    model_config = ConfigDict(extra="ignore")

    id: int
    name: str = ""
    TMPCs: dict[_Degree, Annotated[list[_Tmpc], Field(min_length=1)]]


class _Edge(BaseModel):
    model_config = ConfigDict(extra="ignore")

    sourceId: int
    destId: int
    communicationCost: _Amount


class _File(BaseModel):
    model_config = ConfigDict(extra="ignore")

    maxDevices: int = Field(ge=1)
    maxMemoryPerDevice: _Amount
    bandwidth: float = Field(gt=0, allow_inf_nan=False)
    mbsInBatch: int = Field(ge=1)
    nodes: list[_Node] = Field(min_length=1)
    edges: list[_Edge]


def is_piper(data: Any) -> bool:
    """Whether a JSON value looks like this format."""
    return isinstance(data, dict) and "maxMemoryPerDevice" in data and "nodes" in data


def read_piper(
    path: str | Path,
    *,
    devices: int | None = None,
    memory: float | None = None,
    bandwidth: float | None = None,
    micro_batches: int | None = None,
) -> PiperProblem:
    """The problem in a file; what is given here replaces what the file says (bytes, bytes/s)."""
    problem = parse_piper(read_json(path), Path(path).stem, file=str(path))
    given = {
        "devices": devices,
        "memory": memory,
        "bandwidth": bandwidth,
        "micro_batches": micro_batches,
    }
    changes: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    return dataclasses.replace(problem, **changes)


def parse_piper(data: Any, name: str, *, file: str | None = None) -> PiperProblem:
    """The problem of a JSON value.

    Raises
    ------
    InputError
        Naming file, field and value; also where the configurations of a layer and degree differ
        in parameters or resharding, which this model keeps per layer and degree.
    """
    read = validate_model(_File, data, file=file)
    layers = []
    for index, node in enumerate(read.nodes):
        for degree, row in node.TMPCs.items():
            for k, tmpc in enumerate(row):
                for field in ("parameterSize", "syncTimeFw", "syncTimeBw"):
                    if getattr(tmpc, field) != getattr(row[0], field):
                        raise InputError(
                            f"{getattr(tmpc, field)}, but {getattr(row[0], field)} in the first "
                            "configuration of this degree",
                            file=file,
                            field=f"nodes[{index}].TMPCs.{degree}[{k}].{field}",
                        )
        layers.append(
            Layer(
                id=node.id,
                name=node.name,
                variants={
                    degree: tuple(
                        Variant(c.id, c.timePerSample, c.memoryUsageA, c.memoryUsageB) for c in row
                    )
                    for degree, row in node.TMPCs.items()
                },
                parameters={degree: row[0].parameterSize for degree, row in node.TMPCs.items()},
                reshard_in={degree: row[0].syncTimeFw for degree, row in node.TMPCs.items()},
                reshard_out={degree: row[0].syncTimeBw for degree, row in node.TMPCs.items()},
            )
        )
    problem = PiperProblem(
        name,
        read.maxDevices,
        read.maxMemoryPerDevice,
        read.bandwidth,
        read.mbsInBatch,
        tuple(layers),
        tuple((e.sourceId, e.destId, e.communicationCost) for e in read.edges),
    )
    return build_problem(problem, file=file, layers_field="nodes")
