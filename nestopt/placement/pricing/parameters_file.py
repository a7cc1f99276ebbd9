"""The form of a file of parameters, schema ``nestopt.parameters/1``."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from nestopt.core.units import parse_bandwidth, parse_bytes

__all__ = ["SetFile"]


def _bytes(value: object) -> object:
    return parse_bytes(value) if isinstance(value, str) else value


def _rate(value: object) -> object:
    return parse_bandwidth(value) if isinstance(value, str) else value


_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Fraction = Annotated[float, Field(gt=0, le=1)]
_Bytes = Annotated[float, BeforeValidator(_bytes), Field(ge=0, allow_inf_nan=False)]
_Rate = Annotated[float, BeforeValidator(_rate), Field(gt=0, allow_inf_nan=False)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class DeviceFile(_Strict):
    """A device type; with a base set, only what differs."""

    peak: _Positive = 1.0
    memory: _Bytes = 0.0
    memory_bandwidth: _Rate = 1.0
    reserve: _Bytes = 0.0
    efficiency: _Fraction = 1.0
    half_flops: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    memory_fraction: _Fraction = 1.0
    fitted_on: list[str] = []
    sources: dict[str, str] = {}


class FrameworkFile(_Strict):
    """What a framework hides."""

    hides: list[str]
    overlap: bool = False
    source: str = ""


class SetFile(_Strict):
    """A set of parameters."""

    schema_: Literal["nestopt.parameters/1"] = Field(alias="schema")
    name: Annotated[str, Field(min_length=1)]
    note: str = ""
    base: str | None = None
    transformers: dict[Literal["causal", "dropout", "lean", "grouped"], bool] = {}
    frameworks: dict[str, FrameworkFile] = {}
    devices: dict[str, DeviceFile] = {}
