"""What all tests need of the process that they run in."""

from __future__ import annotations

import signal

from hypothesis import settings

# A loaded machine is no failure; `--hypothesis-profile=thorough` looks longer
settings.register_profile("default-run", max_examples=40, deadline=None)
settings.register_profile("thorough", max_examples=500, deadline=None)
settings.load_profile("default-run")


def pytest_configure() -> None:
    """Interrupts arrive even if the tests were started in the background, which ignores them."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
