"""The pages that the program writes: commands, settings, methods, exact models, changelog.

``python docs/generated_pages.py DIRECTORY`` writes them without Sphinx.
"""

from __future__ import annotations

import re
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["PAGES", "write"]

ROOT = Path(__file__).parent.parent


def commands() -> str:
    """The help of every command, as the program prints it."""
    import typer

    from nestopt.cli.app import app

    lines = [
        "# Commands",
        "",
        "What `nestopt COMMAND --help` prints, for every command. This page is made from the "
        "program when the documentation is built.",
        "",
    ]
    for words, command in _leaves((), typer.main.get_command(app)):
        name = " ".join(("nestopt", *words))
        context = command.make_context(
            name, [], resilient_parsing=True, max_content_width=80, terminal_width=80
        )
        lines += [f"## {name}", "", "```text", command.get_help(context), "```", ""]
    return "\n".join(lines)


def _leaves(words: tuple[str, ...], command: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command below a group with its words, the groups left out."""
    below = getattr(command, "commands", None)
    if below is None:
        yield words, command
        return
    for name, child in below.items():
        yield from _leaves((*words, name), child)


def settings() -> str:
    """The tables of settings, by problem."""
    lines = [
        "# Settings",
        "",
        "A setting is given as `--set KEY=VALUE` on the command line, and by name in Python "
        "(`nestopt.solve(..., batch=64)`; a key with a hyphen goes into `settings={...}`). Which "
        "method reads which is on [the page of methods](methods.md). This page is made from "
        "`nestopt/placement/settings.py` and `nestopt/collective/settings.py` when the "
        "documentation is built.",
        "",
    ]
    for problem in ("placement", "collective"):
        rows = import_module(f"nestopt.{problem}.settings").SETTINGS
        lines += [f"## {problem.capitalize()}", "", "| key | value | default | what | example |"]
        lines += ["|---|---|---|---|---|"]
        for key, row in rows.items():
            form = f"{row.form}: {', '.join(row.words)}" if row.words else row.form
            cells = [f"`{key}`", form, row.default, row.meaning, f"`{row.example}`"]
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
        lines.append("")
    return "\n".join(lines)


def methods() -> str:
    """The methods by problem."""
    lines = [
        "# Methods",
        "",
        "The methods of `nestopt solve --method` and `nestopt.solve(method=...)`. This page is "
        "made from the tables of methods when the documentation is built; `nestopt methods` "
        "prints the same, with methods that you have installed.",
        "",
    ]
    for problem in ("placement", "collective"):
        table = import_module(f"nestopt.{problem}.methods").METHODS
        lines += [
            f"## {problem.capitalize()}",
            "",
            "| method | what | own settings |",
            "|---|---|---|",
        ]
        for name, row in table.items():
            keys = ", ".join(f"`{key}`" for key in row.all_settings)
            lines.append(f"| `{name}` | {row.summary} | {keys} |")
        lines.append("")
    return "\n".join(lines)


def exact_models() -> str:
    """The exact models, both models of a problem side by side."""
    return import_module("nestopt.formulations.page").page()


def placement_model() -> str:
    """``MODEL.md``, the text that code, checker and simulator implement."""
    return (ROOT / "nestopt" / "placement" / "MODEL.md").read_text(encoding="utf-8")


def changelog() -> str:
    """``CHANGELOG.md``."""
    return (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


PAGES: dict[str, Callable[[], str]] = {
    "changelog.md": changelog,
    "commands.md": commands,
    "exact-models.md": exact_models,
    "methods.md": methods,
    "placement-model.md": placement_model,
    "settings.md": settings,
}
"""What makes each page, by file name."""


def write(directory: Path) -> None:
    """Write all pages; a page that has not changed keeps its time, so that builds stay short."""
    directory.mkdir(exist_ok=True)
    for name, make in PAGES.items():
        text = re.sub(r"[ \t]+\n", "\n", make().rstrip() + "\n")
        path = directory / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    write(Path(sys.argv[1]))
