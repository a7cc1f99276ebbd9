"""The form of a bound's witness: which fields each kind has, and that they are whole numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from nestopt.core.errors import CheckError, InputError
from nestopt.core.io import validate_model

if TYPE_CHECKING:
    from nestopt.collective.model.instance import CollectiveInstance

__all__ = ["refuse_malformed"]

Whole = Annotated[int, Field(strict=True, ge=0, lt=2**62)]
Flag = Annotated[bool, Field(strict=True)]


class _Form(BaseModel):
    model_config = ConfigDict(extra="forbid")

    value: Whole
    name: str = ""
    arithmetic: str = ""


class _Cut(_Form):
    kind: Literal["cut"]
    mode: Literal["chunks", "bytes"]
    nodes: list[Whole]
    side: Literal["inside", "outside"]
    links: list[Whole]
    backward: Flag
    need: Annotated[int, Field(strict=True, ge=0)]
    size: Whole | None = None
    threshold: Whole = 0
    node: Whole | None = None
    part: Whole | None = None


class _Delivery(_Form):
    kind: Literal["delivery"]
    part: Whole
    target: Whole
    need: Whole
    sources: list[Whole]
    backward: Flag
    side: Literal["inside", "outside"]
    nodes: list[Whole]
    links: list[Whole]


class _Distance(_Form):
    kind: Literal["distance"]
    part: Whole
    size: Whole | None = None
    source: Whole | None = None
    target: Whole | None = None
    root: Whole | None = None


class _Prices(_Form):
    kind: Literal["prices"]
    prices: Whole | list[Whole]
    # sums over chunks and links may leave 64 bits; Python's integers do not
    cost: Annotated[int, Field(strict=True, ge=0)]
    sold: Annotated[int, Field(strict=True, ge=0)] = 0


class _Partition(_Form):
    kind: Literal["partition"]
    blocks: list[list[Whole]]
    prices: list[Whole]
    cost: Annotated[int, Field(strict=True, ge=0)]
    sold: Annotated[int, Field(strict=True, ge=0)] = 0


class _Merging(_Form):
    kind: Literal["merging"]
    part: Whole
    target: Whole
    merged: Whole
    sums: Whole


class _Spread(_Form):
    kind: Literal["spread"]
    part: Whole
    moment: Whole
    need: Whole
    backward: Flag
    nodes: list[Whole]
    other: list[Whole] | None = None
    early: Whole | None = None
    left: Whole | None = None


class _Growth(_Form):
    kind: Literal["growth"]
    part: Whole
    node: Whole
    begin: Whole
    backward: Flag


class _Trivial(_Form):
    kind: Literal["trivial"]


class _Horizon(BaseModel):
    model_config = ConfigDict(extra="forbid")

    horizon: Whole
    answer: str
    seconds: Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]


class _Search(_Form):
    """Of a bound that nobody can verify; its form is held to all the same."""

    kind: Literal["search"]
    horizons: list[_Horizon] = []


_FORMS: dict[str, type[_Form]] = {
    "cut": _Cut,
    "delivery": _Delivery,
    "distance": _Distance,
    "growth": _Growth,
    "merging": _Merging,
    "partition": _Partition,
    "prices": _Prices,
    "search": _Search,
    "spread": _Spread,
    "trivial": _Trivial,
}


def refuse_malformed(witness: dict[str, Any], instance: CollectiveInstance) -> None:
    """Refuse a witness with missing or unknown fields, with text or fractions, or out of range.

    Raises
    ------
    CheckError
        Naming the field and the value.
    """
    form = _FORMS[str(witness["kind"])]
    try:
        validate_model(form, witness)
    except InputError as error:
        raise CheckError(f"witness: {error}") from error
    nodes, parts = instance.topology.num_nodes, len(instance.collective.parts)
    limits = {
        "nodes": nodes,
        "other": nodes,
        "sources": nodes,
        "links": instance.topology.num_links,
    }
    limits |= dict.fromkeys(("node", "source", "target", "root"), nodes) | {"part": parts}
    for field, limit in limits.items():
        given = witness.get(field)
        for value in given if isinstance(given, list) else [given] if given is not None else []:
            if value >= limit:
                raise CheckError(f"witness: {field}: no {field} {value}; there are {limit}")
