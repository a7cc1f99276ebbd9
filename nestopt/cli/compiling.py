"""The first run compiles kernels, which takes a while: said on stderr, with progress."""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

__all__ = ["announce_compilation"]


def announce_compilation(*, quiet: bool) -> None:
    """Tell of every kernel that is compiled from now on; kernels of the cache are not compiled.

    numba takes a second to import, so that nothing is imported here: the listener is put in place
    when a method imports it.

    Parameters
    ----------
    quiet : bool
        Tell nothing.
    """
    if quiet:
        return
    if "numba" in sys.modules:
        _listen()
    elif not any(isinstance(finder, _WhenNumbaComes) for finder in sys.meta_path):
        sys.meta_path.insert(0, _WhenNumbaComes())


class _WhenNumbaComes(MetaPathFinder):
    """Finds nothing; notices that the first compiled kernel is about to be defined."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        # numba is whole once a module of nestopt is imported behind it
        spec = getattr(sys.modules.get("numba"), "__spec__", None)
        if name.startswith("nestopt.") and spec and not getattr(spec, "_initializing", False):
            sys.meta_path.remove(self)
            _listen()
        return None


_LISTENING: list[Any] = []


def _listen() -> None:
    if _LISTENING:
        return
    from numba.core.event import Listener, register

    class Teller(Listener):
        """Counts kernels as their compilation begins."""

        def __init__(self) -> None:
            self.begun: set[str] = set()

        def on_start(self, event: Any) -> None:
            dispatcher = event.data.get("dispatcher")
            name = getattr(getattr(dispatcher, "py_func", None), "__qualname__", "a kernel")
            self.tell(str(name))

        def on_end(self, event: Any) -> None:
            """Nothing to tell."""

        def tell(self, name: str) -> None:
            if not self.begun:
                print(
                    "nestopt: compiling kernels; this happens once after installation or update",
                    file=sys.stderr,
                )
            if name in self.begun:
                # the same kernel for other types
                return
            self.begun.add(name)
            if sys.stderr.isatty():
                print(
                    f"\r\033[Knestopt: compiling kernel {len(self.begun)}: {name}",
                    end="",
                    file=sys.stderr,
                    flush=True,
                )
            elif len(self.begun) % 10 == 0:
                print(f"nestopt: {len(self.begun)} kernels compiled", file=sys.stderr)

    teller = Teller()
    _LISTENING.append(teller)
    register("numba:compile", teller)
