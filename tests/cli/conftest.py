from __future__ import annotations

import sys
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING

import pick_problem
import pytest

from nestopt.cli import main

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Run:
    """What a command left behind."""

    status: int
    out: str
    err: str


@pytest.fixture
def nestopt(capfd: pytest.CaptureFixture[str]) -> Callable[..., Run]:
    """Runs the command line in this process; file descriptors are captured."""

    def run(*words: str) -> Run:
        with pytest.raises(SystemExit) as stop:
            main(words)
        captured = capfd.readouterr()
        return Run(int(stop.value.code or 0), captured.out, captured.err)

    return run


@pytest.fixture
def pick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pick problem in the place of the placement problem."""
    problem, methods = ModuleType("problem"), ModuleType("methods")
    problem.PROBLEM = pick_problem.PROBLEM  # type: ignore[attr-defined]
    methods.METHODS = pick_problem.METHODS  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "nestopt.placement.problem", problem)
    monkeypatch.setitem(sys.modules, "nestopt.placement.methods", methods)
