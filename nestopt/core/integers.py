"""Whole numbers."""

from __future__ import annotations

__all__ = ["divisors"]


def divisors(number: int) -> list[int]:
    """Divisors of a positive integer, ascending."""
    small = [k for k in range(1, int(number**0.5) + 1) if number % k == 0]
    return sorted({*small, *(number // k for k in small)})
