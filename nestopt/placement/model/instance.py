"""The placement instance: workload, cluster, plan space and objective, the whole problem."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from nestopt.core.errors import InputError
from nestopt.core.pricing import FIRST_SET
from nestopt.placement.model.cluster import Cluster
from nestopt.placement.model.space import PlanSpace
from nestopt.placement.model.words import Objective, Shares
from nestopt.placement.model.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["SCHEMA", "SCHEMAS", "PlacementInstance"]


SCHEMA = "nestopt.instance/2"
SCHEMAS = ("nestopt.instance/1", SCHEMA)
"""What is read. An instance of schema 1 states neither space nor objective and has the defaults;
the space of a *result* of schema 1 is in its settings (`nestopt.placement.model.of_result`)."""


_DEFAULT = PlanSpace()


@dataclass(frozen=True, slots=True)
class PlacementInstance:
    """What a method for placement solves; equal by value.

    Attributes
    ----------
    workload : Workload
    cluster : Cluster
    space : PlanSpace
        The plans that count.
    objective : Objective
    name : str
        ``WORKLOAD on CLUSTER`` unless given.
    pricing : str
        The parameter set that made the figures, where names were given. A file that does not say
        is of the first set.
    """

    workload: Workload
    cluster: Cluster
    space: PlanSpace = _DEFAULT
    objective: Objective = Objective.ITERATION_TIME
    name: str = ""
    pricing: str = FIRST_SET

    def __post_init__(self) -> None:
        for field, kind in (("workload", Workload), ("cluster", Cluster), ("space", PlanSpace)):
            if not isinstance(getattr(self, field), kind):
                raise InputError(
                    f"{getattr(self, field)!r}; expected a {kind.__name__}", field=field
                )
        try:
            object.__setattr__(self, "objective", Objective(self.objective))
        except ValueError:
            raise InputError(
                f"{self.objective!r}; expected one of {', '.join(Objective)}", field="objective"
            ) from None
        if self.space.shares is Shares.UNEQUAL and self.objective is Objective.BOTTLENECK:
            raise InputError(
                "unequal, but the objective is bottleneck, the time of one micro-batch, which no "
                "share changes; expected equal shares or iteration-time",
                field="space.shares",
            )
        if not self.name:
            object.__setattr__(self, "name", f"{self.workload.name} on {self.cluster.name}")

    def over(
        self, space: PlanSpace | None = None, objective: Objective | str | None = None
    ) -> PlacementInstance:
        """The same job and cluster over another space, or with another objective."""
        return replace(
            self,
            space=self.space if space is None else space,
            objective=self.objective if objective is None else Objective(objective),
        )

    def to_json(self) -> dict[str, Any]:
        """The whole instance as versioned JSON; equal instances have equal JSON."""
        return {
            "schema": SCHEMA,
            "problem": "placement",
            "name": self.name,
            "workload": self.workload.to_json(),
            "cluster": self.cluster.to_json(),
            **({} if self.pricing == FIRST_SET else {"pricing": self.pricing}),
            "space": self.space.to_json(),
            "objective": str(self.objective),
        }

    @classmethod
    def from_json(cls, data: Any, *, file: str | None = None) -> PlacementInstance:
        """Inverse of `to_json`; schema 1 is read too.

        Raises
        ------
        InputError
            Naming file, field, value and expectation.
        """
        schema = data.get("schema") if isinstance(data, dict) else data
        if not isinstance(data, dict) or schema not in SCHEMAS:
            raise InputError(
                f"{schema!r}; expected {SCHEMA!r} (or {SCHEMAS[0]!r})", file=file, field="schema"
            )
        if data.get("problem") != "placement":
            raise InputError(
                f"{data.get('problem')!r}; expected 'placement'", file=file, field="problem"
            )
        for key in ("workload", "cluster"):
            if key not in data:
                raise InputError("is missing", file=file, field=key)
        first = schema == SCHEMAS[0]
        stated = () if first else ("space", "objective", "pricing")
        known = ("name", "workload", "cluster", *stated)
        extra = sorted(set(data) - {"schema", "problem", *known})
        if extra:
            raise InputError(f"is unknown; expected {', '.join(known)}", file=file, field=extra[0])
        name, pricing = data.get("name", ""), data.get("pricing", FIRST_SET)
        for key, value in (("name", name), ("pricing", pricing)):
            if not isinstance(value, str):
                raise InputError(f"{value!r}; expected text", file=file, field=key)
        space, objective = _stated(data, file)
        return cls(
            Workload.from_json(data["workload"], file=file),
            Cluster.from_json(data["cluster"], file=file),
            space,
            objective,
            name,
            pricing,
        )


def _stated(data: Mapping[str, Any], file: str | None) -> tuple[PlanSpace, Objective]:
    """Space and objective of a file, the defaults where it states none."""
    objective = data.get("objective", "iteration-time")
    if objective not in tuple(Objective):
        raise InputError(
            f"{objective!r}; expected one of {', '.join(Objective)}", file=file, field="objective"
        )
    space = PlanSpace.from_json(data["space"], file=file) if "space" in data else PlanSpace()
    return space, Objective(objective)
