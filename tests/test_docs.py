"""The documentation: its pages, links, commands and Python; slow: the whole site, notebooks run."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import nestopt

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
sys.path.insert(0, str(DOCS))
import generated_pages  # noqa: E402

PAGES = sorted(
    path
    for path in DOCS.rglob("*.md")
    if not {"generated", "_build", "jupyter_execute"} & set(path.relative_to(DOCS).parts)
)
NAMES = [str(path.relative_to(DOCS)) for path in PAGES]
FENCE = re.compile(
    r"^(?P<fence>`{3,}|:{3,})(?P<info>[^\n]*)\n(?P<body>.*?)^(?P=fence)[ ]*$", re.M | re.S
)
NOT_RUN = ":class: not-run"


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("generated") / "pages"
    generated_pages.write(folder)
    return {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}


def blocks(text: str) -> list[tuple[str, str]]:
    """Language and text of every block of code, those inside of other blocks too."""
    found = []
    for match in FENCE.finditer(text):
        info, body = match["info"].strip(), match["body"]
        if match["fence"].startswith(":") or info.startswith("{grid"):
            found += blocks(body)
        else:
            found.append((info, body))
    return found


def commands(text: str) -> list[tuple[str, bool]]:
    """Command lines that start nestopt, and whether they are whole: those in blocks are."""
    lines = []
    for language, body in blocks(text):
        if language in ("sh", "{code-block} sh"):
            lines += [(line, True) for line in body.replace("\\\n", " ").splitlines()]
    prose = FENCE.sub("", text)
    lines += [(" ".join(code.split()), False) for code in re.findall(r"`([^`]+)`", prose)]
    found = []
    for line, whole in lines:
        start = re.search(r"(?:^|[\s/])nestopt (?=\S)", line)
        if start:
            found.append((line[start.end() :].partition(" # ")[0].strip(), whole))
    return found


@cache
def program() -> Any:
    import typer

    from nestopt.cli.app import app

    return typer.main.get_command(app)


def parsed(line: str, whole: bool) -> list[str]:
    """Parse a command line without running it; the words of its command."""
    rest = [word for word in shlex.split(line) if word != "..."]
    command = program()
    context = command.make_context("nestopt", [], resilient_parsing=True)
    path = []
    while rest and hasattr(command, "commands"):
        if rest[0].startswith("-") or (not whole and rest[0].isupper()):
            break
        name, command, rest = command.resolve_command(context, rest)
        assert command is not None, f"{line}: no such command"
        context = command.make_context(name, [], parent=context, resilient_parsing=True)
        path.append(name)
    known = {text for p in command.params for text in (*p.opts, *p.secondary_opts)}
    options = [word.partition("=")[0] for word in rest if word.startswith("-")]
    assert set(options) <= known | {"-h", "--help", "--debug"}, f"{line}: unknown options"
    if whole and not {"-h", "--help"} & set(rest):
        assert path, line
        command.make_context(path[-1], list(rest), parent=context.parent)
    return path


def slugs(text: str) -> set[str]:
    """Anchors of a page's headings."""
    titles = re.findall(r"^#{1,3} (.+)$", FENCE.sub("", text), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def test_every_page_is_in_the_table_of_contents(generated: dict[str, str]) -> None:
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    listed = {
        re.sub(r".*<(.+)>$", r"\1", line.strip())
        for info, body in blocks(index)
        if info == "{toctree}"
        for line in body.splitlines()
        if line.strip() and not line.startswith(":")
    }
    there = {name.removesuffix(".md") for name in NAMES} - {"index"}
    there |= {f"generated/{name.removesuffix('.md')}" for name in generated}
    assert listed == there


@pytest.mark.parametrize("name", NAMES)
def test_links_lead_somewhere(name: str, generated: dict[str, str]) -> None:
    text = (DOCS / name).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)\s]+)\)", FENCE.sub("", text)):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        path = (DOCS / name).parent / file if file else DOCS / name
        made = generated.get(path.name) if path.parent.name == "generated" else None
        if made is None and not path.exists():
            path = ROOT / file  # a page that is read in the repository, too
        assert made is not None or path.exists(), f"{name}: {target}"
        if anchor:
            assert anchor in slugs(made or path.read_text(encoding="utf-8")), f"{name}: {target}"


@pytest.mark.parametrize("name", NAMES)
def test_command_lines_parse(name: str) -> None:
    for line, whole in commands((DOCS / name).read_text(encoding="utf-8")):
        parsed(line, whole)


@pytest.mark.parametrize(
    "text",
    [
        "```sh\nnestopt solve --colective all-gather\n```",
        "```sh\nnestopt solve --seed many --collective all-gather --topology ring:4\n```",
        "```sh\nnestopt check\n```",
        "a line with `nestopt slove x` in it",
        "a line with `nestopt solve ... --sed 1` in it",
    ],
)
def test_wrong_command_lines_are_found(text: str) -> None:
    ((line, whole),) = commands(text)
    with pytest.raises(Exception) as caught:
        parsed(line, whole)
    said = getattr(caught.value, "format_message", caught.value.__str__)()
    assert re.search("colective|--seed|RESULT|slove|--sed", said), said


def python_pages() -> list[str]:
    return [
        name
        for name, path in zip(NAMES, PAGES, strict=True)
        if any(info == "python" for info, _ in blocks(path.read_text(encoding="utf-8")))
    ]


@pytest.mark.parametrize("name", python_pages())
def test_python_of_a_page_runs(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    monkeypatch.chdir(tmp_path)
    from nestopt.core.registry import unregister

    names: dict[str, Any] = {"nestopt": nestopt}
    try:
        for number, (info, body) in enumerate(blocks((DOCS / name).read_text(encoding="utf-8"))):
            if info == "python":
                exec(compile(body, f"{name}, block {number}", "exec"), names)
    finally:
        unregister("collective.best-of-two")
        __import__("matplotlib.pyplot").pyplot.close("all")


@pytest.mark.parametrize(
    ("collective", "topology", "expected"),
    [
        ("all-gather", "ring:4", {"distance": 2, "ingress": 2}),
        ("all-gather", "line:3", {"delivery": 2}),
        ("all-reduce", "fully-connected:4", {"merging": 2}),
        ("broadcast", "switch:8", {"growth": 5}),
        ("all-to-all", "ring:4", {"work": 2}),
        ("all-reduce", "ring:4", {"partition": 2}),
    ],
)
def test_worked_examples_of_bounds(
    collective: str, topology: str, expected: dict[str, int]
) -> None:
    """The figures of docs/mathematics/bounds.md, in milliseconds."""
    rows = {row.name: row.value for row in nestopt.bound(collective, topology)}
    assert {name: rows[name] / 10**9 for name in expected} == expected


def test_no_python_is_passed_over() -> None:
    """Python stands in blocks that this module runs, in cells, or is marked as not to run."""
    for name, path in zip(NAMES, PAGES, strict=True):
        for info, body in blocks(path.read_text(encoding="utf-8")):
            if "py" in info and info not in ("python", "{code-cell} python"):
                assert NOT_RUN in body, f"{name}: {info}"


def test_cells_of_notebooks_are_python() -> None:
    cells = 0
    for path in (DOCS / "notebooks").glob("*.md"):
        text = path.read_text(encoding="utf-8")
        assert text.startswith("---\nfile_format: mystnb\n"), path.name
        for info, body in blocks(text):
            if info == "{code-cell} python":
                compile(body, path.name, "exec")
                cells += 1
    assert cells >= 15


def test_generated_pages_hold_every_command_setting_and_method(generated: dict[str, str]) -> None:
    from nestopt.core.registry import method_names

    assert {"## nestopt solve", "## nestopt study run"} <= set(
        generated["commands.md"].splitlines()
    )
    for problem in ("placement", "collective"):
        for method in method_names(problem):
            assert f"| `{method}` |" in generated["methods.md"]
    assert "| `microbatch` |" in generated["settings.md"]
    assert "### stage_order" in generated["exact-models.md"]


@pytest.mark.slow
def test_the_site_builds_without_warnings(tmp_path: Path) -> None:
    for module in (
        "sphinx",
        "myst_nb",
        "numpydoc",
        "sphinx_design",
        "furo",
        "ipykernel",
        "sphinx-mathjax-offline",
    ):
        pytest.importorskip(module, reason="needs the extra docs")
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-b", "html", str(DOCS),
         str(tmp_path / "site"), "-d", str(tmp_path / "trees")],
        env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    page = (tmp_path / "site" / "notebooks" / "own_graph.html").read_text(encoding="utf-8")
    assert "cell_output" in page
