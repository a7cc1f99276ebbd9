"""Which cases of a test run by default, and which with ``pytest -m slow``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from _pytest.mark import ParameterSet

__all__ = ["slow"]


def slow(cases: Iterable[Any]) -> list[ParameterSet]:
    """Cases for ``pytest.mark.parametrize`` that run with ``-m slow`` only.

    Parameters
    ----------
    cases : iterable
        A tuple is the values of several parameters, anything else the value of one. Write
        ``[*quick, *slow(rest)]``.
    """
    return [
        pytest.param(*(case if type(case) is tuple else (case,)), marks=pytest.mark.slow)
        for case in cases
    ]
