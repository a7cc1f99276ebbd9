"""The schema of a result file."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictFloat, StrictInt

from nestopt.core.termination import Limit, Reason

__all__ = ["ResultFile"]

# infinities are text in JSON; a picosecond count stays an integer
# (text such as "72" is none of them)
# (a longer integer may be no float either)
Whole = Annotated[int, Field(strict=True, gt=-(2**63), lt=2**63)]
Number = Whole | StrictFloat | Literal["inf", "-inf"]
Seconds = Annotated[float, Field(ge=0, strict=True, allow_inf_nan=False)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class TerminationFile(_Strict):
    """Why the run ended."""

    reason: Reason
    limit: Limit


class InstanceFile(_Strict):
    """The instance that was solved, by which the file stands alone."""

    name: str = ""
    sha256: str | None = None
    data: Any = None


class ResultFile(_Strict):
    """``nestopt.result/1``."""

    schema_: Literal["nestopt.result/1"] = Field(alias="schema")
    problem: Literal["placement", "collective"]
    instance: InstanceFile
    method: str
    settings: dict[str, Any] = {}
    termination: TerminationFile
    objective: Number | None
    bound: Number | None
    gap: Number | None = None
    seconds: Seconds
    seed: StrictInt = 0
    threads: Annotated[int, Field(ge=1, strict=True)] = 1
    solution: dict[str, Any] | None = None
    witness: dict[str, Any] | None = None
    infeasible_because: tuple[str, ...] = ()
    stats: dict[str, Any] = {}
    versions: dict[str, str] = {}
