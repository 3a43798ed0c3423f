"""Scripts that call the Python API, and what they tell of it."""

from __future__ import annotations

import json

from tests.e2e.interruptions.test_interrupt import PATIENT
from tests.e2e.study_folder import Ended, Running, StudyFolder, wait_until

#: A script imports torch and starts processes several times, on a machine that may be busy.
_TIMEOUT_S = 110.0


#: What a script of these tests ends with: whatever it has put into `told`, as JSON.
_TELL = "\nimport json, pathlib\npathlib.Path('told.json').write_text(json.dumps(told))\n"


def script(folder: StudyFolder, text: str) -> tuple[Ended, dict[str, object]]:
    """Runs a script to its end; what it has put into `told`."""
    ended = start_script(folder, text).wait(_TIMEOUT_S)
    told = folder.path / "told.json"
    return ended, json.loads(told.read_text()) if told.exists() else {}


def start_script(folder: StudyFolder, text: str) -> Running:
    folder.write("script.py", f"import tuner\ntold = {{}}\n{text}{_TELL}")
    return folder.start_python("script.py")


def patient(folder: StudyFolder, text: str) -> Running:
    """Starts a script whose study has trials that wait for the file `go`; two are at work."""
    folder.write("forecast.py", PATIENT)
    folder.study(pruner={"name": "none"})
    running = start_script(folder, text)
    wait_until(
        lambda: {"begun-0-1", "begun-1-1"} <= folder.files() or running.process.poll() is not None,
        "two trials are at work",
    )
    assert running.process.poll() is None, running.wait()
    return running
