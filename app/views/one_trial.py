"""The page of one trial: outcome, reason, curves, log, and more."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import streamlit as st

from tuner.app.charts.curves import curve_figure
from tuner.app.charts.devices.trial_use import trial_use_figure
from tuner.app.data.digits import four_digits
from tuner.app.data.outcome_words import shown as shown_word
from tuner.app.data.trials.log_text import MAX_FOUND, MAX_SHOWN_BYTES, find_log, read_log
from tuner.app.data.trials.one_trial import OneTrial
from tuner.app.data.trials.profiles import find_profiles, read_operations
from tuner.app.views import shell
from tuner.app.views.control import trial_buttons
from tuner.app.views.figure import show_figure
from tuner.app.views.requests.notes import note_of
from tuner.app.views.shell import Shown
from tuner.queries.checkpoints import ShownCheckpoint
from tuner.queries.trials.attempts import StoredAttempt
from tuner.queries.trials.listing import ABANDONED
from tuner.queries.usage import AttemptUse
from tuner.terminal.times import seconds
from tuner.terminal.wording import duration

#: With more parameters their table scrolls.
_MAX_PARAMS, _PARAMS_PX = 20, 700


def show(shown: Shown, number: int) -> None:
    """Shows a trial's current state.

    Args:
        shown: The study.
        number: The trial's.
    """
    found = shown.look.trial(shown.study, number, shell.now())
    if found is None:
        st.warning(f"There is no trial {number} in study {shell.escaped(shown.study.name)}.")
        return
    _what_became_of_it(found)
    note_of(shown, number)
    trial_buttons(shown, number, found.trial.state)
    _curves(shown, found)
    _log(found)
    _parameters(found)
    for attempt in reversed(found.trial.attempts):
        _attempt(attempt, is_abandoned=attempt.is_open and found.trial.is_abandoned)
    _use(shown, number)
    if found.checkpoints:
        _checkpoints(number, found.checkpoints)
    _profiles(found)
    _run_alone(found)
    st.subheader("All that is known")
    st.code(found.why, language=None, wrap_lines=True)


def _what_became_of_it(found: OneTrial) -> None:
    trial = found.trial
    word = shown_word(trial.word)
    sentence = f"**{word[0].upper()}{word[1:]}**"
    if trial.result:
        sentence += f" with {shell.values_as_text(trial.result)}"
    if len(trial.attempts) > 1:
        sentence += f", after {len(trial.attempts)} attempts"
    if found.reason:
        sentence += f": {shell.escaped(found.reason)}"
    st.markdown(sentence if sentence.endswith((".", "!", "?")) else f"{sentence}.")
    with st.container(horizontal=True):
        if len(trial.result or {}) > 1:  # Together they are too long for a headline.
            for name, value in trial.result.items():
                st.metric(shell.escaped(name), four_digits(value))
        elif trial.result:
            st.metric("result", shell.values_as_text(trial.result))
        if trial.last_step is not None:
            last = shell.values_as_text(trial.last_values)
            st.metric(f"last report, step {trial.last_step}", last)
        if trial.duration_s is not None:
            st.metric("duration", seconds(trial.duration_s))
    if trial.is_infeasible:
        st.warning("This trial violates a constraint, so it cannot be the best trial.")


def _curves(shown: Shown, found: OneTrial) -> None:
    number = found.trial.number
    for name, curve in found.curves.items():
        if not any(map(math.isfinite, curve.values())):
            n, said = len(curve), shell.escaped(name)
            what = f"All {n} reported values of {said} are"
            what = what if n > 1 else f"The only reported value of {said} is"
            st.caption(f"{what} infinite or NaN.")
            continue
        figure = curve_figure(name, curve, revision=f"{shown.revision} {number} {name}")
        show_figure(figure, key=f"curve {number} {name}")


def _log(found: OneTrial) -> None:
    if not found.trial.attempts:
        return
    st.subheader("Log")
    attempt = found.trial.attempts[-1]
    key = f"log {found.trial.number}"
    with st.container(horizontal=True, vertical_alignment="bottom"):
        if len(found.trial.attempts) > 1:
            by_number = {each.number: each for each in reversed(found.trial.attempts)}
            attempt = by_number[st.selectbox("Attempt", list(by_number), width=120, key=key)]
        search = st.text_input("Search the log", width=300, key=f"{key} search")
        log = find_log(attempt, found.key, found.logs)
        if log.path is not None and log.path.exists():
            name = f"trial-{found.trial.number}-{log.path.name}"
            st.download_button("Download", log.path.read_bytes, name, key=f"{key} download")
    if log.path is None:
        st.caption(shell.escaped(log.problem))
        return
    _lines(log.path, search, is_open=attempt.is_open and not found.trial.is_abandoned)


def _lines(path: Path, search: str, *, is_open: bool) -> None:
    try:
        part = read_log(path, search=search, n_last=MAX_FOUND) if search else read_log(path)
    except OSError as error:
        st.caption(shell.escaped(f"The log can't be read: {error.strerror} ({path})"))
        return
    if not part.n_read:
        st.caption("Nothing was printed so far." if is_open else "Nothing was printed.")
        return
    where = f"the last {MAX_SHOWN_BYTES // 2**20} MiB" if part.is_cut else "the log"
    if search:
        found = f"{len(part.lines)} of {part.n_read} lines" if part.lines else "No line"
        st.caption(f"{found} of {where} with this text.")
    elif len(part.lines) < part.n_read or part.is_cut:
        st.caption(f"The last {len(part.lines)} of {part.n_read} lines of {where}.")
    if part.lines:
        st.code(part.text, language=None, wrap_lines=True, height=420 if search else "content")


def _parameters(found: OneTrial) -> None:
    trial = found.trial
    st.subheader("Parameters")
    params = {
        "parameter": [shell.escaped(name) for name in trial.params],
        "value": [shell.escaped(str(value)) for value in trial.params.values()],
    }
    if not trial.params:
        st.caption("None.")
        return
    # On a phone a table that scrolls would hide the values behind a long name.
    is_long = len(trial.params) > _MAX_PARAMS
    st.table(params, width=420, height=_PARAMS_PX if is_long else "content", hide_header=False)


def _use(shown: Shown, number: int) -> None:
    use = shown.look.trial_use(shown.study, number, shell.now())
    if use is None:
        return
    st.subheader("Usage")
    if not use.devices:
        st.caption("No device usage was recorded while this trial ran.")
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
        "saved": [each.saved_at.replace(tzinfo=None) for each in found],
        "saved (UTC)": [each.saved_at.replace(tzinfo=None) for each in found],
        "host": [each.host for each in found],
        "path": [each.path for each in found],
    }
    config = shell.column_formats(columns)
    st.dataframe(
        columns, hide_index=True, placeholder="", column_config=config, key=f"checkpoints {number}"
    )


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
        st.dataframe(columns, hide_index=True, placeholder="", column_config=precise, key=key)
        st.caption(f"{path}. Open the trace in ui.perfetto.dev or chrome://tracing.")
        st.download_button("Download the trace", content, path.name, key=f"{key} download")


def _run_alone(found: OneTrial) -> None:
    if found.alone:
        st.subheader("Run it alone")
        st.code(found.alone, language="bash", wrap_lines=True)


def _attempt(attempt: StoredAttempt, *, is_abandoned: bool) -> None:
    st.subheader(f"Attempt {attempt.number}")
    outcome = attempt.outcome.value if attempt.outcome else attempt.state.value
    outcome = ABANDONED if is_abandoned else outcome
    devices = ", ".join(attempt.devices) or "no device"
    facts = [f"**{shown_word(outcome)}** on {devices} of {attempt.host}"]
    if attempt.cause:
        facts.append(f"cause: {shown_word(attempt.cause.value)}")
    if attempt.peak_memory_bytes:
        facts.append(f"peak memory: {four_digits(attempt.peak_memory_bytes / 2**30)} GiB")
    facts += _taken(attempt.use)
    facts.append(f"seed: {attempt.seed}")
    st.markdown(" · ".join(facts))
    if attempt.detail:
        st.code(attempt.detail, language=None, wrap_lines=True)


def _taken(use: AttemptUse) -> list[str]:
    """Usage of the attempt."""
    facts = []
    if use.device_s is not None:
        facts.append(f"{four_digits(use.device_s)} device-seconds")
    if use.utilization_pct is not None:
        facts.append(f"utilization: {use.utilization_pct:.0f} %")
    if use.energy_kwh is not None:
        facts.append(f"energy: {four_digits(use.energy_kwh)} kWh")
    return facts
