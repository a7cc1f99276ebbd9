"""The file form of Piper's problem, validated at the boundary."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictInt

from nestopt.core.errors import InputError, NestoptError
from nestopt.core.io import validate_model
from nestopt.core.units import LARGEST
from nestopt.placement.model.ideals import topological_order
from nestopt.placement.partitioning.piper.model import Layer, PiperProblem, Variant

__all__ = ["build_problem", "read_problem"]

_Amount = Annotated[float, Field(ge=0, le=LARGEST, allow_inf_nan=False, strict=True)]
_Degree = Annotated[int, Field(ge=1)]


class _VariantFile(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str
    time: _Amount
    stored: _Amount
    fixed: _Amount


class _LayerFile(BaseModel):
    model_config = ConfigDict(extra="forbid")

    id: StrictInt
    name: str = ""
    variants: dict[_Degree, Annotated[list[_VariantFile], Field(min_length=1)]]
    parameters: dict[_Degree, _Amount]
    reshard_in: dict[_Degree, dict[int, _Amount]]
    reshard_out: dict[_Degree, dict[int, _Amount]]


class _ProblemFile(BaseModel):
    model_config = ConfigDict(extra="forbid")

    # "schema" would shadow a method of pydantic's base class
    version: Literal["nestopt.piper/1"] = Field(alias="schema")
    problem: Literal["placement"] = "placement"
    name: str
    devices: int = Field(ge=1, strict=True)
    memory: _Amount
    bandwidth: float = Field(ge=1 / LARGEST, le=LARGEST, strict=True)
    micro_batches: int = Field(ge=1, strict=True)
    layers: list[_LayerFile] = Field(min_length=1)
    edges: list[tuple[StrictInt, StrictInt, _Amount]]


def read_problem(data: Any, *, file: str | None = None) -> PiperProblem:
    """A problem from its JSON form (``nestopt.piper/1``).

    Raises
    ------
    InputError
        Naming file, field and value.
    """
    read = validate_model(_ProblemFile, data, file=file)
    layers = []
    for index, layer in enumerate(read.layers):
        degrees = set(layer.variants)
        for field in ("parameters", "reshard_in", "reshard_out"):
            if set(getattr(layer, field)) != degrees:
                raise InputError(
                    f"tensor degrees {sorted(getattr(layer, field))}, but the variants have "
                    f"{sorted(degrees)}",
                    file=file,
                    field=f"layers[{index}].{field}",
                )
        layers.append(
            Layer(
                layer.id,
                layer.name,
                {
                    degree: tuple(Variant(**v.model_dump()) for v in variants)
                    for degree, variants in layer.variants.items()
                },
                layer.parameters,
                layer.reshard_in,
                layer.reshard_out,
            )
        )
    problem = PiperProblem(
        read.name,
        read.devices,
        read.memory,
        read.bandwidth,
        read.micro_batches,
        tuple(layers),
        tuple(read.edges),
    )
    return build_problem(problem, file=file, layers_field="layers")


def build_problem(
    problem: PiperProblem, *, file: str | None = None, layers_field: str
) -> PiperProblem:
    """The problem, if its ids are unique, its edges lead somewhere, and it has no cycle.

    Raises
    ------
    InputError
        If that does not hold; `layers_field` is what the file calls the layers.
    """
    position: dict[int, int] = {}
    for index, layer in enumerate(problem.layers):
        if layer.id in position:
            raise InputError(
                f"id {layer.id} is used by entries {position[layer.id]} and {index}",
                file=file,
                field=f"{layers_field}[{index}].id",
            )
        position[layer.id] = index
    before: list[list[int]] = [[] for _ in problem.layers]
    for index, (u, v, _) in enumerate(problem.edges):
        for end in (u, v):
            if end not in position:
                raise InputError(f"no layer has the id {end}", file=file, field=f"edges[{index}]")
        before[position[v]].append(position[u])
    try:
        topological_order(before)
    except NestoptError as error:
        raise InputError(
            f"{error} (vertices are positions in {layers_field})", file=file, field="edges"
        ) from error
    return problem
