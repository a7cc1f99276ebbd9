"""The file form of a max-load problem, validated at the boundary."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt

from nestopt.core.errors import InputError, NestoptError
from nestopt.core.io import validate_model
from nestopt.core.units import LARGEST
from nestopt.placement.model.ideals import topological_order
from nestopt.placement.partitioning.maxload.model import MaxLoadProblem, Operator

__all__ = ["build_problem", "read_problem"]

_Amount = Annotated[float, Field(ge=0, le=LARGEST, allow_inf_nan=False, strict=True)]


class _OperatorFile(BaseModel):
    model_config = ConfigDict(extra="forbid")

    id: StrictInt
    name: str = ""
    accelerator_time: _Amount
    cpu_time: _Amount
    memory: _Amount = 0.0
    output_time: _Amount = 0.0
    backward: StrictBool = False
    colour: StrictInt | None = None
    on_accelerator: StrictBool = True


class _ProblemFile(BaseModel):
    model_config = ConfigDict(extra="forbid")

    # "schema" would shadow a method of pydantic's base class
    version: Literal["nestopt.maxload/1"] = Field(alias="schema")
    problem: Literal["placement"] = "placement"
    name: str
    accelerators: int = Field(ge=0, strict=True)
    cpus: int = Field(ge=0, strict=True)
    accelerator_memory: _Amount
    operators: list[_OperatorFile] = Field(min_length=1)
    edges: list[tuple[StrictInt, StrictInt]]


def read_problem(data: Any, *, file: str | None = None) -> MaxLoadProblem:
    """A problem from its JSON form (``nestopt.maxload/1``).

    Raises
    ------
    InputError
        Naming file, field and value.
    """
    read = validate_model(_ProblemFile, data, file=file)
    return build_problem(
        read.name,
        read.accelerators,
        read.cpus,
        read.accelerator_memory,
        [Operator(**o.model_dump()) for o in read.operators],
        read.edges,
        file=file,
        operators_field="operators",
    )


def build_problem(
    name: str,
    accelerators: int,
    cpus: int,
    accelerator_memory: float,
    operators: list[Operator],
    edges: list[tuple[int, int]],
    *,
    file: str | None = None,
    operators_field: str,
) -> MaxLoadProblem:
    """A problem whose ids are unique, whose edges lead somewhere, and that has no cycle.

    Raises
    ------
    InputError
        If that does not hold; `operators_field` is what the file calls the operators.
    """
    if accelerators + cpus == 0:
        raise InputError("there is no device: neither an accelerator nor a CPU", file=file)
    position: dict[int, int] = {}
    for index, operator in enumerate(operators):
        if operator.id in position:
            raise InputError(
                f"id {operator.id} is used by entries {position[operator.id]} and {index}",
                file=file,
                field=f"{operators_field}[{index}].id",
            )
        position[operator.id] = index
    before: list[list[int]] = [[] for _ in operators]
    for index, (u, v) in enumerate(edges):
        for end in (u, v):
            if end not in position:
                raise InputError(
                    f"no operator has the id {end}", file=file, field=f"edges[{index}]"
                )
        before[position[v]].append(position[u])
    try:
        topological_order(before)
    except NestoptError as error:
        raise InputError(
            f"{error} (vertices are positions in {operators_field})", file=file, field="edges"
        ) from error
    return MaxLoadProblem(
        name,
        accelerators,
        cpus,
        accelerator_memory,
        tuple(operators),
        tuple(dict.fromkeys(edges)),
    )
