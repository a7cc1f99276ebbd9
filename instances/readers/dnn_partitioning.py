"""Reader of the dnn-partitioning input format (NeurIPS 2020).

References
----------
https://github.com/msr-fiddle/dnn-partitioning, section "Input format" of its README. The format
states no unit of time; its figures are taken as milliseconds, since the computing times are those
of a profiler that reports milliseconds.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from nestopt.core.errors import InputError
from nestopt.core.io import read_json, validate_model
from nestopt.placement.partitioning.maxload.model import MaxLoadProblem, Operator
from nestopt.placement.partitioning.maxload.schema import build_problem

__all__ = ["is_dnn_partitioning", "parse_dnn_partitioning", "read_dnn_partitioning"]

_Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class _Node(BaseModel):
    # Files in circulation carry names, layer ids and other remarks
    model_config = ConfigDict(extra="ignore")

    id: int
    name: str = ""
    supportedOnFpga: bool
    cpuLatency: _Amount
    fpgaLatency: _Amount
    isBackwardNode: bool
    colorClass: int | None = None
    size: _Amount


class _Edge(BaseModel):
    model_config = ConfigDict(extra="ignore")

    sourceId: int
    destId: int
    cost: _Amount


class _File(BaseModel):
    model_config = ConfigDict(extra="ignore")

    maxSizePerFPGA: _Amount
    maxFPGAs: int = Field(ge=0)
    maxCPUs: int = Field(ge=0)
    nodes: list[_Node] = Field(min_length=1)
    edges: list[_Edge]


def is_dnn_partitioning(data: Any) -> bool:
    """Whether a JSON value looks like this format."""
    return isinstance(data, dict) and "maxFPGAs" in data and "nodes" in data


def read_dnn_partitioning(path: str | Path) -> MaxLoadProblem:
    """The problem in a file; see `parse_dnn_partitioning`."""
    return parse_dnn_partitioning(read_json(path), Path(path).stem, file=str(path))


def parse_dnn_partitioning(data: Any, name: str, *, file: str | None = None) -> MaxLoadProblem:
    """The problem of a JSON value; times become seconds.

    Raises
    ------
    InputError
        Naming file, field and value; also where edges of one node have different costs, since
        an output is moved once, whoever takes it.
    """
    read = validate_model(_File, data, file=file)
    output: dict[int, float] = {}
    for index, edge in enumerate(read.edges):
        known = output.setdefault(edge.sourceId, edge.cost)
        if known != edge.cost:
            raise InputError(
                f"cost {edge.cost} of an edge from node {edge.sourceId}, whose other edges cost "
                f"{known}; all edges of a node carry the same output",
                file=file,
                field=f"edges[{index}].cost",
            )
    return build_problem(
        name,
        read.maxFPGAs,
        read.maxCPUs,
        read.maxSizePerFPGA,
        [
            Operator(
                id=node.id,
                accelerator_time=node.fpgaLatency * 1e-3,
                cpu_time=node.cpuLatency * 1e-3,
                memory=node.size,
                output_time=output.get(node.id, 0.0) * 1e-3,
                backward=node.isBackwardNode,
                colour=node.colorClass,
                on_accelerator=node.supportedOnFpga,
                name=node.name,
            )
            for node in read.nodes
        ],
        [(edge.sourceId, edge.destId) for edge in read.edges],
        file=file,
        operators_field="nodes",
    )
