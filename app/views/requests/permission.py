"""Login for users who may send commands."""

from __future__ import annotations

import os
import socket
from functools import cache

import streamlit as st
from streamlit.errors import StreamlitAuthError, StreamlitMissingAuthlibError

from tuner.app.control_session import address_of, cookie_name, sessions
from tuner.app.data.control import Control, place_of
from tuner.app.data.permission import Doorkeeper
from tuner.app.views.shell import Shown
from tuner.monitoring.dashboard_process import DATABASE_VARIABLE

_WHO_KEY = "who controls"
_PROBLEM_KEY = "login problem"
_TOKEN_KEY, _NAME_KEY = "control token", "control name"
_TICKET_KEY = "control ticket"
_MAX_NAME = 60


@cache
def _doorkeeper() -> Doorkeeper:
    return Doorkeeper(os.environ)


def control_of(shown: Shown) -> Control | None:
    """None for users who may only read."""
    who = _who()
    if who is None:
        return None
    url = os.environ[DATABASE_VARIABLE]
    return Control(place=place_of(url, shown.study, shown.look.shown_url), who=who)


def _who() -> str | None:
    if _WHO_KEY not in st.session_state:
        st.session_state[_WHO_KEY] = sessions().who(_cookie())
    if st.session_state[_WHO_KEY]:
        return str(st.session_state[_WHO_KEY])
    email = _email()
    if _doorkeeper().has_users and _doorkeeper().knows(email):
        return f"{email} (dashboard)"
    return None


def _email() -> str | None:
    """Verified address of the logged-in user; an unverified one may be another user's."""
    user = st.user.to_dict()
    if not user.get("is_logged_in") or user.get("email_verified") is False:
        return None
    email = user.get("email")
    return str(email) if email else None


def door() -> None:
    """Shows the token or login form, or why commands are disabled."""
    keeper = _doorkeeper()
    if not keeper.has_token and not keeper.has_users:
        st.info(
            "This dashboard is read-only. To pause, stop, retry and enqueue here, start it with "
            "`--token-file FILE` or with TUNER_DASHBOARD_TOKEN in its environment."
        )
        return
    if keeper.has_users:
        _login()
    if keeper.has_token:
        with st.form("token", clear_on_submit=True, width=420):
            st.text_input("Token", type="password", key=_TOKEN_KEY, autocomplete="off")
            st.text_input("Your name, for the record", key=_NAME_KEY, max_chars=_MAX_NAME)
            st.form_submit_button("Unlock", on_click=_unlock)
    if st.session_state.pop("control refused", False):
        st.error("Wrong token. After five wrong tokens this client can't try again for a minute.")


def _login() -> None:
    email = _email()
    if email is None:
        st.button("Log in", on_click=_log_in)
        if problem := st.session_state.pop(_PROBLEM_KEY, None):
            st.error(f"Login does not work: {problem}")
        return
    st.warning(f"{email} has no permission to control studies.")
    st.button("Log out", on_click=st.logout)


def _log_in() -> None:
    try:
        st.login()
    except StreamlitMissingAuthlibError:
        st.session_state[_PROBLEM_KEY] = "that needs `pip install 'gpu-tuner[login]'`."
    except StreamlitAuthError as error:
        st.session_state[_PROBLEM_KEY] = str(error)


def _unlock() -> None:
    if _doorkeeper().admits(str(st.session_state.get(_TOKEN_KEY, "")), _client()):
        name = str(st.session_state.get(_NAME_KEY, "")).strip()[:_MAX_NAME] or "unknown"
        # The name is unverified: there was no login.
        who = f"says to be {name} (dashboard)@{socket.gethostname()}"
        st.session_state[_WHO_KEY] = who
        st.session_state[_TICKET_KEY] = sessions().issue(who)
    else:
        st.session_state["control refused"] = True
    st.session_state[_TOKEN_KEY] = ""


def _client() -> str:
    """The browser's address; Streamlit reports none for this machine."""
    return st.context.ip_address or "this machine"


def keep() -> None:
    """Sets the cookie that keeps the permission over a reload."""
    if ticket := st.session_state.get(_TICKET_KEY):
        st.html(f'<img src="{address_of(ticket)}" alt="" hidden>')


def _cookie() -> str | None:
    return st.context.cookies.get(cookie_name(int(st.get_option("server.port"))))


def lock() -> None:
    """Only looks from now on."""
    sessions().end(_cookie())
    for key in (_WHO_KEY, _TICKET_KEY):
        st.session_state[key] = None
