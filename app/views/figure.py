"""Shows a Plotly figure so that a live refresh keeps the zoom and hidden traces.

Streamlit's own chart element (1.67) recreates the chart when its data change, and loses the zoom
(streamlit#5107). This component passes new data to `Plotly.react`, which keeps them while
`layout.uirevision` is unchanged (https://plotly.com/javascript/uirevision/). Plotly's program is
that of the Python package, served by `tuner.app.server`: the page loads nothing from other servers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import streamlit as st
from streamlit.components.v2.types import ComponentRenderer

from tuner.app.charts.style import Figure, to_json
from tuner.app.library import LIBRARY_PATH, figure_script


@cache
def _component() -> ComponentRenderer:
    return st.components.v2.component("figure", js=figure_script(), isolate_styles=False)


def show_figure(
    figure: Figure | str, *, key: str, on_trial: Callable[[int], None] | None = None
) -> None:
    """Shows a figure.

    Args:
        figure: The figure, or its cached JSON.
        key: Its position on the page; also the name of a file that it is saved to.
        on_trial: Called with the number of a trial whose point was clicked.
    """
    data = {
        "figure": figure if isinstance(figure, str) else to_json(figure),
        "library": LIBRARY_PATH,
        "name": key,
        "is_heard": on_trial is not None,
    }

    def hear() -> None:
        number = st.session_state[key].get("trial")
        if on_trial is not None and isinstance(number, int):
            on_trial(number)

    _component()(data=data, key=key, on_trial_change=hear)
