"""Every table, caption and figure of the paper compiles, and nothing is wider than the text."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import _folders  # noqa: F401 - makes the next ones importable
import pytest

from nestopt.study.tables import Table

PAPER = Path(__file__).resolve().parents[2] / "paper_figs"
HEAD = r"""\documentclass{article}
\usepackage{booktabs}
\usepackage{graphicx}
\extrafloats{100}
\begin{document}
"""


def compiled(body: str, folder: Path) -> str:
    """Compile a document; what its log says.

    Raises
    ------
    AssertionError
        If a command is unknown or the document has another error.
    """
    program = shutil.which("pdflatex") or shutil.which("tectonic")
    if program is None:
        pytest.skip("no LaTeX here: needs pdflatex or tectonic")
    (folder / "paper.tex").write_text(f"{HEAD}{body}\n\\end{{document}}\n", encoding="utf-8")
    options = ["-interaction=nonstopmode", "-halt-on-error", "-draftmode"]
    if Path(program).name.startswith("tectonic"):
        options = ["--keep-logs"]
    done = subprocess.run(
        [program, *options, "paper.tex"], cwd=folder, capture_output=True, text=True,
        check=False, timeout=200, errors="replace",
    )  # fmt: skip
    log = (folder / "paper.log").read_text(encoding="utf-8", errors="replace")
    assert done.returncode == 0, "\n".join(re.findall(r"^!.*(?:\n.*){3}", log, re.M)) or log[-900:]
    return log


def faults(log: str) -> list[str]:
    """Lines of a log that tell of something that leaves the text block or is not there."""
    return re.findall(
        r"^(?:Overfull .*|LaTeX Warning: .*too large.*|Missing character.*)$", log, re.M
    )


@pytest.mark.parametrize("file", sorted(path.name for path in PAPER.glob("tables/*.float.tex")))
def test_a_table_compiles_within_the_page(file: str, tmp_path: Path) -> None:
    text = (PAPER / "tables" / file).read_text(encoding="utf-8")
    assert faults(compiled(text, tmp_path)) == []
    # the parts as an author includes them, with the caption from its own file
    name = file.removesuffix(".float.tex")
    caption = (PAPER / "tables" / f"{name}.caption.tex").as_posix()
    body = (
        rf"\begin{{table}}\caption{{\protect\input{{{caption}}}}}\footnotesize\setlength{{\tabcolsep}}{{3pt}}"
        rf"\input{{{(PAPER / 'tables' / name).as_posix()}.tex}}\end{{table}}"
    )
    assert faults(compiled(body, tmp_path)) == []


def test_the_figures_and_their_captions_compile(tmp_path: Path) -> None:
    names = sorted(path.stem for path in PAPER.glob("figures/*.pdf"))
    assert len(names) >= 7
    start = (PAPER / "figures").as_posix()
    body = "\n".join(
        rf"\begin{{figure}}\includegraphics[width=\textwidth]{{{start}/{name}.pdf}}"
        rf"\caption{{\protect\input{{{start}/{name}.tex}}}}\end{{figure}}"
        for name in names
    )
    assert faults(compiled(body, tmp_path)) == []


def test_a_table_that_is_too_wide_is_seen(tmp_path: Path) -> None:
    # what the other tests look for is what LaTeX says of a fault
    words = " & ".join(["a column of many words"] * 9)
    log = compiled(rf"\begin{{tabular}}{{lllllllll}}{words}\\\end{{tabular}}", tmp_path)
    assert faults(log)
    with pytest.raises(AssertionError, match="Undefined control sequence"):
        compiled(r"\nosuchcommand", tmp_path)


def test_texts_of_a_user_compile(tmp_path: Path) -> None:
    """Names with marks that LaTeX reads as commands come out as they are."""
    odd = r"50 % of a_b & c#d {e} $f$ ^g ~h \i <j>"
    rows = [[odd, 1.5], ["", None], [" ".join([odd] * 4), 2]]
    table = Table("odd", ["name", "seconds"], rows, f"About {odd}.", 1)
    assert faults(compiled("\n".join(table.floats()), tmp_path)) == []
