"""The command line: `main` is the console script ``nestopt``.

Each command has a module of its own, which imports whatever is heavy when it runs, so that
``nestopt --help`` costs no more than typer itself.
"""

from nestopt.cli.app import main

__all__ = ["main"]
