"""The flag of `nestopt.core.stop` for compiled loops.

The flag is an integer at an address that differs from process to process, while compiled code is
kept on disk. So the code names a symbol, and the symbol is bound to the address here, before any
kernel is loaded.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, cast

import llvmlite.binding as llvm
from llvmlite import ir
from numba import types
from numba.core.event import Listener, register
from numba.extending import intrinsic

from nestopt.core.stop import FLAG, KernelStopped, raise_owed

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["KernelStopped", "overdue", "stopped"]

_SYMBOL = "nestopt_stop_flag"

llvm.add_symbol(_SYMBOL, ctypes.addressof(FLAG))


class _BetweenPasses(Listener):
    """Ends a compilation between two passes of the compiler, where nothing is half done."""

    def on_start(self, event: Any) -> None:
        raise_owed()

    def on_end(self, event: Any) -> None:
        """An exception here would hide one of the pass."""


register("numba:run_pass", _BetweenPasses())  # type: ignore[no-untyped-call]


def _compare(least: int) -> Any:
    """Code that says whether the flag is at least so much; one load from memory."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        word = ir.IntType(64)
        flag = builder.module.globals.get(_SYMBOL)
        if flag is None:
            flag = ir.GlobalVariable(builder.module, word, _SYMBOL)
        value = builder.load_atomic(flag, "monotonic", 8)
        return builder.icmp_signed(">=", value, ir.Constant(word, least))

    return types.boolean(), generate


def _stopped(context: Any) -> Any:
    return _compare(1)


def _overdue(context: Any) -> Any:
    return _compare(2)


stopped: Callable[[], bool] = cast("Any", intrinsic(_stopped))
"""For kernels that improve what they have: whether to return it now."""

overdue: Callable[[], bool] = cast("Any", intrinsic(_overdue))
"""For kernels that have nothing to return before they end: whether to raise `KernelStopped`."""
