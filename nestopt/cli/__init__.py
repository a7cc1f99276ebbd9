"""The command line: `main` is the console script ``nestopt``.

Each command has a module of its own, which imports whatever is heavy when it runs, so that
``nestopt --help`` costs no more than typer itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its status.

    Parameters
    ----------
    argv : sequence of str, optional
        The words after the program's name; those of the process by default.
    """
    from nestopt.cli.interrupts import Interrupts

    # a signal may come while the commands are still being imported
    with Interrupts():
        from nestopt.cli.app import main as run

        run(argv)
