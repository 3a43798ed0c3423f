"""Skips the refresh of a page that a click has just left.

The browser asks for a refresh every two seconds, and does so until it hears that the script has
switched to another page. Streamlit 1.67 runs such a request after the new page, under the name of
the old one: the browser clears the new page, and fails at its next refresh ("Bad delta path").
The page stays white until it is reloaded.
"""

from __future__ import annotations

from streamlit.runtime.scriptrunner import get_script_run_ctx
from streamlit.runtime.scriptrunner.script_runner import ScriptRunner
from streamlit.runtime.scriptrunner_utils.script_requests import RerunData


def is_late(request: RerunData, page_hash: str) -> bool:
    """Whether a request asks for a part of another page than the one that was run last.

    Args:
        request: What the browser asks for.
        page_hash: Streamlit's name of the page that was run last; empty before the first one.
    """
    asked = request.page_script_hash
    return bool(request.fragment_id_queue and page_hash and asked and asked != page_hash)


def skip_late_refreshes() -> None:
    """For all browsers of this process."""
    run = ScriptRunner._run_script

    def run_unless_late(self: ScriptRunner, rerun_data: RerunData) -> None:
        context = get_script_run_ctx()
        if context is None or not is_late(rerun_data, context.page_script_hash):
            run(self, rerun_data)

    # Streamlit has no hook at this place.
    ScriptRunner._run_script = run_unless_late  # type: ignore[method-assign]
