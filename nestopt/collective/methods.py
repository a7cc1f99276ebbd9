"""The collective methods, by name."""

from __future__ import annotations

from nestopt.registry import Method

__all__ = ["METHODS"]

METHODS: dict[str, Method] = {
    "greedy": Method(
        "nestopt.collective.greedy:solve",
        "matching of links and chunks on a time-expanded network; any size",
        ("policy", "restarts", "effort", "store"),
    ),
}
