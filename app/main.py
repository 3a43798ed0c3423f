"""Entry of the dashboard: `tuner dashboard` runs this file with Streamlit."""

from __future__ import annotations

import streamlit as st

from tuner.app.views import (
    best,
    compare,
    control,
    convergence,
    curves,
    devices,
    metrics,
    parameters,
    shell,
    studies,
    trials,
)

#: Without icons: Streamlit makes the page's icon the tab's, and fetches that from another server.
_PAGES = (
    (studies.page, "Studies", "studies"),
    (convergence.page, "Convergence", "convergence"),
    (curves.page, "Learning curves", "curves"),
    (metrics.page, "Metrics", "metrics"),
    (parameters.page, "Parameters", "parameters"),
    (trials.page, "Trials", "trials"),
    (compare.page, "Compare", "compare"),
    (devices.page, "Devices", "devices"),
    (best.page, "Best", "best"),
    (control.page, "Control", "control"),
)


def main() -> None:
    st.set_page_config(page_title="tuner", layout="wide")
    pages = [
        st.Page(page, title=title, url_path=path, default=path == "studies")
        for page, title, path in _PAGES
    ]
    titles = [title for _, title, _ in _PAGES]
    st.session_state[shell.TRIALS_PAGE_KEY] = pages[titles.index("Trials")]
    st.session_state[shell.COMPARE_PAGE_KEY] = pages[titles.index("Compare")]
    chosen = st.navigation(pages)
    shell.guarded(shell.sidebar)()
    st.set_page_config(page_title=shell.tab_title(chosen.title), layout="wide")
    chosen.run()


if __name__ == "__main__":
    main()
