"""What all tests need of the process that they run in."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """Interrupts arrive even if the tests were started in the background, which ignores them."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
