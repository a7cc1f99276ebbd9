"""The placement methods, by name."""

from __future__ import annotations

from nestopt.registry import Method

__all__ = ["METHODS"]

METHODS: dict[str, Method] = dict[str, Method]()
