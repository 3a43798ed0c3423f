"""Entry of the dashboard: `tuner dashboard` runs this file with Streamlit."""

from __future__ import annotations

import streamlit as st

from app.views import best, convergence, devices, shell, studies, trials

#: Without icons: Streamlit makes the page's icon the tab's, and fetches that from another server.
_PAGES = (
    (studies.page, "Studies", "studies"),
    (convergence.page, "Convergence", "convergence"),
    (trials.page, "Trials", "trials"),
    (devices.page, "Devices", "devices"),
    (best.page, "Best", "best"),
)


def main() -> None:
    st.set_page_config(page_title="tuner", layout="wide")
    pages = [
        st.Page(page, title=title, url_path=path, default=path == "studies")
        for page, title, path in _PAGES
    ]
    chosen = st.navigation(pages)
    shell.guarded(shell.sidebar)()
    chosen.run()


main()
