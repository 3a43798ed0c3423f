"""Notes and tags: visible to all, written by users with the token."""

from __future__ import annotations

import streamlit as st

from tuner.actions.note import MAX_TEXT
from tuner.app.data.overview import ago
from tuner.app.views import shell
from tuner.app.views.requests.outcome import do
from tuner.app.views.requests.permission import control_of
from tuner.app.views.shell import Shown


def note_of(shown: Shown, number: int | None) -> None:
    """Shows the note and the tags of a trial, or of the study, with a form to change them.

    Args:
        shown: The study.
        number: Number of the trial; None for the study itself.
    """
    note = shown.look.notes(shown.study).get(number)
    if note is not None:
        if note.tags:
            st.markdown("Tags: " + " ".join(f":gray-badge[{shell.escaped(t)}]" for t in note.tags))
        if note.text:
            st.text(note.text)
        now = shell.now()
        st.caption(f"Noted by {shell.escaped(note.who)}, {ago(note.at, now)}.")
    control = control_of(shown)
    if control is None:
        if note is None and number is None:
            st.caption("No note yet.")
        return
    key = f"note {shown.study.id} {number}"
    with st.popover("Change note and tags" if note else "Add a note or tags"), st.form(key):
        st.text_area(
            "Note",
            value=note.text if note else "",
            max_chars=MAX_TEXT,
            key=f"{key} text",
        )
        st.text_input(
            "Tags, with commas between them",
            value=", ".join(note.tags) if note else "",
            key=f"{key} tags",
        )
        st.form_submit_button(
            "Save",
            on_click=lambda: do(
                lambda: control.note(
                    number,
                    str(st.session_state[f"{key} text"]),
                    str(st.session_state[f"{key} tags"]),
                    shell.now(),
                )
            ),
        )
