"""What all tests need of the process that they run in."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from hypothesis import settings

# A loaded machine is no failure; `--hypothesis-profile=thorough` looks longer
settings.register_profile("default-run", max_examples=40, deadline=None)
settings.register_profile("thorough", max_examples=500, deadline=None)
settings.load_profile("default-run")

# The tests start some hundred processes. Where modules may not be compiled beside their sources,
# each would compile all of them again: they are kept in a folder that pytest owns.
if sys.dont_write_bytecode:
    kept = Path(__file__).parents[1] / ".pytest_cache" / "bytecode"
    sys.pycache_prefix = os.environ["PYTHONPYCACHEPREFIX"] = str(kept)
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def pytest_configure() -> None:
    """Interrupts arrive even if the tests were started in the background, which ignores them."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
