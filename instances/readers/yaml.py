"""YAML without anchors, tags or surprises of size."""

from __future__ import annotations

import re
from importlib import import_module
from typing import TYPE_CHECKING, Any

from nestopt.core.errors import InputError
from nestopt.instances.readers.base import MOST_DIGITS

if TYPE_CHECKING:
    from nestopt.instances.readers.base import Source

__all__ = ["load_yaml"]

# anything that YAML could take for a number: bases, exponents, separators, times of day
_NUMBER = re.compile(r"[-+]?(0[xob])?[0-9a-fA-F_.:eE+-]*")


def load_yaml(source: Source) -> tuple[Any, dict[str, int]]:
    """The value of a YAML file, and the line of each key of its top level.

    Raises
    ------
    InputError
        If PyYAML is missing, the text is no YAML, a key of a mapping comes twice, a number has more
        than `MOST_DIGITS` characters, or it has an alias: aliases can make a small file unboundedly
        large, and no format here needs them.
    """
    try:
        yaml: Any = import_module("yaml")
    except ImportError as error:
        raise InputError(
            "reading YAML needs PyYAML: pip install pyyaml", file=source.path
        ) from error
    try:
        for event in yaml.parse(source.text, Loader=yaml.SafeLoader):
            if isinstance(event, yaml.AliasEvent):
                raise source.error(
                    "has an alias; files with aliases are refused",
                    event.start_mark.line + 1,
                    f"*{event.anchor}",
                )
            if (
                isinstance(event, yaml.ScalarEvent)
                and event.style is None
                and len(event.value) > MOST_DIGITS
                and _NUMBER.fullmatch(event.value)
            ):
                # turning digits into a number takes time that grows with their square
                raise source.error(
                    f"a number of {len(event.value)} characters; expected at most {MOST_DIGITS}",
                    event.start_mark.line + 1,
                )
        tree = yaml.compose(source.text, Loader=yaml.SafeLoader)
        _refuse_twins(source, yaml, tree)
        value = yaml.safe_load(source.text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        raise source.error(
            f"not YAML: {getattr(error, 'problem', error)}", mark.line + 1 if mark else None
        ) from error
    except (ValueError, OverflowError, RecursionError) as error:
        raise source.error(f"not YAML that can be read: {error}") from error
    lines = {}
    if isinstance(tree, yaml.MappingNode):
        lines = {str(key.value): key.start_mark.line + 1 for key, _ in tree.value}
    return value, lines


def _refuse_twins(source: Source, yaml: Any, node: Any) -> None:
    """A mapping with the same key twice is an error, at any depth."""
    waiting = [node]
    while waiting:
        node = waiting.pop()
        if isinstance(node, yaml.SequenceNode):
            waiting += node.value
        elif isinstance(node, yaml.MappingNode):
            seen = set()
            for key, value in node.value:
                if str(key.value) in seen:
                    raise source.error("is given twice", key.start_mark.line + 1, str(key.value))
                seen.add(str(key.value))
                waiting.append(value)
