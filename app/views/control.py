"""Pause, resume, stop, budget, enqueue: for users with the token or a login."""

from __future__ import annotations

import streamlit as st
from optuna.trial import TrialState

from tuner.app.data.control import Control, limit_of
from tuner.app.data.digits import four_digits
from tuner.app.data.overview import ago
from tuner.app.views import shell
from tuner.app.views.requests.notes import note_of
from tuner.app.views.requests.outcome import do, tell
from tuner.app.views.requests.permission import control_of, door, keep, lock
from tuner.app.views.shell import Shown
from tuner.errors import TunerError
from tuner.queries.study_state import Standing
from tuner.store.records.commands import Order
from tuner.terminal.wording import duration

_LIMITS = ("trials", "time", "device_hours", "energy")
_PENDING_KEY = "budget to confirm"


def page() -> None:
    st.title("Control")
    shell.page_of_a_study(_page)


def _page(shown: Shown) -> None:
    control = control_of(shown)
    shell.live("present", lambda: _present(shown, control))
    if control is None:
        door()
    else:
        with st.container(horizontal=True, vertical_alignment="center"):
            st.caption(f"What you ask for is recorded as by {control.who}.")
            st.button("Lock", on_click=lock)
        keep()
        left, right = st.columns(2)
        with left:
            _budget(control, shown)
        with right:
            _enqueue(control)
    shell.live("study note", lambda: _note(shown))
    shell.live("asked", lambda: _asked(shown))


def _present(shown: Shown, control: Control | None) -> None:
    """The study's state and spending, with the matching button."""
    now = shell.now()
    present = shown.look.present(shown.study, now)
    standing = present.progress.standing
    if present.paused_by:
        since = f", {ago(present.paused_at, now)}" if present.paused_at else ""
        st.markdown(f"**Paused** by {shell.escaped(present.paused_by)}{since}: no trial starts.")
    else:
        st.markdown(f"**{standing.value.capitalize()}**: {shell.escaped(present.progress.reason)}")
        if present.running_since is not None:
            since = f"{present.running_since:%Y-%m-%d %H:%M:%S} UTC"
            by = shell.escaped(present.running_by)
            st.caption(f"Running since {ago(present.running_since, now)} ({since}), by {by}.")
    columns: dict[str, list[str]] = {"budget": [], "spent": [], "limit": []}
    for name, (limit, spent) in present.spent.items():
        columns["budget"].append(name.replace("_", "-"))
        is_known = name == "trials" or present.progress.study.is_ours
        columns["spent"].append(_amount(name, spent) if is_known else "not recorded")
        columns["limit"].append("no limit" if limit is None else _amount(name, limit))
    st.dataframe(columns, hide_index=True, placeholder="", width=420, key="budget now")
    if control is not None:
        _study_buttons(control, is_paused=bool(present.paused_by), standing=standing)
        # Here, because a button redraws only the fragment that it is in.
        tell()


def _note(shown: Shown) -> None:
    st.subheader("Note")
    note_of(shown, None)


def _amount(name: str, amount: float) -> str:
    match name:
        case "trials":
            return f"{amount:.0f}"
        case "time":
            return duration(amount)
        case "energy":
            # Also where no device reports its power.
            return f"{four_digits(amount)} kWh" if amount else "none measured"
        case _:
            return four_digits(amount)


def _study_buttons(control: Control, *, is_paused: bool, standing: Standing) -> None:
    wanted = Order.RESUME if is_paused else Order.PAUSE
    with st.container(horizontal=True):
        st.button(
            f"{wanted.value.capitalize()} study",
            on_click=do,
            args=(lambda: control.order(wanted, shell.now()),),
        )
        if standing not in (Standing.RUNNING, Standing.SILENT):
            return
        with st.popover("Stop study ..."):
            st.write("Ends it wherever it runs, as Ctrl-C does there. The same command continues.")
            st.button(
                "Stop study now",
                type="primary",
                on_click=do,
                args=(lambda: control.order(Order.STOP, shell.now()),),
            )


def _budget(control: Control, shown: Shown) -> None:
    with st.form("budget"):
        st.subheader("Budget")
        name = st.selectbox("Limit", _LIMITS)
        text = st.text_input("New value", placeholder="200, 2h, 1.5 or 5kWh")
        if st.form_submit_button("Change"):
            _ask_or_set(control, shown, name, text)
            st.rerun()
    pending: tuple[str, str, str] | None = st.session_state.get(_PENDING_KEY)
    if pending is None or pending[0] != shown.study.name:
        return
    _, name, text = pending
    st.warning(
        f"{name} = {text} is not above what the study has spent: it ends the study at once, and "
        "its paused trials are not resumed."
    )
    with st.container(horizontal=True):
        st.button("End the study with this budget", on_click=_set, args=(control, name, text))
        st.button("Keep the budget", on_click=_keep)


def _ask_or_set(control: Control, shown: Shown, name: str, text: str) -> None:
    """Changes a limit; a limit below what is spent needs a confirmation."""
    st.session_state.pop(_PENDING_KEY, None)
    try:
        _, spent = shown.look.present(shown.study, shell.now()).spent[name]
        is_spent = limit_of(name, text) <= spent
    except TunerError:
        is_spent = False  # Refused in words by what follows.
    if is_spent:
        st.session_state[_PENDING_KEY] = (shown.study.name, name, text)
    else:
        _set(control, name, text)


def _set(control: Control, name: str, text: str) -> None:
    st.session_state.pop(_PENDING_KEY, None)
    do(lambda: control.set_budget(name, text, shell.now()))


def _keep() -> None:
    st.session_state.pop(_PENDING_KEY, None)


def _enqueue(control: Control) -> None:
    with st.form("enqueue"):
        st.subheader("Enqueue")
        text = st.text_area("Configurations (YAML or JSON)", placeholder="{lr: 0.001, width: 64}")
        if st.form_submit_button("Enqueue"):
            do(lambda: control.enqueue(text))
            st.rerun()


def _asked(shown: Shown) -> None:
    found = shown.look.asked(shown.study)
    if not found:
        st.caption("No requests yet.")
        return
    columns: dict[str, list[object]] = {
        "when": [each.at.replace(tzinfo=None) for each in found],
        "when (UTC)": [each.at.replace(tzinfo=None) for each in found],
        "who": [each.who for each in found],
        "what": [each.what for each in found],
    }
    st.subheader("Requests")
    config = shell.column_formats(columns)
    st.dataframe(columns, hide_index=True, placeholder="", column_config=config, key="asked for")


def trial_buttons(shown: Shown, number: int, state: TrialState) -> None:
    """On a trial's own page: stop it, or try it once more."""
    control = control_of(shown)
    if control is None:
        return
    with st.container(horizontal=True):
        if state is TrialState.RUNNING:
            st.button(
                "Stop trial",
                on_click=do,
                args=(lambda: control.order(Order.STOP, shell.now(), trial=number),),
            )
        if state.is_finished():
            st.button(
                "Retry trial", on_click=do, args=(lambda: control.retry(number, shell.now()),)
            )
    tell()
