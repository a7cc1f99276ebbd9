"""What every instance is, whichever problem it states."""

from __future__ import annotations

from typing import Any, Protocol

__all__ = ["Instance"]


class Instance(Protocol):
    """An instance of either problem."""

    @property
    def name(self) -> str:
        """A name for people."""

    def to_json(self) -> dict[str, Any]:
        """The whole instance as JSON, ``schema`` and ``problem`` included."""
