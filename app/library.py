"""Plotly's program for pages, from the Python package."""

from __future__ import annotations

from pathlib import Path

import plotly

#: With its version: a browser may keep it for good.
LIBRARY_PATH = f"/plotly-{plotly.__version__}.js"


def library_file() -> Path:
    return Path(plotly.__file__).with_name("package_data") / "plotly.min.js"


def figure_script() -> str:
    """An ES module whose default export, `mount`, draws a figure into an element."""
    folder = Path(__file__).parent / "views"
    names = ("sketch.js", "figure_words.js", "parallel.js", "figure.js")
    return "".join((folder / name).read_text() for name in names)
