"""The table of trials, with the page of a selected one above it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import numpy as np
import streamlit as st

from tuner.app.data.compare.trials import MAX_COMPARED, MIN_COMPARED
from tuner.app.data.outcome_words import shown as shown_word
from tuner.app.data.trials.columns import TrialColumns
from tuner.app.data.trials.costs import TrialCosts
from tuner.app.data.trials.filters import rows_where
from tuner.app.data.trials.table import Cell, Params, chosen, table_of, titles_of, words_of
from tuner.app.views import one_trial, shell
from tuner.app.views.shell import Drawn, Shown
from tuner.queries.notes import Note
from tuner.queries.studies import Objective

_TABLE_KEY, _ROWS_KEY, _COUNT_KEY = "trials_table", "rows of trials", "lists of trials"
#: The container of the list, and the study whose list is on the page.
_LIST_KEY, _LIST_OF_KEY = "trials-list", "list of trials"
#: A list without a size would forget its place.
_OUT_OF_SIGHT = "position: absolute; left: -200vw; visibility: hidden; width: 100%;"
#: A click into the table reruns the table alone; the page is another one then.
_REDRAW_KEY = "trials_redraw"
#: Columns that no parameter is called like.
_TAGS, _NOTE = "tags (noted)", "note (noted)"


def page() -> None:
    shell.page_of_a_study(_page, is_named=True)


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
    shell.name_study(shown.study)
    shell.live("one trial", lambda: one_trial.show(shown, number))


def _all_trials(shown: Shown, *, is_hidden: bool) -> None:
    st.title("Trials")
    shell.name_study(shown.study)
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
    with_tags = _choose_tags(shown)
    titles = _choose_columns(shown)
    is_for_several = st.toggle("Select several to compare", key="several", bind="query-params")

    def table() -> None:
        choice = _Choice(words=tuple(wanted), where=where, tags=tuple(with_tags))
        _table(shown, choice, titles, is_for_several=is_for_several)

    shell.live("trials", table, is_hidden=is_hidden)
    if is_hidden:
        return
    with (
        st.form("open_trial", border=False),
        st.container(horizontal=True, vertical_alignment="bottom"),
    ):
        number = st.number_input("Open trial (number)", min_value=0, step=1, width=200)
        if st.form_submit_button("Open"):
            shell.choose_trial(int(number))
            st.rerun()


def _choose_tags(shown: Shown) -> list[str]:
    """Tags to filter by: trials with any of them are shown; all if none is chosen."""
    notes = shown.look.notes(shown.study)
    of_trials = [note for number, note in notes.items() if number is not None]
    known = sorted({tag for note in of_trials for tag in note.tags})
    if not known:
        return []
    tags: list[str] = st.pills(
        "Tags",
        known,
        selection_mode="multi",
        format_func=shell.escaped,
        key="tags",
        bind="query-params",
    )
    return tags


def _choose_columns(shown: Shown) -> list[str]:
    """Titles in the order in which they were chosen; empty for all."""
    trials = shown.look.trials(shown.study)
    params = shown.look.params(shown.study, trials)
    now = shell.now()
    costs = shown.look.costs(shown.study, now)
    titles = titles_of(trials, shown.objectives, params, now, costs)
    if shown.look.notes(shown.study).keys() - {None}:
        titles += [_TAGS, _NOTE]
    chosen_titles: list[str] = st.multiselect(
        "Columns",
        titles[1:],
        placeholder="all; choose columns in the order in which to show them",
        key="columns",
        bind="query-params",
    )
    return chosen_titles


@dataclass(frozen=True, slots=True, kw_only=True)
class _Choice:
    """Which trials are shown."""

    words: tuple[str, ...]
    where: str
    tags: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Known:
    """All that the table shows."""

    trials: TrialColumns
    objectives: Sequence[Objective]
    params: Params
    costs: TrialCosts
    notes: Mapping[int | None, Note]
    now: datetime

    def is_same(self, other: _Known) -> bool:
        """Whether nothing has changed, if all trials have ended."""
        is_alike = self.objectives == other.objectives and self.notes == other.notes
        is_unread = self.params is other.params and self.costs is other.costs
        return is_alike and is_unread and self.trials is other.trials

    def table(self, trials: TrialColumns) -> dict[str, list[Cell]]:
        return table_of(trials, self.objectives, self.params, self.now, self.costs)


@dataclass(kw_only=True)
class _Rows:
    """The trials of the table by row. A row keeps its trial: a click opens the displayed one.

    New trials are appended until the list is rebuilt under another key.
    """

    of: tuple[object, ...]
    key: str
    numbers: list[int] = field(default_factory=list)
    n_at_first: int = 0
    #: How many trials pass the filter, and how many rows do not any more.
    n_passed: int = 0
    n_left_out: int = 0
    drawn: Drawn | None = None
    #: What the table was drawn from; None if the next look may show something else.
    drawn_from: _Known | None = None
    #: Its row stays selected in the browser: another click there deselects it.
    opened: int | None = None

    def follow(self, found: Sequence[int], known: frozenset[int]) -> None:
        """Appends new trials.

        Args:
            found: Trials that pass the filter, the newest first.
            known: All trials of the study.
        """
        self.n_passed, self.n_left_out = len(found), 0
        if not self.numbers or not known.issuperset(self.numbers):
            self.numbers = list(found)
            self.n_at_first = len(found)
            return
        held = set(self.numbers)
        self.numbers += [each for each in reversed(found) if each not in held]
        self.n_left_out = len(held.difference(found))


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


def _table(shown: Shown, choice: _Choice, titles: Sequence[str], *, is_for_several: bool) -> None:
    if st.session_state.pop(_REDRAW_KEY, False):
        st.rerun()
    known = _read(shown)
    rows = _rows_for((shown.study, choice))
    if rows.drawn is None or rows.drawn_from is None or not known.is_same(rows.drawn_from):
        rows.follow(_passed(known, choice), frozenset(known.trials.numbers.tolist()))
        rows.drawn = shell.drawn_table(_columns(known, rows.numbers))
        # Durations of trials that run change with the time alone.
        rows.drawn_from = known if known.trials.is_finished.all() else None
    event = st.dataframe(
        rows.drawn.cells,
        hide_index=True,
        placeholder="",
        key=f"{rows.key} several" if is_for_several else rows.key,
        on_select="rerun" if is_for_several else lambda: _open_selected(rows),
        selection_mode="multi-row" if is_for_several else "single-row",
        height=600 if len(rows.numbers) > 15 else "auto",
        column_config=rows.drawn.formats,
        column_order=["trial", *titles] if titles else None,
    )
    n_passed = f"{rows.n_passed} of {len(known.trials)} trials."
    if is_for_several:
        st.caption(f"{n_passed} Select {MIN_COMPARED} to {MAX_COMPARED} at their left.")
        selected = [row for row in event["selection"]["rows"] if row < len(rows.numbers)]
        shell.compare_button("trials", [str(rows.numbers[row]) for row in selected])
    else:
        st.caption(f"{n_passed} Select one at its left to open it.")
    n_new = len(rows.numbers) - rows.n_at_first
    if n_new or rows.n_left_out:
        with st.container(horizontal=True, vertical_alignment="center"):
            st.button("Newest first", on_click=_begin_anew, args=(rows.of,))
            st.caption(f"Rows keep their places: {_about_rows(n_new, rows.n_left_out)}.")


def _read(shown: Shown) -> _Known:
    look, now = shown.look, shell.now()
    trials = look.trials(shown.study)
    return _Known(
        trials=trials,
        objectives=shown.objectives,
        params=look.params(shown.study, trials),
        costs=look.costs(shown.study, now),
        notes=look.notes(shown.study),
        now=now,
    )


def _columns(known: _Known, numbers: Sequence[int]) -> dict[str, list[Cell]]:
    """Columns of the table, for these trials in this order."""
    some = known.trials.where(np.searchsorted(known.trials.numbers, numbers))
    table = known.table(some)
    if known.notes.keys() - {None}:
        of_rows = [known.notes.get(number) for number in numbers]
        table[_TAGS] = [", ".join(note.tags) if note else "" for note in of_rows]
        table[_NOTE] = [note.text if note else "" for note in of_rows]
    return table


def _about_rows(n_new: int, n_left_out: int) -> str:
    said = []
    if n_new:
        said.append(f"{n_new} newer trial{'s are' if n_new > 1 else ' is'} at the end")
    if n_left_out:
        rows = "rows do not pass" if n_left_out > 1 else "row does not pass"
        said.append(f"{n_left_out} {rows} the filter any more")
    return ", and ".join(said)


def _passed(known: _Known, choice: _Choice) -> list[int]:
    """Numbers of the trials that pass the filter, the newest first."""
    some = chosen(known.trials, choice.words)
    if choice.tags:
        wanted = set(choice.tags)
        tagged = [
            number for number, note in known.notes.items() if not wanted.isdisjoint(note.tags)
        ]
        some = some.where(np.isin(some.numbers, [each for each in tagged if each is not None]))
    if choice.where:
        some = some.where(rows_where(choice.where, known.table(some), len(some)))
    numbers: list[int] = some.numbers.tolist()
    return numbers


def _open_selected(rows: _Rows) -> None:
    selected = st.session_state[rows.key]["selection"]["rows"]
    if selected and selected[0] < len(rows.numbers):
        rows.opened = rows.numbers[selected[0]]
    if rows.opened is not None:
        shell.choose_trial(rows.opened)
        st.session_state[_REDRAW_KEY] = True
