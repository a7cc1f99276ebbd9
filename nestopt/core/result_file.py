"""The schema of a result file."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from nestopt.core.termination import Limit, Reason

__all__ = ["ResultFile"]

# infinities are text in JSON; a picosecond count stays an integer
Number = int | float | Literal["inf", "-inf"]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class TerminationFile(_Strict):
    """Why the run ended."""

    reason: Reason
    limit: Limit


class ResultFile(_Strict):
    """``nestopt.result/1``."""

    schema_: Literal["nestopt.result/1"] = Field(alias="schema")
    problem: Literal["placement", "collective"]
    instance: dict[str, Any]
    method: str
    settings: dict[str, Any] = {}
    termination: TerminationFile
    objective: Number | None
    bound: Number | None
    gap: Number | None = None
    seconds: float = Field(ge=0)
    seed: int = 0
    threads: int = Field(default=1, ge=1)
    solution: dict[str, Any] | None = None
    witness: dict[str, Any] | None = None
    infeasible_because: tuple[str, ...] = ()
    stats: dict[str, Any] = {}
    versions: dict[str, str] = {}
