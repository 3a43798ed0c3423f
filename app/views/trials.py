"""The table of trials, and one trial's own page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import streamlit as st

from tuner.app.charts.curves import curve_figure
from tuner.app.charts.trial_use import trial_use_figure
from tuner.app.data.outcome_words import shown as shown_word
from tuner.app.data.trials.columns import TrialColumns
from tuner.app.data.trials.filters import rows_where
from tuner.app.data.trials.one_trial import OneTrial, log_tail
from tuner.app.data.trials.profiles import find_profiles, read_operations
from tuner.app.data.trials.table import chosen, table_of, words_of
from tuner.app.views import shell
from tuner.app.views.control import trial_buttons
from tuner.app.views.figure import show_figure
from tuner.app.views.shell import Shown
from tuner.checkpoints.trial_folders import TrialKey
from tuner.queries.checkpoints import ShownCheckpoint
from tuner.queries.trials.attempts import StoredAttempt
from tuner.queries.usage import AttemptUse
from tuner.search_spaces import ParamValue
from tuner.terminal.wording import duration, values_text

_TABLE_KEY, _ROWS_KEY, _COUNT_KEY = "trials_table", "rows of trials", "lists of trials"
#: The container of the list, and the study whose list the page holds.
_LIST_KEY, _LIST_OF_KEY = "trials-list", "list of trials"
#: A list without a size would forget its place.
_OUT_OF_SIGHT = "position: absolute; left: -200vw; visibility: hidden; width: 100%;"
_STARTED = "started (UTC)"
_STARTED_HELP = "When the first attempt started. A click on the title sorts by the instant."
#: A click into the table reruns the table alone; the page is another one then.
_REDRAW_KEY = "trials_redraw"


def page() -> None:
    shell.page_of_a_study(_page)


def _page(shown: Shown) -> None:
    number = shell.chosen_trial()
    is_alone = number is not None and st.session_state.get(_LIST_OF_KEY) != shown.study.name
    # The list stays on the page, out of sight, while a trial of it is shown: so Back finds the
    # sort and the place that only the browser knows.
    with st.container(key=_LIST_KEY):
        if not is_alone:
            _all_trials(shown, is_hidden=number is not None)
    if number is None:
        return
    st.html(f"<style>.st-key-{_LIST_KEY} {{ {_OUT_OF_SIGHT} }}</style>")
    shell.choose_trial(number)
    with st.container(horizontal=True, vertical_alignment="center"):
        st.title(f"Trial {number}")
        st.button("All trials", on_click=shell.choose_trial, args=(None,))
    shell.live("one trial", lambda: _one_trial(shown, number))


def _all_trials(shown: Shown, *, is_hidden: bool) -> None:
    st.title("Trials")
    if not is_hidden:
        shell.warn_of_bad_trial(shown)
    known = words_of(shown.look.trials(shown.study))
    if not known:
        st.info("The study has no trial yet.")
        return
    st.session_state[_LIST_OF_KEY] = shown.study.name
    with st.container(horizontal=True, vertical_alignment="bottom"):
        wanted = st.pills(
            "Outcome",
            known,
            selection_mode="multi",
            format_func=shown_word,
            key="outcome",
            bind="query-params",
        )
        where = st.text_input(
            "Filter",
            placeholder="lr < 0.01 and optimizer == sgd",
            width=360,
            key="where",
            bind="query-params",
        )
    if is_hidden:
        shell.guarded(lambda: _table(shown, wanted, where))()
        return
    shell.live("trials", lambda: _table(shown, wanted, where))
    with (
        st.form("open_trial", border=False),
        st.container(horizontal=True, vertical_alignment="bottom"),
    ):
        number = st.number_input("Open trial (number)", min_value=0, step=1, width=200)
        if st.form_submit_button("Open"):
            shell.choose_trial(int(number))
            st.rerun()


@dataclass(kw_only=True)
class _Rows:
    """The trials of the table by row. A row keeps its trial: what was drawn is what a click opens.

    New trials are appended until the list is rebuilt under another key.
    """

    of: tuple[object, ...]
    key: str
    numbers: list[int] = field(default_factory=list)
    n_at_first: int = 0
    #: Its row stays selected in the browser: another click there takes the selection away.
    opened: int | None = None

    def follow(self, found: Sequence[int], known: frozenset[int]) -> int:
        """Appends new trials; returns how many rows the filter does not let pass any more.

        Args:
            found: Trials that pass the filter, the newest first.
            known: All trials of the study.
        """
        if not self.numbers or not known.issuperset(self.numbers):
            self.numbers = list(found)
            self.n_at_first = len(found)
            return 0
        held = set(self.numbers)
        self.numbers += [each for each in reversed(found) if each not in held]
        return len(held.difference(found))


def _rows_for(of: tuple[object, ...]) -> _Rows:
    rows: _Rows | None = st.session_state.get(_ROWS_KEY)
    if rows is None or rows.of != of:
        rows = _new_rows(of)
    return rows


def _begin_anew(of: tuple[object, ...]) -> None:
    _new_rows(of)


def _new_rows(of: tuple[object, ...]) -> _Rows:
    count = st.session_state.get(_COUNT_KEY, 0) + 1
    st.session_state[_COUNT_KEY] = count
    rows = _Rows(of=of, key=f"{_TABLE_KEY} {count}")
    st.session_state[_ROWS_KEY] = rows
    return rows


def _table(shown: Shown, wanted: list[str], where: str) -> None:
    if st.session_state.pop(_REDRAW_KEY, False):
        st.rerun()
    trials = shown.look.trials(shown.study)
    rows = _rows_for((shown.study, tuple(wanted), where))
    passed = _passed(shown, trials, wanted, where)
    n_left_out = rows.follow(passed, frozenset(trials.numbers.tolist()))
    drawn = trials.where(np.searchsorted(trials.numbers, rows.numbers))
    params = shown.look.params(shown.study, trials)
    table = table_of(drawn, shown.objectives, params, shell.now())
    st.dataframe(
        table,
        hide_index=True,
        key=rows.key,
        on_select=lambda: _open_selected(rows),
        selection_mode="single-row",
        height=600 if len(rows.numbers) > 15 else "auto",
        column_config=shell.four_digits(table),
    )
    st.caption(f"{len(passed)} of {len(trials)} trials. Select one at its left to open it.")
    n_new = len(rows.numbers) - rows.n_at_first
    if n_new or n_left_out:
        with st.container(horizontal=True, vertical_alignment="center"):
            st.button("Newest first", on_click=_begin_anew, args=(rows.of,))
            st.caption(
                f"Rows keep their places: {n_new} newer trials are at the end, and {n_left_out} "
                "rows do not pass the filter any more."
            )


def _passed(shown: Shown, trials: TrialColumns, wanted: list[str], where: str) -> list[int]:
    """Numbers of the trials that pass the filter, the newest first."""
    some = chosen(trials, wanted)
    if not where:
        return [int(each) for each in some.numbers]
    params = shown.look.params(shown.study, trials)
    table = table_of(some, shown.objectives, params, shell.now())
    return [int(each) for each in some.numbers[rows_where(where, table, len(some))]]


def _open_selected(rows: _Rows) -> None:
    selected = st.session_state[rows.key]["selection"]["rows"]
    if selected and selected[0] < len(rows.numbers):
        rows.opened = rows.numbers[selected[0]]
    if rows.opened is not None:
        shell.choose_trial(rows.opened)
        st.session_state[_REDRAW_KEY] = True


def _one_trial(shown: Shown, number: int) -> None:
    found = shown.look.trial(shown.study, number, shell.now())
    if found is None:
        st.warning(f"There is no trial {number} in study {shown.study.name}.")
        return
    _facts(found)
    trial_buttons(shown, number, found.trial.state)
    for name, curve in found.curves.items():
        if not any(map(math.isfinite, curve.values())):
            st.caption(f"All {len(curve)} reported values of {name} are infinite or NaN.")
            continue
        figure = curve_figure(name, curve, revision=f"{shown.revision} {number} {name}")
        show_figure(figure, key=f"curve {number} {name}")
    _use(shown, number)
    if found.checkpoints:
        _checkpoints(number, found.checkpoints)
    _profiles(found)
    _run_alone(found)
    st.subheader("Why")
    st.code(found.why, language=None, wrap_lines=True)
    for attempt in reversed(found.trial.attempts):
        _attempt(attempt, found.key)


def _facts(found: OneTrial) -> None:
    trial = found.trial
    with st.container(horizontal=True):
        st.metric("outcome", shown_word(trial.word))
        if trial.values:
            st.metric("result", values_text(trial.values))
        if trial.last_step is not None:
            st.metric(f"last report, step {trial.last_step}", values_text(trial.last_values))
        if trial.duration_s is not None:
            st.metric("duration", duration(trial.duration_s))
    if trial.is_infeasible:
        st.warning("It breaks a constraint: its result is nobody's best.")
    st.subheader("Parameters")
    params: dict[str, list[ParamValue | str]] = {
        "parameter": list(trial.params),
        "value": [str(value) for value in trial.params.values()],
    }
    st.dataframe(params, hide_index=True, width=420, key=f"params {trial.number}")


def _use(shown: Shown, number: int) -> None:
    use = shown.look.trial_use(shown.study, number, shell.now())
    if use is None:
        return
    st.subheader("Usage")
    if not use.devices:
        st.caption("Nobody has looked at the devices of this trial while it held them.")
        return
    whole = " They are those of whole devices, which others share." if use.is_shared else ""
    st.caption(f"Means over {duration(use.width_s)}.{whole}")
    figure = trial_use_figure(use, revision=f"{shown.revision} {number} use")
    show_figure(figure, key=f"use {number}")


def _checkpoints(number: int, found: Sequence[ShownCheckpoint]) -> None:
    st.subheader("Checkpoints")
    columns: dict[str, list[object]] = {
        "step": [each.step for each in found],
        "attempt": [each.attempt for each in found],
        "size (MiB)": [each.size_bytes / 2**20 for each in found],
        "saved (UTC)": [each.saved_at.replace(tzinfo=None) for each in found],
        "host": [each.host for each in found],
        "path": [each.path for each in found],
    }
    config = {"size (MiB)": st.column_config.NumberColumn(format="%.4g")}
    st.dataframe(columns, hide_index=True, column_config=config, key=f"checkpoints {number}")


def _profiles(found: OneTrial) -> None:
    for path in find_profiles(found.trial.attempts, found.key):
        st.subheader("Profile")
        try:
            rows, content = read_operations(path), path.read_bytes()
        except (OSError, ValueError) as error:
            st.caption(f"The profile can't be read: {error}")
            continue
        columns: dict[str, list[object]] = {
            "operation": [each.name for each in rows],
            "on": [each.where for each in rows],
            "calls": [each.n_calls for each in rows],
            "total (ms)": [each.total_ms for each in rows],
        }
        precise = {"total (ms)": st.column_config.NumberColumn(format="%.4g")}
        key = f"profile {found.trial.number} {path.name}"
        st.dataframe(columns, hide_index=True, column_config=precise, key=key)
        st.caption(f"{path}. Open the trace in ui.perfetto.dev or chrome://tracing.")
        st.download_button("Download the trace", content, path.name, key=f"{key} download")


def _run_alone(found: OneTrial) -> None:
    if found.alone:
        st.subheader("Run it alone")
        st.code(found.alone, language="bash", wrap_lines=True)


def _attempt(attempt: StoredAttempt, key: TrialKey | None) -> None:
    st.subheader(f"Attempt {attempt.number}")
    outcome = attempt.outcome.value if attempt.outcome else attempt.state.value
    devices = ", ".join(attempt.devices) or "no device"
    facts = [f"**{shown_word(outcome)}** on {devices} of {attempt.host}"]
    if attempt.cause:
        facts.append(f"cause: {shown_word(attempt.cause.value)}")
    if attempt.peak_memory_bytes:
        facts.append(f"peak memory: {attempt.peak_memory_bytes / 2**30:.2f} GiB")
    facts += _taken(attempt.use)
    facts.append(f"seed: {attempt.seed}")
    st.markdown(" · ".join(facts))
    if attempt.detail:
        st.code(attempt.detail, language=None, wrap_lines=True)
    with st.expander("Log, the last lines", expanded=attempt.is_open):
        st.code(log_tail(attempt, key), language=None, wrap_lines=True)


def _taken(use: AttemptUse) -> list[str]:
    """What the attempt is charged with."""
    facts = []
    if use.device_s is not None:
        facts.append(f"{use.device_s:.4g} device-seconds")
    if use.utilization_pct is not None:
        facts.append(f"utilization: {use.utilization_pct:.0f} %")
    if use.energy_kwh is not None:
        facts.append(f"energy: {use.energy_kwh:.3g} kWh")
    return facts
