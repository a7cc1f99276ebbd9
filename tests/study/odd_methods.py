"""Methods that misbehave, each in its own way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import Any


def _greedy(instance: Any, options: Any) -> Any:
    from nestopt.collective.greedy.solve import solve

    return solve(instance, options)


def solve_sleep(instance: Any, options: Any) -> Any:
    """Finds something, proves something, and never ends."""
    options.progress(0.0, 9_000_000_000, 1_000_000_000, "")
    options.progress(0.0, 8_000_000_000, 2_000_000_000, "")
    time.sleep(600)


def solve_with_child(instance: Any, options: Any) -> Any:
    """Waits for a process that never ends; its number goes where the test finds it."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    with open(os.environ["CHILD_FILE"], "w") as stream:
        stream.write(str(child.pid))
    options.progress(0.0, None, 1, "")
    child.wait()


def solve_eat(instance: Any, options: Any) -> Any:
    """Takes 20 MB every few milliseconds."""
    eaten = []
    while True:
        eaten.append(bytearray(20_000_000))
        time.sleep(0.01)


def solve_crash(instance: Any, options: Any) -> Any:
    """Ends the process with a message."""
    sys.stderr.write("out of paper\n")
    sys.stderr.flush()
    os._exit(3)


def solve_segfault(instance: Any, options: Any) -> Any:
    """Dies by a signal the first time, and is well the second time, where the file tells."""
    marker = os.environ.get("CRASHED_ONCE")
    if marker is None or not os.path.exists(marker):
        if marker is not None:
            with open(marker, "w"):
                pass
        os.kill(os.getpid(), signal.SIGSEGV)
    return _greedy(instance, options)


def solve_wrong(instance: Any, options: Any) -> Any:
    """Claims too much."""
    result = _greedy(instance, options)
    result.objective -= 1
    return result


def solve_raise(instance: Any, options: Any) -> Any:
    """Raises what no method should."""
    print("a remark on stdout")
    return {}["nothing"]
