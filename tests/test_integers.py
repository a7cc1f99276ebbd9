"""Whole numbers."""

from __future__ import annotations

from nestopt.core.integers import divisors


def test_divisors_are_all_and_ascending() -> None:
    for number in range(1, 200):
        assert divisors(number) == [d for d in range(1, number + 1) if number % d == 0]
