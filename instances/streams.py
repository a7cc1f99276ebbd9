"""Random streams: one per purpose and attempt, so that no choice disturbs another."""

from __future__ import annotations

import zlib

import numpy as np

from nestopt.core.errors import InputError

__all__ = ["stream"]


def stream(seed: int, purpose: str, attempt: int = 0) -> np.random.Generator:
    """The generator of one purpose.

    Streams of different purposes are independent: asking for failures does not change the link
    speeds drawn from the same seed. Equal arguments give equal numbers in every process.
    """
    if seed < 0:
        raise InputError(f"{seed}; expected a whole number of at least 0", field="seed")
    key = (zlib.crc32(purpose.encode()), attempt)
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))
