"""Workloads: a DAG of operators with their work, sizes and strategies.

The meaning of every field is in ``MODEL.md``, section 3.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from nestopt.core.errors import InputError, naming
from nestopt.core.io import validate_model
from nestopt.core.units import LARGEST, parse_bytes, parse_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

__all__ = ["WORKLOAD_SCHEMA", "Edge", "Operator", "Tied", "Workload"]

WORKLOAD_SCHEMA = "nestopt.workload/1"


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator (a whole transformer block, an embedding, a convolution, ...).

    Work and sizes are per sample (one sequence); parameters are counts. See ``MODEL.md``. Sizes may
    be text with a unit ("16 MiB"), times too ("1.2 ms").
    Operators of equal `kind` must be equal in everything but their name; the default kind is the
    name itself.
    """

    name: str
    kind: str = ""
    flops: float = 0.0
    flops_attn: float = 0.0
    bytes_full: float = 0.0
    bytes_shard: float = 0.0
    bytes_attn: float = 0.0
    params: float = 0.0
    params_expert: float = 0.0
    act_full: float = 0.0
    act_shard: float = 0.0
    act_attn: float = 0.0
    act_input: float = 0.0
    tp_bytes: float = 0.0
    tp_fwd: int = 0
    tp_bwd: int = 0
    cp_bytes: float = 0.0
    ep_bytes: float = 0.0
    logits_bytes: float = 0.0
    flops_expert: float = 0.0
    rows: float = 0.0
    x_fwd: tuple[float, ...] = ()
    x_bwd: tuple[float, ...] = ()
    tensor_divides: tuple[int, ...] = ()
    x_divides: tuple[int, ...] = ()
    context_divides: int = 0
    experts: int = 0
    time_fwd: Mapping[str, float] = field(default_factory=dict)
    time_bwd: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.kind:
            object.__setattr__(self, "kind", self.name)
        where = f"operator {self.name}"
        for f in fields(self):
            # One form of every number, so that equal operators are written alike.
            if f.type == "float":
                read = parse_bytes if "bytes" in f.name or f.name.startswith("act_") else None
                number = _number(getattr(self, f.name), f"{where}.{f.name}", read)
                object.__setattr__(self, f.name, number)
        for name in ("x_fwd", "x_bwd"):
            sizes = tuple(_number(v, f"{where}.{name}", parse_bytes) for v in getattr(self, name))
            object.__setattr__(self, name, sizes)
        for name in ("time_fwd", "time_bwd"):
            times = {
                k: _number(v, f"{where}.{name}", parse_time) for k, v in getattr(self, name).items()
            }
            object.__setattr__(self, name, times)
        if self.flops_expert > self.flops:
            raise InputError(
                f"{self.flops_expert!r}; expected at most flops, {self.flops!r}",
                field=f"{where}.flops_expert",
            )
        if self.flops_expert and not (self.rows and self.experts):
            raise InputError(
                "is 0; products of experts need rows and experts",
                field=f"{where}.{'experts' if self.rows else 'rows'}",
            )
        if set(self.time_fwd) != set(self.time_bwd):
            raise InputError(
                "time_fwd and time_bwd name different device types", field=f"operator {self.name}"
            )

    def cost_key(self) -> tuple[Any, ...]:
        """Everything that the operator's cost depends on."""
        return tuple(
            tuple(sorted(value.items())) if isinstance(value, dict) else value
            for f in fields(self)
            if f.name not in ("name", "kind")
            for value in (getattr(self, f.name),)
        )

    def allows(self, x: int, y: int, z: int, context: int, expert: int) -> bool:
        """Whether the operator can be split to these degrees (``MODEL.md``, section 4)."""
        return (
            all(value % y == 0 for value in self.tensor_divides)
            and (x * y * z == 1 or bool(self.tensor_divides))
            and all(value % x == 0 for value in self.x_divides)
            and (x == 1 or bool(self.x_divides))
            and (context == 1 or (self.context_divides > 0 and self.context_divides % context == 0))
            and (self.experts == 0 or self.experts % expert == 0)
        )


@dataclass(frozen=True, slots=True)
class Edge:
    """A tensor of `bytes` per sample from operator `source` to operator `target`."""

    source: int
    target: int
    bytes: float

    def __post_init__(self) -> None:
        where = f"edge {self.source} -> {self.target}, bytes"
        object.__setattr__(self, "bytes", _number(self.bytes, where, parse_bytes))


@dataclass(frozen=True, slots=True)
class Tied:
    """Operators `first` and `second` share `params` parameters (tied embeddings)."""

    first: int
    second: int
    params: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "params", _number(self.params, "tied.params"))


@dataclass(frozen=True, eq=False)
class Workload:
    """A training job: operators, edges, global batch and bytes per parameter.

    Operators are in a topological order (every edge goes from a smaller to a larger index).

    Attributes
    ----------
    model_flops : float or None
        Model FLOPs of one iteration (forward + backward, no recompute), for the MFU; None takes
        three times the operators' forward FLOPs.
    sequence : int
        Tokens of a sample. 0: the number that every operator's context degree must divide, where
        all say the same (of a transformer, its sequence length).
    """

    name: str
    operators: tuple[Operator, ...]
    edges: tuple[Edge, ...]
    global_batch: int
    bytes_weight: float = 2.0
    bytes_gradient: float = 4.0
    bytes_optimizer: float = 12.0
    tied: Tied | None = None
    model_flops: float | None = None
    sequence: int = 0

    def __post_init__(self) -> None:
        for name in ("bytes_weight", "bytes_gradient", "bytes_optimizer"):
            object.__setattr__(self, name, _number(getattr(self, name), name))
        if self.model_flops is not None:
            object.__setattr__(self, "model_flops", _number(self.model_flops, "model_flops"))
        if not (isinstance(self.sequence, int) and 0 <= self.sequence < 2**31):
            raise InputError(f"{self.sequence!r}; expected 0 or more tokens", field="sequence")
        count = len(self.operators)
        if count == 0:
            raise InputError("no operator; expected at least one", field="operators")
        if self.global_batch < 1:
            raise InputError(f"{self.global_batch}; expected at least 1", field="global_batch")
        names = [o.name for o in self.operators]
        if len(set(names)) != count:
            twice = next(n for n in names if names.count(n) > 1)
            raise InputError(f"the name {twice!r} is used twice", field="operators")
        kinds: dict[str, tuple[Any, ...]] = {}
        for index, operator in enumerate(self.operators):
            if kinds.setdefault(operator.kind, operator.cost_key()) != operator.cost_key():
                raise InputError(
                    f"kind {operator.kind!r} has operators that differ",
                    field=f"operators[{index}]",
                )
        seen: set[tuple[int, int]] = set()
        for index, edge in enumerate(self.edges):
            where = f"edges[{index}]"
            if not (0 <= edge.source < count and 0 <= edge.target < count):
                raise InputError(f"{edge.source} -> {edge.target}: no such operator", field=where)
            if edge.source >= edge.target:
                raise InputError(
                    f"{edge.source} -> {edge.target}: operators must be listed in topological "
                    "order, so an edge goes to a larger index",
                    field=where,
                )
            if (edge.source, edge.target) in seen:
                raise InputError(f"{edge.source} -> {edge.target} is listed twice", field=where)
            seen.add((edge.source, edge.target))
        if self.tied is not None:
            for which in (self.tied.first, self.tied.second):
                if not 0 <= which < count:
                    raise InputError(f"operator {which} does not exist", field="tied")
            if self.tied.params > self.operators[self.tied.second].params:
                raise InputError("more shared parameters than the operator has", field="tied")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Workload):
            return NotImplemented
        return all(getattr(self, f.name) == getattr(other, f.name) for f in fields(self))

    def __hash__(self) -> int:
        return hash((self.name, self.global_batch, len(self.operators), self.edges))

    @property
    def num_operators(self) -> int:
        """How many operators."""
        return len(self.operators)

    @cached_property
    def predecessors(self) -> tuple[tuple[int, ...], ...]:
        """For every operator the operators it needs."""
        lists: list[list[int]] = [[] for _ in self.operators]
        for edge in self.edges:
            lists[edge.target].append(edge.source)
        return tuple(tuple(sorted(row)) for row in lists)

    @cached_property
    def is_chain(self) -> bool:
        """Whether the order of the operators is forced: each needs the one before it."""
        have = {(e.source, e.target) for e in self.edges}
        return all((i, i + 1) in have for i in range(len(self.operators) - 1))

    @cached_property
    def total_params(self) -> float:
        """Parameters, shared ones once."""
        total = sum(o.params + o.params_expert for o in self.operators)
        return total - (self.tied.params if self.tied else 0.0)

    @cached_property
    def iteration_flops(self) -> float:
        """Model FLOPs of one iteration."""
        if self.model_flops is not None:
            return self.model_flops
        return 3 * self.global_batch * sum(o.flops + o.flops_attn for o in self.operators)

    @property
    def tokens_per_sample(self) -> int | None:
        """Tokens of a sample, where the workload says it: see `sequence`."""
        if self.sequence:
            return self.sequence
        lengths = {o.context_divides for o in self.operators}
        return lengths.pop() if len(lengths) == 1 and 0 not in lengths else None

    def cut_bytes(self, ideal: Iterable[int]) -> float:
        """Bytes per sample that leave a downset of operators (``MODEL.md``, section 3)."""
        inside = set(ideal)
        largest: dict[int, float] = {}
        for edge in self.edges:
            if edge.source in inside and edge.target not in inside:
                largest[edge.source] = max(largest.get(edge.source, 0.0), edge.bytes)
        return sum(largest[u] for u in sorted(largest))

    def with_batch(self, global_batch: int) -> Workload:
        """The same job with another global batch."""
        flops = self.model_flops
        if flops is not None:
            flops = flops / self.global_batch * global_batch
        return replace(self, global_batch=global_batch, model_flops=flops)

    def to_json(self) -> dict[str, Any]:
        """The workload as JSON (schema ``nestopt.workload/1``); default values are left out."""
        plain = Operator("_")
        operators = []
        for operator in self.operators:
            row: dict[str, Any] = {"name": operator.name}
            for f in fields(operator)[1:]:
                value = getattr(operator, f.name)
                if f.name == "kind":
                    if value != operator.name:
                        row["kind"] = value
                elif value != getattr(plain, f.name):
                    row[f.name] = _plain(value)
            operators.append(row)
        return {
            "schema": WORKLOAD_SCHEMA,
            "name": self.name,
            "global_batch": self.global_batch,
            "bytes_weight": self.bytes_weight,
            "bytes_gradient": self.bytes_gradient,
            "bytes_optimizer": self.bytes_optimizer,
            "operators": operators,
            "edges": [asdict(e) for e in self.edges],
            "tied": asdict(self.tied) if self.tied else None,
            "model_flops": self.model_flops,
            **({"sequence": self.sequence} if self.sequence else {}),
        }

    @classmethod
    def from_json(cls, data: Any, *, file: str | None = None) -> Workload:
        """A workload from its JSON form.

        Raises
        ------
        InputError
            Naming file, field, value and expectation.
        """
        from nestopt.placement.model.files import WorkloadFile

        model = validate_model(WorkloadFile, data, file=file)
        with naming(file):
            operators = []
            for entry in model.operators:
                values = entry.model_dump()
                values["kind"] = values["kind"] or ""
                for name in ("x_fwd", "x_bwd", "tensor_divides", "x_divides"):
                    values[name] = tuple(values[name])
                operators.append(Operator(**values))
            return cls(
                model.name,
                tuple(operators),
                tuple(Edge(e.source, e.target, e.bytes) for e in model.edges),
                model.global_batch,
                model.bytes_weight,
                model.bytes_gradient,
                model.bytes_optimizer,
                Tied(model.tied.first, model.tied.second, model.tied.params)
                if model.tied
                else None,
                model.model_flops,
                model.sequence,
            )

    @classmethod
    def chain(
        cls,
        name: str,
        operators: Sequence[Operator],
        edge_bytes: float | str | Sequence[float | str],
        global_batch: int,
        **other: Any,
    ) -> Workload:
        """A chain of operators; `edge_bytes` per sample ("16 MiB" too), one or one an edge."""
        count = len(operators) - 1
        one = isinstance(edge_bytes, (int, float, str))
        sizes: list[Any] = [edge_bytes] * count if one else list(edge_bytes)  # type: ignore[arg-type]
        edges = tuple(Edge(i, i + 1, sizes[i]) for i in range(count))
        return cls(name, tuple(operators), edges, global_batch, **other)


def _number(
    value: Any, where: str, read: Callable[[str | float, str | None], float] | None = None
) -> float:
    """A float of a number, finite and not negative; `read` reads text with a unit."""
    if isinstance(value, str) and read is not None:
        value = read(value, where)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
        raise InputError(f"{value!r}; expected a finite number of at least zero", field=where)
    if value and not 1 / LARGEST <= value <= LARGEST:
        raise InputError(f"{value!r}; expected {1 / LARGEST:g} to {LARGEST:g}", field=where)
    return float(value) + 0.0


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(value)
    return dict(value) if isinstance(value, dict) else value
