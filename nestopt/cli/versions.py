"""``nestopt show-versions``."""

from __future__ import annotations

from nestopt.cli.inputs import thread_count
from nestopt.cli.output import print_json
from nestopt.cli.parameters import JsonOption
from nestopt.core.result import versions

__all__ = ["show_versions"]

SCHEMA = "nestopt.versions/1"
_MORE = ("pydantic", "typer", "rich", "matplotlib", "distributed")


def show_versions(json: JsonOption = False) -> None:
    """Versions of nestopt, Python and every library that matters; for bug reports.

    \b
    Examples:
      nestopt show-versions
      nestopt show-versions --json
    """
    import platform
    from importlib.metadata import PackageNotFoundError, version

    found = versions()
    for package in _MORE:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    machine = {
        "system": platform.platform(),
        "machine": platform.machine(),
        "threads": thread_count(None),
    }
    if json:
        print_json({"schema": SCHEMA, "versions": found, "machine": machine})
        return
    for name, value in (found | machine).items():
        print(f"{name:<14} {value}")
