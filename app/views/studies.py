"""All studies of the database: state, progress, best value, dispatchers."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

import streamlit as st
from streamlit.elements.lib.column_types import ColumnConfig

from tuner.app.data.convergence.spread import sparkline, time_left_s
from tuner.app.data.overview import StudyLine, ago
from tuner.app.views import shell
from tuner.queries.locate import StoredStudy
from tuner.queries.study_state import Standing
from tuner.terminal.studies import study_trials_text
from tuner.terminal.wording import duration

#: Streamlit shows the group, decoded.
_NAME_IN_ADDRESS = r"^convergence\?study=(.*)$"
_N_SPARKLINES = 20
#: Trials that a page may read before it is shown: half a second.
_MAX_READ = 20_000
#: A pinned column with a long name must leave room for others on a phone.
_NAME_PX = 170


def page() -> None:
    st.title("Studies")
    shell.live("studies", _table)


def _table() -> None:
    now = shell.now()
    lines = shell.look().overview(now)
    if not lines:
        st.info("The database holds no study yet. Run one: `python -m tuner.run study.yaml`")
        return
    for line in lines:
        for alert in line.alerts:
            name = shell.escaped(line.study.name)
            st.markdown(
                f"Alert, study [{name}]({_address(line.study.name)}): {shell.escaped(alert.text)}."
            )
    columns: dict[str, list[object]] = {
        "study": [_address(line.study.name) for line in lines],
        "state": [line.state for line in lines],
        "progress": [None if line.fraction is None else 100 * line.fraction for line in lines],
        "time left": [_time_left(line) for line in lines],
        "best value": [line.best or "none yet" for line in lines],
        "best so far": _sparklines(lines),
        "trials": [study_trials_text(line.study, line.progress.budget.trials) for line in lines],
        "devices in use": [line.n_devices for line in lines],
        "dispatchers": [line.workers for line in lines],
        "last activity": [ago(line.study.active_at, now) for line in lines],
        "active time": [_active_time(line) for line in lines],
        "why": [line.reason for line in lines],
    }
    if any(line.note for line in lines):
        columns["tags"] = [", ".join(line.note.tags) if line.note else "" for line in lines]
        columns["note"] = [line.note.text if line.note else "" for line in lines]
    progress = st.column_config.ProgressColumn(
        "progress (%)",
        help="Of the limit of the budget that is nearest its end.",
        format="%.0f %%",
        min_value=0,
        max_value=100,
    )
    shapes: dict[str, ColumnConfig] = {
        "study": st.column_config.LinkColumn(
            display_text=_NAME_IN_ADDRESS, pinned=True, width=_NAME_PX
        ),
        "dispatchers": st.column_config.TextColumn(
            help="Host and process of each dispatcher that is alive."
        ),
        "progress": progress,
        "best so far": st.column_config.LineChartColumn(help="Over the trials, first objective."),
    }
    event = st.dataframe(
        columns,
        hide_index=True,
        placeholder="",
        column_config=shapes,
        key=f"studies {len(lines)}",
        on_select="rerun",
        selection_mode="multi-row",
    )
    st.caption("The study that the other pages show is chosen at the left.")
    names = [lines[row].study.name for row in event["selection"]["rows"] if row < len(lines)]
    shell.compare_button("studies", names)


def _address(study: str) -> str:
    """The page of a study."""
    return f"convergence?study={quote(study, safe='')}"


def _sparklines(lines: Sequence[StudyLine]) -> list[object]:
    """Only for the newest studies, as all their trials are read; those of long ones come later."""
    look, n_read = shell.look(), 0
    found: list[object] = []
    for place, line in enumerate(lines):
        study = StoredStudy(id=line.study.id, name=line.study.name)
        trials = None
        if place < _N_SPARKLINES and line.study.objectives:
            n_read += line.study.n_trials
            trials = look.trials_soon(study, wait=n_read <= _MAX_READ)
        is_maximized = bool(line.study.objectives) and line.study.objectives[0].is_maximized
        found.append([] if trials is None else sparkline(trials, is_maximized=is_maximized))
    return found


def _active_time(line: StudyLine) -> str:
    """Empty for studies that only Optuna ran."""
    return duration(line.progress.spent.time_s) if line.study.is_ours else ""


def _time_left(line: StudyLine) -> str:
    is_running = line.progress.standing is Standing.RUNNING and not line.is_paused
    left_s = time_left_s(line.fraction, line.progress.spent.time_s, is_running=is_running)
    return "" if left_s is None else f"about {duration(left_s)}"
