"""Entry of the dashboard: `tuner dashboard` runs this file with Streamlit."""

from __future__ import annotations

import streamlit as st

from app.views import best, convergence, devices, shell, studies, trials

_PAGES = (
    (studies.page, "Studies", "studies", ":material/list:"),
    (convergence.page, "Convergence", "convergence", ":material/trending_down:"),
    (trials.page, "Trials", "trials", ":material/table_rows:"),
    (devices.page, "Devices", "devices", ":material/memory:"),
    (best.page, "Best", "best", ":material/star:"),
)


def main() -> None:
    st.set_page_config(page_title="tuner", layout="wide")
    pages = [
        st.Page(page, title=title, url_path=path, icon=icon, default=path == "studies")
        for page, title, path, icon in _PAGES
    ]
    chosen = st.navigation(pages)
    shell.guarded(shell.sidebar)()
    chosen.run()


main()
