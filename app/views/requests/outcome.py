"""Runs a button's command and shows its result."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import streamlit as st

from tuner.errors import TunerError

_TOLD_KEY = "control told"
#: Seconds to show a message: pages refresh all the time, and it would disappear at once.
_TOLD_S = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
    """The result of a command."""

    text: str
    is_refusal: bool
    at_s: float


def do(work: Callable[[], str]) -> None:
    """Runs a button's command, and keeps its result for `tell`."""
    try:
        text, is_refusal = work(), False
    except TunerError as error:
        text, is_refusal = str(error), True
    told = _Told(text=text, is_refusal=is_refusal, at_s=time.monotonic())
    st.session_state[_TOLD_KEY] = told


def tell() -> None:
    """Shows the result of the last command, for a while."""
    told: _Told | None = st.session_state.get(_TOLD_KEY)
    if told is None or time.monotonic() - told.at_s > _TOLD_S:
        return
    show = st.error if told.is_refusal else st.success
    show(told.text)
