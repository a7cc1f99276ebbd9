"""Plan spaces as text: what a command line or a file states, and what a table prints."""

from __future__ import annotations

from dataclasses import fields, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from nestopt.core.errors import InputError, UsageError, unknown_name
from nestopt.placement.model.plan import Hides
from nestopt.placement.model.space import SPACE_NAMES, PlanSpace
from nestopt.placement.model.words import (
    ALL,
    Decomposition,
    Layout,
    Recompute,
    ScheduleName,
    Shares,
    Structure,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nestopt.placement.model.words import Degrees

__all__ = ["SPACE_SETTINGS", "describe_space", "parse_space", "space_from_json", "space_text"]

_FIELD_OF = {
    **{key: key for key in ("tensor", "context", "expert", "zero", "recompute", "sequence")},
    **{key: key for key in ("microbatch", "replicas", "chunks", "uniform", "decomposition")},
    "layout": "layouts",
    "schedule": "schedules",
    "overlap": "overlap",
    "hides": "hides",
    "structure": "structure",
    "shares": "shares",
}
SPACE_SETTINGS = tuple(_FIELD_OF)
"""The keys that state a space in text, ``--set KEY=VALUE`` at the command line."""

_SWITCH = {"0": False, "1": True, "false": False, "true": True, "off": False, "on": True}


def parse_space(text: str | Mapping[str, str], base: PlanSpace | None = None) -> PlanSpace:
    """The space that a text or pairs of text state.

    Parameters
    ----------
    text : str or mapping
        Words apart by blanks: a name of `SPACE_NAMES`, a structure, and ``KEY=VALUE`` with a key of
        `SPACE_SETTINGS` and values apart by commas, or ``all``. A mapping holds the pairs alone.
    base : PlanSpace, optional
        What is not stated is as in this space; the default space unless given. The structure of a
        name is its own, unless this space is general.

    Raises
    ------
    InputError
        Naming the key, the value and what was expected.
    UsageError
        If a word or key is unknown (with a suggestion).
    """
    space = PlanSpace() if base is None else base
    pairs: dict[str, str] = {}
    chosen: Structure | None = None
    if isinstance(text, str):
        for word in text.split():
            key, equals, value = word.partition("=")
            if equals:
                if key in pairs:
                    raise UsageError(f"plan space {text!r}: {key} is given twice")
                pairs[key] = value
            elif word in SPACE_NAMES:
                general = space.structure is Structure.GENERAL
                space = SPACE_NAMES[word]
                if general:
                    space = replace(space, structure=Structure.GENERAL)
            elif word in tuple(Structure):
                chosen = Structure(word)
            else:
                raise unknown_name("plan space", word, (*SPACE_NAMES, *map(str, Structure)))
    else:
        pairs = dict(text)
    if chosen is not None:
        space = replace(space, structure=chosen)
    changes: dict[str, Any] = {}
    for key, value in pairs.items():
        if key not in _FIELD_OF:
            raise unknown_name("key of a plan space", key, SPACE_SETTINGS)
        changes[_FIELD_OF[key]] = _parsed(key, value)
    if "decomposition" in changes and "overlap" not in changes:
        fourd = changes["decomposition"] == Decomposition.FOUR_D
        changes["overlap"] = (False, True) if fourd else (False,)
    if "chunks" in changes and "schedules" not in changes and changes["chunks"] is not ALL:
        changes["schedules"] = space.schedules
    if "schedules" in changes and ScheduleName.INTERLEAVED not in changes["schedules"]:
        changes.setdefault("chunks", ALL)
    try:
        return replace(space, **changes)
    except InputError as error:
        names = {field: key for key, field in _FIELD_OF.items()}
        field = names.get(error.field or "", error.field)
        message = str(error).removeprefix(f"{error.field}: ")
        raise InputError(message, field=f"plan space, {field}") from error


def _parsed(key: str, text: str) -> Any:
    parts = [part.strip() for part in text.split(",")]
    if key in ("decomposition", "structure", "uniform", "shares") and len(parts) != 1:
        raise InputError(f"{text!r}; expected one word", field=f"plan space, {key}")
    if key in ("decomposition", "structure", "shares"):
        return text
    if key in ("recompute", "layout", "schedule"):
        words = {"recompute": Recompute, "layout": Layout, "schedule": ScheduleName}[key]
        return tuple(words) if parts == ["all"] else parts
    if key in ("uniform", "sequence", "overlap"):
        known = [_SWITCH.get(part) for part in parts]
        if None in known:
            raise InputError(
                f"{text!r}; expected true or false (or both, apart by a comma)",
                field=f"plan space, {key}",
            )
        return known[0] if key == "uniform" else tuple(known)
    if key == "hides":
        try:
            return tuple(_flags(part.split("+")) for part in parts)
        except UsageError as error:
            words_known = ", ".join(Hides(7).words)
            raise InputError(
                f"{text!r}; expected some of {words_known} (joined by +), or none",
                field=f"plan space, {key}",
            ) from error
    if parts == ["all"]:
        return (0, 1, 2, 3) if key == "zero" else ALL
    try:
        return tuple(int(part) for part in parts)
    except ValueError:
        raise InputError(
            f"{text!r}; expected integers apart by commas, or all", field=f"plan space, {key}"
        ) from None


def _flags(words: Sequence[str]) -> Hides:
    return Hides.of_words(word for word in words if word != "none")


def space_from_json(data: Any, *, file: str | None = None) -> PlanSpace:
    """The space in a file: a text, or an object with the fields of `PlanSpace`.

    Raises
    ------
    InputError
        Naming file, field, value and expectation.
    """
    if isinstance(data, str):
        try:
            return parse_space(data)
        except (InputError, UsageError) as error:
            raise InputError(str(error), file=file, field="space") from error
    if not isinstance(data, dict):
        raise InputError(f"{data!r}; expected a text or an object", file=file, field="space")
    known = [*(f.name for f in fields(PlanSpace)), "orders"]
    for key in data:
        if key not in known:
            raise InputError(
                f"is unknown; expected some of {', '.join(known)}", file=file, field=f"space.{key}"
            )
    degrees = ("tensor", "context", "expert", "microbatch", "replicas", "chunks")
    values: dict[str, Any] = {
        key: ALL if key in degrees and value == "all" else value for key, value in data.items()
    }
    for key in degrees:
        if isinstance(values.get(key), str):
            raise InputError(
                f"{values[key]!r}; expected integers or 'all'", file=file, field=f"space.{key}"
            )
    if "structure" in values:
        values["structure"] = _recorded(values["structure"], values.pop("orders", ""), file)
    elif "orders" in values:
        raise InputError("is given without structure", file=file, field="space.orders")
    if "hides" in values:
        try:
            values["hides"] = tuple(_flags(words) for words in values["hides"])
        except (TypeError, UsageError) as error:
            raise InputError(
                f"{values['hides']!r}; expected lists of {', '.join(Hides(7).words)}",
                file=file,
                field="space.hides",
            ) from error
    try:
        return PlanSpace(**values)
    except InputError as error:
        message = str(error).removeprefix(f"{error.field}: ")
        raise InputError(message, file=file, field=f"space.{error.field}") from error


def _recorded(word: Any, orders: Any, file: str | None) -> Any:
    """The structure of a file (`Structure.recorded`); an unknown word is left to `PlanSpace`."""
    if orders not in ("", "any") or (orders and word != "structured"):
        raise InputError(
            f"{orders!r}; expected 'any' where the structure is 'structured', or none",
            file=file,
            field="space.orders",
        )
    return Structure.of_record(word, orders) if word in tuple(Structure) else word


def space_text(space: PlanSpace, *, structure: bool = True) -> str:
    """The shortest text that `parse_space` reads as the space: a name and what differs.

    Parameters
    ----------
    structure : bool
        Whether the text states a structure that is not the name's own.
    """
    best: list[str] = []
    for name, base in SPACE_NAMES.items():
        words = [name]
        for key, field in _FIELD_OF.items():
            value = getattr(space, field)
            implied = getattr(base, field)
            if key == "overlap" and space.decomposition is not base.decomposition:
                fourd = space.decomposition is Decomposition.FOUR_D
                implied = (False, True) if fourd else (False,)
            if value != implied and (structure or key != "structure"):
                words.append(f"{key}={_written(value)}")
        if not best or len(words) < len(best):
            best = words
    return " ".join(best)


def _written(value: Any) -> str:
    if value is ALL:
        return "all"
    if isinstance(value, Hides):
        return "+".join(value.words) or "none"
    if isinstance(value, tuple):
        return ",".join(_written(v) for v in value)
    return str(value).lower()


def describe_space(space: PlanSpace) -> str:
    """A space in a line: what it leaves out, its schedules and its structure."""
    parts = [
        f"{name} {_ranges(degrees)}"
        for name, degrees in (
            ("tensor", space.tensor),
            ("context", space.context),
            ("expert", space.expert),
        )
        if degrees is not ALL
    ]
    if not parts:
        parts = ["every degree"]
    elif len(parts) < 3:
        parts.append("every other degree")
    if space.decomposition is Decomposition.FOUR_D:
        parts.append("4D decompositions")
    if space.overlap != (False,):
        parts.append("overlap" if space.overlap == (True,) else "with overlap or without")
    if space.hides != (Hides.NONE,):
        parts.append(f"hides {_written(space.hides).replace(',', ' or ')}")
    if space.zero != (0, 1, 2, 3):
        parts.append(f"ZeRO {_ranges(space.zero)}")
    if space.recompute != tuple(Recompute):
        parts.append(f"recompute {_alternatives(space.recompute)}")
    if space.sequence != (False, True):
        parts.append("sequence parallel" if space.sequence[0] else "no sequence parallelism")
    if space.replicas is not ALL:
        parts.append(f"replicas {_ranges(space.replicas)}")
    if space.microbatch is not ALL:
        parts.append(f"micro-batch {_ranges(space.microbatch)}")
    parts.append(_alternatives([_schedule(word, space.chunks) for word in space.schedules]))
    if space.uniform:
        parts.append("one configuration")
    if space.layouts != tuple(Layout):
        parts.append(f"layout {space.layouts[0]}")
    if space.shares is Shares.UNEQUAL:
        parts.append("unequal replicas")
    return ", ".join([*parts, str(space.structure)])


def _schedule(word: ScheduleName, chunks: Degrees) -> str:
    if word is not ScheduleName.INTERLEAVED:
        return str(word)
    return f"{word} ({'any' if chunks is ALL else _ranges(chunks)} chunks)"


def _alternatives(words: Sequence[str]) -> str:
    return " or ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else words[0]


def _ranges(numbers: tuple[int, ...]) -> str:
    low, high = numbers[0], numbers[-1]
    if len(numbers) > 2 and numbers == tuple(range(low, high + 1)):
        return f"{low}-{high}"
    if len(numbers) > 2 and all(b == 2 * a for a, b in pairwise(numbers)):
        return f"{low}-{high} (powers of two)" if low == 1 else f"{low}-{high} (doubling)"
    return "/".join(map(str, numbers))
