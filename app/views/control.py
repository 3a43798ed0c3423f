"""Pause, resume, stop, budget, enqueue: for those who have the token or have logged in."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import streamlit as st
from optuna.trial import TrialState

from tuner.app.data.control import Control
from tuner.app.views import shell
from tuner.app.views.permission import control_of, door, lock
from tuner.app.views.shell import Shown
from tuner.errors import TunerError
from tuner.store.records.commands import Order

_TOLD_KEY = "control told"
#: Pages refresh all the time: what was told in one refresh alone would flash up and be gone.
_TOLD_S = 15.0
_LIMITS = {"trials": "200", "time": "2h", "device_hours": "1.5"}


def page() -> None:
    st.title("Control")
    shell.page_of_a_study(_page)


def _page(shown: Shown) -> None:
    control = control_of(shown)
    if control is None:
        door()
    else:
        with st.container(horizontal=True, vertical_alignment="center"):
            st.caption(f"What you ask for is recorded as by {control.who}.")
            st.button("Lock", on_click=lock)
        _study_buttons(control)
        tell()
        left, right = st.columns(2)
        with left:
            _budget(control)
        with right:
            _enqueue(control)
    shell.live("asked", lambda: _asked(shown))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
    """What came of a button."""

    text: str
    is_refusal: bool
    at_s: float


def do(work: Callable[[], str]) -> None:
    """Runs what a button asks for, and keeps what came of it for `tell`."""
    try:
        text, is_refusal = work(), False
    except TunerError as error:
        text, is_refusal = str(error), True
    told = _Told(text=text, is_refusal=is_refusal, at_s=time.monotonic())
    st.session_state[_TOLD_KEY] = told


def tell() -> None:
    """What came of the last button, for a while."""
    told: _Told | None = st.session_state.get(_TOLD_KEY)
    if told is None or time.monotonic() - told.at_s > _TOLD_S:
        return
    show = st.error if told.is_refusal else st.success
    show(told.text)


def _study_buttons(control: Control) -> None:
    with st.container(horizontal=True):
        for wanted in (Order.PAUSE, Order.RESUME):
            st.button(
                f"{wanted.value.capitalize()} study",
                on_click=do,
                args=(lambda each=wanted: control.order(each, shell.now()),),
            )
        with st.popover("Stop study ..."):
            st.write("Ends it wherever it runs, as Ctrl-C does there. The same command continues.")
            st.button(
                "Stop study now",
                type="primary",
                on_click=do,
                args=(lambda: control.order(Order.STOP, shell.now()),),
            )


def _budget(control: Control) -> None:
    with st.form("budget"):
        st.subheader("Budget")
        name = st.selectbox("Limit", list(_LIMITS))
        text = st.text_input("New value", placeholder=f"such as {_LIMITS[name]}")
        if st.form_submit_button("Change"):
            do(lambda: control.set_budget(name, text, shell.now()))
            st.rerun()


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
        st.caption("Nobody has asked anything of this study yet.")
        return
    columns = {
        "when (UTC)": [each.at.replace(tzinfo=None) for each in found],
        "who": [each.who for each in found],
        "what": [each.what for each in found],
    }
    st.subheader("What was asked for")
    st.dataframe(columns, hide_index=True, key="asked for")


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
