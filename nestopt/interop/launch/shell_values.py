"""What a shell computes: sums, tests, and lists as text."""

from __future__ import annotations

import ast
import operator
import re
import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["arithmetic", "holds", "join"]

_LARGEST = 2**63
_OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    # towards zero, as the shell divides
    ast.Div: lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1),
    ast.Mod: lambda a, b: abs(a) % abs(b) * (1 if a >= 0 else -1),
}
_COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "-eq": operator.eq,
    "-ne": operator.ne,
    "-gt": operator.gt,
    "-ge": operator.ge,
    "-lt": operator.lt,
    "-le": operator.le,
}


def arithmetic(text: str) -> int | None:
    """The value of a whole-number expression; None if it is none (a variable is left, say)."""
    if len(text) > 1000:
        return None
    try:
        return _value(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError):
        return None


def _value(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        value = node.value
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = -_value(node.operand)
    elif isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        value = _OPERATORS[type(node.op)](_value(node.left), _value(node.right))
    else:
        raise ValueError("no whole-number expression")
    if abs(value) >= _LARGEST:
        raise ValueError("too large")
    return value


def holds(words: Sequence[str]) -> bool | None:
    """Whether a test ``[ a = b ]`` holds; None if it is none that text alone decides."""
    if len(words) < 3 or (words[0], words[-1]) not in (("[", "]"), ("[[", "]]")):
        return {"true": True, "false": False}.get(" ".join(words))
    inner = list(words[1:-1])
    if inner[0] == "!":
        rest = holds([words[0], *inner[1:], words[-1]])
        return None if rest is None else not rest
    if len(inner) == 1:
        return bool(inner[0])
    if len(inner) == 2 and inner[0] in ("-z", "-n"):
        return bool(inner[1]) == (inner[0] == "-n")
    if len(inner) != 3:
        return None
    left, sign, right = inner
    if sign in ("=", "==", "!="):
        return None if re.search(r"[*?\[]", right) else (left == right) == (sign != "!=")
    numbers = arithmetic(left), arithmetic(right)
    if sign in _COMPARISONS and numbers[0] is not None and numbers[1] is not None:
        return _COMPARISONS[sign](numbers[0], numbers[1])
    return None


def join(items: Sequence[str]) -> str:
    """A list as text that splits into it again; arguments with their values stay bare."""
    return " ".join(
        shlex.quote(item) if re.search(r"\s", item) and not item.startswith("-") else item
        for item in items
    )
