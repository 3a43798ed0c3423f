"""What a button asks of a study, and what came of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import streamlit as st

from tuner.errors import TunerError

_TOLD_KEY = "control told"
#: Pages refresh all the time: what was told in one refresh alone would flash up and be gone.
_TOLD_S = 15.0


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
