"""Pages of the dashboard, run by Streamlit without a browser."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from tuner.monitoring.dashboard_process import DATABASE_VARIABLE, STUDY_VARIABLE

#: For a machine that is busy with other tests.
TIMEOUT_S = 60


def show_database(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """Makes it the one that pages show, no study of it named."""
    monkeypatch.setenv(DATABASE_VARIABLE, url)
    monkeypatch.delenv(STUDY_VARIABLE, raising=False)


def opened(
    page: str,
    *,
    state: Mapping[str, object] | None = None,
    timeout_s: float = TIMEOUT_S,
    **address: str | list[str],
) -> AppTest:
    """A page that shows no error.

    Args:
        page: The module of `tuner.app.views`.
        state: What widgets and pages have noted before.
        timeout_s: For all that is on it.
        **address: What stands in its address.
    """
    script = f"from tuner.app.views import {page}, shell\nshell.sidebar()\n{page}.page()"
    test = AppTest.from_string(script, default_timeout=timeout_s)
    for key, value in (state or {}).items():
        test.session_state[key] = value
    for key, text in address.items():
        test.query_params[key] = text
    return fine(test.run())


def fine(test: AppTest) -> AppTest:
    """The same, unless it shows an error."""
    assert [each.message for each in test.exception] == []
    assert [each.value for each in test.error] == []
    return test


def figures(test: AppTest) -> list[dict[str, Any]]:
    """The figures of a page, as Plotly reads them."""
    components = [json.loads(each.proto.json) for each in test.get("bidi_component")]
    return [json.loads(each["figure"]) for each in components]
