"""The specification of a study, a TOML file, read and checked against its schema.

::

    name = "price-of-structure"               # letters, digits, dots, hyphens
    title = "Structured against general plans"
    time_limit = "60 s"                       # CPU seconds of a cell's process, with a unit; of
                                              # every method that states none
    memory_limit = "4 GiB"                    # of the whole process; likewise
    threads = 1

    [[instances]]                             # any number of blocks
    family = "random chains"                  # a label to group by; default: from the names
    workload = "random-chain:{layers},tight={tight},seed={seed}"
    cluster = ["tree:2x2", "tree:2x3"]        # placement needs workload and cluster
    heterogeneity = ["none", "uplink:0.25,1"] # recipes, several joined by +
    degraded = ["none", "degraded-devices:1,1/2"]
    fail_npus = [0, 1]                        # devices, of a cluster
    seeds = 10                                # 0 to 9; or a list
    space = "megatron-core"                   # the plans that count; default: full
    objective = "iteration-time"
    grid.layers = [4, 6]                      # every {key} of the names
    grid.tight = [0.3, 0.6]

    [[instances]]
    collective = "all-gather:chunks={chunks}" # collectives need collective and topology
    topology = "torus2d:{shape}"
    fail_links = [0, 2]                       # further: fail_groups = ["none", "node,1"],
    connected = true                          # fail_rates = "llama3" with days = [1, 9]
    set.latency = "pipelined"                 # settings of the instance (`nestopt methods`)
    grid.shape = ["3x3", "4x4"]
    grid.chunks = [1, 2]
    seeds = [1, 2, 3]

    [[instances]]
    library = ["ag-dgx1v"]                    # entries of `nestopt library list`
    # or file = ["mine.json"], below the study's directory; so may names of parts be

    [[methods]]
    label = "greedy, 8 restarts"              # default: the method's name; blocks may share one
    method = "greedy"                         # `nestopt methods`
    problem = "collective"                    # only needed if the study has both problems
    set.restarts = 8                          # settings of the method
    seeds = 10                                # of the method itself; default: 0 alone
    time_limit = "5 min"                      # further: memory_limit, threads, backend, rel_gap,
    max.npus = 64                             # and objective and space in place of the instances'
    only.fail_npus = [0]                      # instances with these parameters; also min, max

    [report]                                  # hints for `nestopt study report`, all optional
    group_by = ["family", "fail_npus"]
    baseline = "dp"
    x = "npus"
    metrics = ["gap-to-bound", "time"]

All keys of a block that hold lists are crossed with each other. ``{seed}`` in a name stands for the
instance's seed, and recipes and failures are drawn with it (the suffix ``+seed:N`` of the name);
instances that do not depend on the seed are taken once, with the first one. The names made in this
way are those of the command line: ``nestopt solve --topology NAME`` has the same network.

Every record carries the instance's parameters: ``family``, the names without suffixes, the keys of
the grid, ``heterogeneity``, ``degraded``, ``fail_npus``, ``fail_links``, ``fail_groups``,
``fail_rates``, ``days``, ``instance_seed``, ``size`` (NPUs or devices before failures) and ``npus``
or ``devices`` (alive).
"""

from __future__ import annotations

import re
import tomllib
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from nestopt.core.errors import InputError, unknown_name
from nestopt.core.io import read_text, validate_model
from nestopt.core.pricing import DEFAULT_SET
from nestopt.core.units import parse_bytes, parse_time

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["METRICS", "InstancesFile", "MethodFile", "ReportFile", "StudyFile", "read_spec"]

METRICS = (
    "gap-to-bound",
    "gap-to-optimum",
    "gap-to-best-known",
    "objective",
    "time",
    "primal-integral",
    "solved",
)
_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]*$")


def _listed(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


def _distinct(values: list[Any]) -> list[Any]:
    for position, value in enumerate(values):
        if value in values[:position]:
            raise ValueError(f"{value!r} stands there twice")
    return values


def _seeds(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        if value < 1:
            raise ValueError("expected a positive count or a list of seeds")
        return list(range(value))
    return value


def _seconds(value: Any) -> float:
    return _positive(value, parse_time, "a time with a unit, such as '60 s' or '5 min'")


def _bytes(value: Any) -> float:
    return _positive(value, parse_bytes, "bytes with a unit, such as '4 GiB'")


def _positive(value: Any, parse: Any, expected: str) -> float:
    if not isinstance(value, str):
        raise ValueError(f"expected {expected}")
    number = float(parse(value))
    if not number > 0:
        raise ValueError(f"expected {expected}, above zero")
    return number


def _setting(value: Any) -> Any:
    """The text of a setting as ``--set`` has it: lists with commas, true and false in words."""
    if isinstance(value, list):
        return ",".join(str(_setting(part)) for part in value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


Scalar = bool | int | float | str
Texts = Annotated[
    list[str], BeforeValidator(_listed), AfterValidator(_distinct), Field(min_length=1)
]
Counts = Annotated[
    list[Annotated[int, Field(ge=0, strict=True)]],
    BeforeValidator(_listed),
    AfterValidator(_distinct),
    Field(min_length=1),
]
Days = Annotated[
    list[Annotated[float, Field(ge=0, strict=True)]],
    BeforeValidator(_listed),
    AfterValidator(_distinct),
    Field(min_length=1),
]
Seeds = Annotated[
    list[Annotated[int, Field(ge=0, strict=True)]],
    BeforeValidator(_seeds),
    AfterValidator(_distinct),
    Field(min_length=1),
]
Values = Annotated[
    list[Scalar], BeforeValidator(_listed), AfterValidator(_distinct), Field(min_length=1)
]
Settings = dict[str, Annotated[str, BeforeValidator(_setting)]]
Seconds = Annotated[float, BeforeValidator(_seconds)]
Bytes = Annotated[float, BeforeValidator(_bytes)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class InstancesFile(_Strict):
    """A block ``[[instances]]``."""

    family: str | None = None
    workload: Texts | None = None
    cluster: Texts | None = None
    collective: Texts | None = None
    topology: Texts | None = None
    library: Texts | None = None
    file: Texts | None = None
    heterogeneity: Texts = ["none"]
    degraded: Texts = ["none"]
    fail_npus: Counts = [0]
    fail_links: Counts = [0]
    fail_groups: Texts = ["none"]
    fail_rates: Texts = ["none"]
    days: Days = [0.0]
    connected: bool = False
    objective: str | None = None
    space: str | None = None
    set: Settings = {}
    grid: dict[str, Values] = {}
    seeds: Seeds = [0]


class MethodFile(_Strict):
    """A block ``[[methods]]``."""

    label: str | None = Field(default=None, min_length=1)
    method: str
    problem: Literal["placement", "collective"] | None = None
    set: Settings = {}
    objective: str | None = None
    space: str | None = None
    backend: str | None = None
    rel_gap: float = Field(default=0.0, ge=0, lt=1, strict=True)
    threads: Annotated[int, Field(ge=1, strict=True)] | None = None
    time_limit: Seconds | None = None
    memory_limit: Bytes | None = None
    seeds: Seeds = [0]
    only: dict[str, Values] = {}
    min: dict[str, int | float] = {}
    max: dict[str, int | float] = {}

    @property
    def name(self) -> str:
        """The label, or the method's name."""
        return self.label or self.method


class ReportFile(_Strict):
    """The table ``[report]``."""

    group_by: list[str] = []
    baseline: str | None = None
    x: str | None = None
    metrics: list[Literal[METRICS]] = []  # type: ignore[valid-type]


class StudyFile(_Strict):
    """A whole study."""

    name: str = Field(pattern=_NAME.pattern)
    title: str = ""
    time_limit: Seconds | None = None
    memory_limit: Bytes | None = None
    threads: int = Field(default=1, ge=1, strict=True)
    instances: list[InstancesFile] = Field(min_length=1)
    methods: list[MethodFile] = Field(min_length=1)
    report: ReportFile = ReportFile()
    pricing: str = DEFAULT_SET


def read_spec(path: str | Path) -> StudyFile:
    """The specification in a file, checked against its schema (not yet against the catalogue).

    Raises
    ------
    InputError
        Naming the file, the field, the value found and what was expected.
    """
    file = str(path)
    try:
        data = tomllib.loads(read_text(path))
    except InputError:
        raise
    except (ValueError, OverflowError, RecursionError) as error:
        raise InputError(f"not TOML: {error}", file=file) from error
    _refuse_unknown_keys(data, StudyFile, file, "")
    for key, model in (("instances", InstancesFile), ("methods", MethodFile)):
        blocks = data.get(key, [])
        for index, block in enumerate(blocks if isinstance(blocks, list) else []):
            _refuse_unknown_keys(block, model, file, f"{key}[{index}]")
    _refuse_unknown_keys(data.get("report"), ReportFile, file, "report")
    return validate_model(StudyFile, data, file=file)


def _refuse_unknown_keys(data: Any, model: type[BaseModel], file: str, where: str) -> None:
    """A misspelt key is named with what may have been meant."""
    for key in data if isinstance(data, dict) else ():
        if key not in model.model_fields:
            error = unknown_name("key", key, model.model_fields)
            raise InputError(str(error), file=file, field=where or None)
