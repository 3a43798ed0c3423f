"""State shared by all pages: the database, the chosen study, the refresh interval.

Choices are in the address, so that a link shows the same page: each widget that changes the content
has a `key`, under which Streamlit keeps it there (`bind="query-params"`). This module adds the
study and the trial, which clicks and the command line set, too.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa
import streamlit as st
from streamlit.elements.lib.column_types import ColumnConfig

from tuner.app.data.compare.trials import MAX_COMPARED, MIN_COMPARED
from tuner.app.data.digits import number_format, values_text
from tuner.app.data.page_data import Look, look_at
from tuner.app.data.trials.table import AGO
from tuner.config.sections.confirm import is_confirmation
from tuner.errors import StoreError, TunerError
from tuner.monitoring.dashboard_process import DATABASE_VARIABLE, STUDY_VARIABLE
from tuner.queries.locate import StoredStudy
from tuner.queries.studies import Objective

STUDY_KEY, TRIAL_KEY, LIVE_KEY = "study", "trial", "live"
#: Keys of pages that others link to.
TRIALS_PAGE_KEY, COMPARE_PAGE_KEY = "page of trials", "page of comparisons"
#: The key of the page to switch to, and its query parameters.
_LEAVE_KEY = "leave for another page"
#: Invalid values in the address: an unknown study, or no trial number.
_MISSING_KEY, _BAD_TRIAL_KEY = "missing study", "bad trial"
_FIRST_LOOK_KEY = "first look for the database"
#: The trial that this module last wrote to the address: a different one came from the browser's
#: Back or Forward.
_WRITTEN_KEY = "trial in the address"
_REFRESH_S = 2.0
#: Columns of instants that are shown as "3 minutes ago".
AGO_TITLES = frozenset({AGO, "saved", "when"})
#: A browser's numbers are exact up to 16 digits; a larger one is no trial's.
_MAX_DIGITS = 15
_MAX_SHOWN = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """The subject of a page."""

    look: Look
    study: StoredStudy
    objectives: tuple[Objective, ...]

    @property
    def revision(self) -> str:
        """The same as long as a figure shows the same thing."""
        return f"{self.study.id} {self.study.name}"


def look() -> Look:
    """The reader of the dashboard's database.

    Raises:
        StoreError: If the database does not exist or can't be read.
    """
    url = os.environ.get(DATABASE_VARIABLE)
    if not url:
        raise StoreError("No database was named. Start the dashboard with `tuner dashboard`.")
    return look_at(url)


def _look_or_none() -> Look | None:
    try:
        return look()
    except StoreError:
        return None


def escaped(text: str) -> str:
    """Text as Markdown that shows just these characters."""
    return re.sub(r"([\\`*_{}\[\]()#+\-.!|<>~$:&^=])", r"\\\1", text)


def values_as_text(values: Mapping[str, float]) -> str:
    """`loss 0.12, latency_ms 3.4` as Markdown that shows just these characters."""
    return values_text({escaped(name): value for name, value in values.items()})


def tab_title(page: str) -> str:
    """The title of a browser's tab: the study's name first, because tabs are narrow."""
    study = st.session_state.get(STUDY_KEY)
    return f"{study}: {page}" if study else page


def now() -> datetime:
    return datetime.now(UTC)


def guarded(part: Callable[[], None]) -> Callable[[], None]:
    """Shows a database error in place of a part of a page, which is retried."""

    def shown() -> None:
        try:
            part()
        except TunerError as error:
            st.error(str(error))

    return shown


def live(key: str, part: Callable[[], None], *, is_hidden: bool = False) -> None:
    """Shows a part of a page, and again every few seconds, without the rest.

    Args:
        key: A name that no other part of the page has.
        part: Its content.
        is_hidden: Whether it is out of sight, and so not refreshed. To the browser it is the same
            part: it is not sent a second time.
    """
    is_live = st.session_state.get(LIVE_KEY, True) and not is_hidden
    held = _look_or_none()

    def shown() -> None:
        _leave()
        if look() is not held:  # The file was replaced: nothing of the page is about the new one.
            st.rerun()
        part()

    st.fragment(guarded(shown), run_every=_REFRESH_S if is_live else None, key=key)()


def name_study(study: StoredStudy) -> None:
    """Names the study below the title of a page."""
    st.caption(f"Study **{escaped(study.name)}**")


def page_of_a_study(page: Callable[[Shown], None], *, is_named: bool = False) -> None:
    """Shows a page about the chosen study, or why there is none.

    Args:
        page: Its content.
        is_named: Whether the content shows the title of the page and the name of the study.
    """

    def whole() -> None:
        studies = look().studies()
        if missing := st.session_state.get(_MISSING_KEY):
            st.warning(
                f"This database has no study {escaped(repr(missing))}. Choose a study at the left."
            )
            return
        study = studies.get(st.session_state.get(STUDY_KEY) or "")
        if study is None:
            st.info("The database holds no study yet. Run one: `python -m tuner.run study.yaml`")
            return
        if not is_named:
            name_study(study)
        objectives = look().objectives(study)
        page(Shown(look=look(), study=study, objectives=objectives))

    try:
        whole()
    except StoreError as error:
        st.error(str(error))
        _come_back()


def _come_back() -> None:
    """Shows the page as soon as the database can be read again."""

    def look_again() -> None:
        try:
            look().studies()
        except TunerError:
            return
        if not st.session_state.pop(_FIRST_LOOK_KEY, False):
            st.rerun()

    st.session_state[_FIRST_LOOK_KEY] = True
    st.fragment(look_again, run_every=_REFRESH_S, key="come back")()


def column_formats(columns: Mapping[str, Sequence[object]]) -> dict[str, ColumnConfig]:
    """Formats of floats (a learning rate of 0.00003 is not 0) and of ages in tables.

    A table's cells have no hover text: a column of its own has the instant, in UTC.
    """
    formats: dict[str, ColumnConfig] = {
        title: st.column_config.NumberColumn(format=number_format(title, cells))
        for title, cells in columns.items()
        if any(isinstance(cell, float) for cell in cells)
    }
    for title in columns.keys() & AGO_TITLES:
        formats[title] = st.column_config.DatetimeColumn(
            format="distance", help=f"The column *{title} (UTC)* has the instant."
        )
    return formats


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Drawn:
    """A table that Streamlit can send again without building it again."""

    cells: pa.Table
    formats: Mapping[str, ColumnConfig]


def drawn_table(columns: Mapping[str, Sequence[object]]) -> Drawn:
    """A large table; None is an empty cell."""
    return Drawn(
        cells=pa.table({title: _arrow(cells) for title, cells in columns.items()}),
        formats=column_formats(columns),
    )


def _arrow(cells: Sequence[object]) -> pa.Array:
    try:
        return pa.array(cells)
    except (pa.ArrowException, OverflowError):  # Whole numbers beyond 64 bits.
        return pa.array([None if cell is None else str(cell) for cell in cells])


def choice(label: str, words: Sequence[str], *, key: str) -> str:
    """One of some words, at first the first one."""
    return st.segmented_control(
        label, words, default=words[0], required=True, key=key, bind="query-params"
    )


def objective_place(names: Sequence[str]) -> int:
    """Which objective a figure is about; the choice holds on other pages, too."""
    if len(names) < 2:
        return 0
    chosen = st.selectbox("Objective", names, width=220, key="objective", bind="query-params")
    return names.index(chosen)


def sidebar() -> None:
    """Chooses the study; the choice is kept in the address, so that it can be shared."""
    # The newest first; runs of leaders after the studies that they belong to.
    names = sorted(list(look().studies())[::-1], key=is_confirmation)
    with st.sidebar:
        if names:
            _begin_with_a_study(names)
            missing = st.session_state.get(_MISSING_KEY)
            st.selectbox(
                "Study",
                names,
                index=None if missing else 0,
                placeholder="Choose a study",
                key=STUDY_KEY,
                on_change=_change_study,
            )
            st.query_params[STUDY_KEY] = missing or st.session_state[STUDY_KEY]
        st.toggle(
            "Live",
            value=True,
            key=LIVE_KEY,
            help="Refreshes every 2 seconds.",
            bind="query-params",
        )
        shown = look().shown_url
        is_file = shown.startswith("sqlite:")
        st.caption(f"`{shown.rpartition('/')[2] if is_file else shown}`", help=shown)


def _begin_with_a_study(names: list[str]) -> None:
    if st.session_state.get(STUDY_KEY) in names:
        return
    linked = st.query_params.get(STUDY_KEY)
    is_missing = linked is not None and linked not in names
    st.session_state[_MISSING_KEY] = linked if is_missing else None
    if is_missing:
        st.session_state[STUDY_KEY] = None
        return
    wanted = (linked, os.environ.get(STUDY_VARIABLE))
    st.session_state[STUDY_KEY] = next((each for each in wanted if each in names), names[0])


def _change_study() -> None:
    st.session_state[_MISSING_KEY] = None
    forget_trial()


def forget_trial() -> None:
    st.session_state[TRIAL_KEY] = None
    st.session_state[_WRITTEN_KEY] = None
    st.session_state.pop(_BAD_TRIAL_KEY, None)
    st.query_params.pop(TRIAL_KEY, None)


def choose_trial(number: int | None) -> None:
    """Shows one trial on the page of trials, or all."""
    st.session_state[TRIAL_KEY] = number
    st.session_state[_WRITTEN_KEY] = None if number is None else str(number)
    if number is None:
        if _BAD_TRIAL_KEY not in st.session_state:
            st.query_params.pop(TRIAL_KEY, None)
    else:
        st.session_state.pop(_BAD_TRIAL_KEY, None)
        st.query_params[TRIAL_KEY] = str(number)


def open_trial(number: int) -> None:
    """Opens a trial from a figure on any page: the next fragment switches to it."""
    choose_trial(number)
    st.session_state[_LEAVE_KEY] = (TRIALS_PAGE_KEY, {TRIAL_KEY: str(number)})


def compare_button(what: str, chosen: Sequence[str]) -> None:
    """A button to the compare page.

    Args:
        what: `trials` or `studies`.
        chosen: Their numbers or names.
    """
    st.button(
        f"Compare {len(chosen)} {what}" if chosen else "Compare",
        disabled=not MIN_COMPARED <= len(chosen) <= MAX_COMPARED,
        on_click=_compare,
        args=(what, list(chosen)),
        key=f"compare selected {what}",
    )


def _compare(what: str, chosen: list[str]) -> None:
    named: str | list[str] = ",".join(chosen) if what == "trials" else chosen
    st.session_state[_LEAVE_KEY] = (COMPARE_PAGE_KEY, {"compare": what, what: named})


def _leave() -> None:
    """Switches to the page that a click has requested."""
    asked = st.session_state.pop(_LEAVE_KEY, None)
    if asked is not None and asked[0] in st.session_state:
        page, address = asked
        address = {STUDY_KEY: st.session_state[STUDY_KEY], **address}
        st.switch_page(st.session_state[page], query_params=address)


def chosen_trial() -> int | None:
    """The trial in the address when a page is opened, or clicked since."""
    linked = st.query_params.get(TRIAL_KEY, "")
    is_other = (linked or None) != st.session_state.get(_WRITTEN_KEY)
    has_moved = is_other and _WRITTEN_KEY in st.session_state
    if has_moved or TRIAL_KEY not in st.session_state:
        is_number = linked.isdecimal() and len(linked) <= _MAX_DIGITS
        st.session_state[TRIAL_KEY] = int(linked) if is_number else None
        st.session_state[_WRITTEN_KEY] = linked or None
        st.session_state.pop(_BAD_TRIAL_KEY, None)
        if linked and not is_number:
            st.session_state[_BAD_TRIAL_KEY] = linked
    number: int | None = st.session_state[TRIAL_KEY]
    return number


def warn_of_bad_trial(shown: Shown) -> None:
    """Warns if the address contains an impossible trial number."""
    if bad := st.session_state.get(_BAD_TRIAL_KEY):
        text = bad if len(bad) <= _MAX_SHOWN else f"{bad[:_MAX_SHOWN]}..."
        name = escaped(shown.study.name)
        st.warning(f"There is no trial {escaped(repr(text))} in study {name}.")
