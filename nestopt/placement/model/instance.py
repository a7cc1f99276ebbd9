"""The placement instance: what a method for placement solves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nestopt.core.errors import InputError
from nestopt.core.pricing import FIRST_SET
from nestopt.placement.model.cluster import Cluster
from nestopt.placement.model.workload import Workload

__all__ = ["SCHEMA", "PlacementInstance"]


SCHEMA = "nestopt.instance/1"


@dataclass(frozen=True, slots=True, eq=False)
class PlacementInstance:
    """What a method for placement solves.

    Attributes
    ----------
    workload : Workload
    cluster : Cluster
    name : str
        ``WORKLOAD on CLUSTER`` unless given.
    pricing : str
        The parameter set that made the figures, where names were given. A file that does not say
        is of the first set.
    """

    workload: Workload
    cluster: Cluster
    name: str = ""
    pricing: str = FIRST_SET

    def __post_init__(self) -> None:
        if not self.name:
            object.__setattr__(self, "name", f"{self.workload.name} on {self.cluster.name}")

    def to_json(self) -> dict[str, Any]:
        """The whole instance as versioned JSON."""
        return {
            "schema": SCHEMA,
            "problem": "placement",
            "name": self.name,
            "workload": self.workload.to_json(),
            "cluster": self.cluster.to_json(),
            **({} if self.pricing == FIRST_SET else {"pricing": self.pricing}),
        }

    @classmethod
    def from_json(cls, data: Any, *, file: str | None = None) -> PlacementInstance:
        """Inverse of `to_json`.

        Raises
        ------
        InputError
            Naming file, field, value and expectation.
        """
        if not isinstance(data, dict) or data.get("schema") != SCHEMA:
            found = data.get("schema") if isinstance(data, dict) else data
            raise InputError(f"{found!r}; expected {SCHEMA!r}", file=file, field="schema")
        if data.get("problem") != "placement":
            raise InputError(
                f"{data.get('problem')!r}; expected 'placement'", file=file, field="problem"
            )
        for key in ("workload", "cluster"):
            if key not in data:
                raise InputError("is missing", file=file, field=key)
        extra = sorted(set(data) - {"schema", "problem", "name", "workload", "cluster", "pricing"})
        if extra:
            raise InputError(
                "is unknown; expected name, workload, cluster, pricing", file=file, field=extra[0]
            )
        name, pricing = data.get("name", ""), data.get("pricing", FIRST_SET)
        for key, value in (("name", name), ("pricing", pricing)):
            if not isinstance(value, str):
                raise InputError(f"{value!r}; expected text", file=file, field=key)
        return cls(
            Workload.from_json(data["workload"], file=file),
            Cluster.from_json(data["cluster"], file=file),
            name,
            pricing,
        )
