"""The documentation, built by Sphinx.

Why Sphinx with MyST-NB and numpydoc: the docstrings are numpydoc already, MyST-NB runs the
notebooks anew at every build (they are Markdown, so a change to them can be read), and formulas and
cross references need no further tool. ::

    pip install -e '.[docs]'
    python -m sphinx -W -b html docs docs/_build

A warning is an error. The pages in ``docs/generated`` are made from the program by
`generated_pages` before the build and are not kept in the repository.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE)]
# The kernels of the notebooks use this source tree too.
os.environ["PYTHONPATH"] = os.pathsep.join(
    filter(None, [str(HERE.parent), os.environ.get("PYTHONPATH")])
)

import generated_pages  # noqa: E402

import nestopt  # noqa: E402

project = "nestopt"
author = "The nestopt developers"
release = version = nestopt.__version__
extensions = [
    "myst_nb",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx-mathjax-offline",  # formulas need no network
    "sphinx_design",
]
source_suffix = {".md": "myst-nb"}
exclude_patterns = ["_build", "jupyter_execute", "Thumbs.db"]
html_theme = "furo"
html_title = f"nestopt {release}"
html_static_path = ["_static"]
html_css_files = ["nestopt.css"]
pygments_style = "tango"

nb_execution_mode = "force"
nb_execution_timeout = 600
nb_execution_raise_on_error = True
nb_execution_show_tb = True
nb_merge_streams = True

myst_enable_extensions = ["amsmath", "colon_fence", "dollarmath"]
myst_heading_anchors = 3
myst_dmath_double_inline = False

numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
autodoc_typehints = "none"
autodoc_member_order = "bysource"

generated_pages.write(HERE / "generated")

# Pages that are read in the repository too link to its files; here these are pages of their own.
_PAGES_OF_FILES = {
    "nestopt/placement/MODEL.md": "generated/placement-model.md",
    "CHANGELOG.md": "generated/changelog.md",
}


def _link_pages(app: Any, name: str, source: list[str]) -> None:
    """Point links to files of the repository to the pages that hold them."""
    for file, page in _PAGES_OF_FILES.items():
        for start in ("", "../"):
            source[0] = source[0].replace(f"]({start}{file})", f"](/{page})")


def setup(app: Any) -> None:
    """Register what this file adds to Sphinx."""
    app.connect("source-read", _link_pages)
