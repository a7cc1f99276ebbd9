"""The form of what a placement result says beside its plan: witness, report, settings."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictStr

from nestopt.core.errors import CheckError, InputError
from nestopt.core.io import validate_model

__all__ = ["refuse_malformed"]

_Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
_Amount = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=0)]
_Count = Annotated[int, Field(strict=True, ge=1)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _Group(_Strict):
    operators: _Count
    config: StrictStr


class _Witness(_Strict):
    kind: StrictStr = ""
    name: StrictStr = ""
    bound: StrictStr = ""
    space: StrictStr = ""
    relaxes: StrictStr = ""
    arithmetic: StrictStr = ""
    general_bound: _Number | None = None
    open: dict[str, _Number | Literal["inf", "-inf"]] = {}
    flops: _Amount | None = None
    speed: _Amount | None = None
    # of the relaxation: its pipeline
    complete: StrictBool = True
    value: _Number | None = None
    replicas: _Count = 1
    microbatch: _Count = 1
    schedule: StrictStr = ""
    chunks: _Count = 1
    stages: list[_Group] = []


class _Row(_Strict):
    seconds: _Amount | None = None
    sync: _Amount | None = None
    memory: _Amount | None = None


class _Report(_Strict):
    stages: list[_Row] = []
    seconds: list[_Amount] = []
    sync: list[_Amount] = []
    memory: list[_Amount] = []


def refuse_malformed(witness: dict[str, Any] | None, report: Any) -> None:
    """Refuse unknown fields, and text or truth values where numbers belong.

    Raises
    ------
    CheckError
        Naming the field and the value.
    """
    try:
        if witness is not None:
            validate_model(_Witness, witness)
    except InputError as error:
        raise CheckError(f"witness: {error}") from error
    try:
        if report is not None:
            validate_model(_Report, report)
    except InputError as error:
        raise CheckError(f"solution.report: {error}") from error
