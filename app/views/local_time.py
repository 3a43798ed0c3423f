"""The time zone of the browser that looks at a page."""

from __future__ import annotations

import streamlit as st

from tuner.app.charts.zone import IN_UTC, Zone


def browser_zone() -> Zone:
    """The browser's time zone; UTC if unknown."""
    # Minutes that are added to local time for UTC, as JavaScript's `getTimezoneOffset`.
    minutes = st.context.timezone_offset
    return Zone(offset_s=-60.0 * minutes) if minutes else IN_UTC
