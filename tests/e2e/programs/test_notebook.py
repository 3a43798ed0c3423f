"""The notebook of the examples and the stop button, in real Jupyter kernels."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.interruptions.test_interrupt import PATIENT
from tests.e2e.study_folder import REPOSITORY, StudyFolder

pytestmark = pytest.mark.programs

#: Executes a notebook as Jupyter does, and writes it with its outputs.
RUN_ALL = """
import nbclient
import nbformat

notebook = nbformat.read("tune.ipynb", as_version=4)
nbclient.NotebookClient(notebook, timeout=110, kernel_name="python3").execute()
nbformat.write(notebook, "executed.ipynb")
"""
#: Executes cells.json in one kernel. A cell is interrupted when the files it names are there.
CELLS = """
import json
import time
from pathlib import Path

from jupyter_client.manager import start_new_kernel

manager, client = start_new_kernel(kernel_name="python3")
told = []
for cell in json.loads(Path("cells.json").read_text()):
    sent = client.execute(cell["code"])
    while cell["stop_at"] and not all(Path(name).exists() for name in cell["stop_at"]):
        time.sleep(0.05)
    if cell["stop_at"]:
        manager.interrupt_kernel()
    reply = client.get_shell_msg(timeout=100)
    while reply["parent_header"]["msg_id"] != sent:
        reply = client.get_shell_msg(timeout=100)
    outputs, is_idle = [], False
    while not is_idle:
        message = client.get_iopub_msg(timeout=100)
        outputs.append([message["msg_type"], message["content"]])
        is_idle = message["content"].get("execution_state") == "idle"
    told.append({"reply": reply["content"], "outputs": outputs})
client.stop_channels()
manager.shutdown_kernel()
Path("told.json").write_text(json.dumps(told))
"""


def run_cells(folder: StudyFolder, *cells: tuple[str, list[str]]) -> list[dict[str, Any]]:
    """Executes cells in one kernel.

    Args:
        folder: Of the kernel.
        cells: The code of each, and the files at which the stop button is pressed; none for never.
    """
    plan = [{"code": code, "stop_at": names} for code, names in cells]
    folder.write("cells.json", json.dumps(plan))
    folder.write("cells.py", CELLS)
    ended = folder.python("cells.py")
    assert ended.code == 0, ended.text
    told: list[dict[str, Any]] = json.loads((folder.path / "told.json").read_text())
    return told


def shown(cell: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What was displayed, each time in the place of the last."""
    for kind, content in cell["outputs"]:
        if kind in ("display_data", "update_display_data"):
            yield content["data"]


def test_notebook_of_the_examples_runs(study_folder: StudyFolder) -> None:
    shutil.copy(REPOSITORY / "examples/notebook/tune.ipynb", study_folder.path)
    study_folder.write("run_all.py", RUN_ALL)
    ended = study_folder.python("run_all.py")
    assert ended.code == 0, ended.text

    notebook = json.loads((study_folder.path / "executed.ipynb").read_text())
    outputs = {cell["id"]: cell.get("outputs", []) for cell in notebook["cells"]}
    (picture,) = outputs["tune"]
    page = "".join(picture["data"]["text/html"])
    assert "16 of 16 trials: " in page
    assert "<polyline" in page
    assert "budget reached: 16 trials: " in page
    assert "budget reached: 16 trials: " in "".join(picture["data"]["text/plain"])

    (best,) = json.loads(study_folder.best("sqlite:///wine-notebook.db", "--format", "json").out)
    (printed,) = outputs["best"]
    assert str(best["values"]["accuracy"]) in "".join(printed["data"]["text/plain"])
    assert best["values"]["accuracy"] > 0.8
    (table,) = outputs["trials"]
    assert "values_accuracy" in "".join(table["data"]["text/html"])
    (figure,) = outputs["figures"]
    assert figure["data"]["application/vnd.plotly.v1+json"]["data"]


# By day, test_python_api.py interrupts the same call.
@pytest.mark.nightly
def test_stop_button_loses_nothing_and_the_same_cell_goes_on(study_folder: StudyFolder) -> None:
    tune = (
        "study = tuner.tune(train, {'x': [0, 1]}, name='small', trials=3, devices='cpu:2', "
        "pruner='none')"
    )
    cells = run_cells(
        study_folder,
        (f"import tuner\n{PATIENT}", []),
        (tune, ["begun-0-1", "begun-1-1"]),
        ("Path('go').touch()", []),
        (tune, []),
        ("other = tuner.tune(train, {'x': [0, 1]}, name='other', trials=2, wait=False)", []),
        ("assert other.wait()\nlen(other.trials), len(study.trials)", []),
    )
    assert [each["reply"]["status"] for each in cells] == ["ok", "error", *["ok"] * 4]
    assert cells[1]["reply"]["ename"] == "StudyInterrupted"
    (first, *_), (*_, last) = list(shown(cells[1])), list(shown(cells[1]))
    assert first["text/plain"] == "study small: starting"
    assert "everything is saved. The same call continues the study." in last["text/plain"]
    assert study_folder.states() == ["COMPLETE"] * 3
    (*_, last) = shown(cells[3])
    assert "3 of 3 trials: 3 completed, 0 pruned, 0 failed" in last["text/html"]
    (result,) = [content for kind, content in cells[5]["outputs"] if kind == "execute_result"]
    assert result["data"]["text/plain"] == "(2, 3)"


def test_two_studies_of_one_kernel_do_not_disturb_each_other(study_folder: StudyFolder) -> None:
    """The second one starts while the first one is at work, with another function of that name."""
    function = """
import time
from pathlib import Path

def train(trial):
    Path(f"begun-{STUDY}-{trial.number}").touch()
    while not Path("go").exists():
        time.sleep(0.02)
    return VALUE
"""
    start = "= tuner.tune(train, {'x': [0, 1]}, name=STUDY, trials=2, devices='cpu:1', wait=False)"
    cells = run_cells(
        study_folder,
        (f"import tuner\nSTUDY, VALUE = 'first', 1.0\n{function}", []),
        (f"first {start}", []),
        ("while not Path('begun-first-0').exists(): time.sleep(0.02)", []),
        (f"STUDY, VALUE = 'second', 2.0\n{function}", []),
        (f"second {start.replace('cpu:1', 'cpu:2')}", []),
        ("while not Path('begun-second-0').exists(): time.sleep(0.02)", []),
        ("assert first.is_running and second.is_running\nPath('go').touch()", []),
        ("first.wait() and second.wait()", []),
        ("[list(each.trials['values_value']) for each in (first, second)]", []),
    )
    assert [each["reply"]["status"] for each in cells] == ["ok"] * 9, cells[-3:]
    (result,) = [content for kind, content in cells[8]["outputs"] if kind == "execute_result"]
    assert result["data"]["text/plain"] == "[[1.0, 1.0], [2.0, 2.0]]"
    printed = [content["text"] for kind, content in cells[1]["outputs"] if kind == "stream"]
    assert any("Study 'first' runs in the background" in text for text in printed)
