"""Trials as runs of MLflow, in a database and in a real tracking server, read back by MLflow."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from mlflow.entities import Run
from mlflow.tracking import MlflowClient

from tests.e2e.study_folder import StudyFolder, wait_until
from tests.e2e.trackers.tracked_programs import STAYS, TRAIN
from tuner.app.views.shell import STUDY_KEY, TRIAL_KEY
from tuner.errors import EXIT_BUDGET_REACHED
from tuner.tracking.mlflow_runs import TAG_PREFIX

#: MLflow's own, of libraries that are newer than it.
pytestmark = [pytest.mark.programs, pytest.mark.filterwarnings("ignore")]
_QUIET = {"MLFLOW_DISABLE_TELEMETRY": "true"}


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """No telemetry, and no minutes of retries."""
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")


class Server:
    """A tracking server that can be stopped and started again."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.uri = f"http://127.0.0.1:{self.port}"
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with (self._folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1"),
                    *("--port", str(self.port), "--workers", "1"),
                    *("--backend-store-uri", f"sqlite:///{self._folder}/server.db"),
                ],
                cwd=self._folder,
                env={**os.environ, **_QUIET, "PYTHONWARNINGS": "ignore"},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        wait_until(self._answers, f"the server answers ({self._folder}/server.log)")

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.uri}/health", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """One that is not started yet."""
    folder = tmp_path / "server"
    folder.mkdir()
    one = Server(folder)
    try:
        yield one
    finally:
        one.stop()


def runs(uri: str, experiment: str = "small") -> list[Run]:
    """Of the experiment, in the order of their trials."""
    client = MlflowClient(uri)
    found = client.get_experiment_by_name(experiment)
    if found is None:
        return []
    listed = client.search_runs([found.experiment_id])
    return sorted(listed, key=lambda run: int(run.data.tags.get(f"{TAG_PREFIX}trial", -1)))


def curve(uri: str, run: Run, name: str) -> list[tuple[int, float]]:
    history = MlflowClient(uri).get_metric_history(run.info.run_id, name)
    return sorted((each.step, each.value) for each in history)


def test_database_holds_parameters_curves_and_outcomes(study_folder: StudyFolder) -> None:
    study_folder.write("forecast.py", TRAIN)
    study_folder.study(
        track={"mlflow": {"uri": "sqlite:///mlflow.db", "experiment": "mine"}},
        search_space={"x": {"type": "float", "low": 0, "high": 1}, "sizes": {"value": [1, 2]}},
        objectives={"top 1 (%)": "maximize"},
        pruner="none",
    )
    ended = study_folder.tune()
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    uri = f"sqlite:///{study_folder.path}/mlflow.db"
    found = runs(uri, "mine")
    assert [run.info.run_name for run in found] == [f"small/trial-{n}" for n in range(4)]
    states = {"COMPLETE": ("FINISHED", "completed"), "FAIL": ("FAILED", "failed")}
    expected = [states[state] for state in study_folder.states()]
    assert expected[1] == states["FAIL"]
    assert [(run.info.status, run.data.tags[f"{TAG_PREFIX}outcome"]) for run in found] == expected
    first = found[0]
    assert first.data.params["sizes"] == "[1, 2]"
    x = float(first.data.params["x"])
    assert curve(uri, first, "top 1 ___") == [(n, pytest.approx(x * n)) for n in (1, 2, 3)]
    assert first.data.metrics["final/top 1 ___"] == pytest.approx(x)
    tags = first.data.tags
    assert tags[f"{TAG_PREFIX}study"] == "small"
    assert tags[f"{TAG_PREFIX}devices"].startswith("cpu:")
    assert Path(tags[f"{TAG_PREFIX}log"]).exists()
    number = tags[f"{TAG_PREFIX}trial"]
    page = f"http://127.0.0.1:8501/trials?{STUDY_KEY}=small&{TRIAL_KEY}={number}"
    assert tags[f"{TAG_PREFIX}page"] == page


def test_killed_dispatcher_leaves_runs_that_continue(study_folder: StudyFolder) -> None:
    study_folder.write("forecast.py", STAYS)
    study_folder.study(track={"mlflow": "sqlite:///mlflow.db"}, budget={"trials": 1})
    uri = f"sqlite:///{study_folder.path}/mlflow.db"
    running = study_folder.start()
    progress = study_folder.path / "tuner-files/small/trackers"
    wait_until(
        lambda: any('"value": 3' in path.read_text() for path in progress.glob("*.json")),
        "three steps are written",
    )
    running.signal(signal.SIGKILL)
    running.wait()
    # What was written and not noted is found in the run itself.
    for path in progress.iterdir():
        path.unlink()
    assert study_folder.tune().code == EXIT_BUDGET_REACHED
    (run,) = runs(uri)
    assert curve(uri, run, "value") == [(1, 1.0), (2, 2.0), (3, 3.0), (4, 14.0), (5, 15.0)]
    assert run.data.tags[f"{TAG_PREFIX}attempt"] == "2"
    assert run.info.status == "FINISHED"


# By day, test_tracker_plugins.py has a tracker that is down first.
@pytest.mark.nightly
def test_server_that_is_down_first_gets_everything_once_it_is_up(
    study_folder: StudyFolder, server: Server
) -> None:
    study_folder.write("forecast.py", TRAIN)
    study_folder.study(track={"mlflow": server.uri}, pruner="none")
    running = study_folder.start()
    wait_until(lambda: "track.mlflow cannot be written" in running.out, "it is said")
    wait_until(lambda: running.out.count(": completed") == 3, "trials do not wait for it")
    server.start()
    ended = running.wait()
    if "not written completely" in ended.out:
        # The server took longer than the dispatcher waits.
        ended = study_folder.tune()
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    found = runs(server.uri)
    assert [run.info.status for run in found] == ["FINISHED", "FAILED", "FINISHED", "FINISHED"]
    for run in found:
        assert [step for step, _ in curve(server.uri, run, "value")] == [1, 2, 3]


def test_runs_of_the_objective_itself_are_ended(study_folder: StudyFolder) -> None:
    """Fluent calls without a block begin a run, which MLflow ends when the program does."""
    study_folder.write(
        "forecast.py",
        "import mlflow\n"
        "def train(trial):\n"
        "    mlflow.set_tracking_uri('sqlite:///own.db')\n"
        "    mlflow.log_metric('loss', trial.params['x'])\n"
        "    return trial.params['x']\n",
    )
    study_folder.study(budget={"trials": 2}, devices="cpu:1")
    ended = study_folder.tune()
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    runs = study_folder.rows("select status from runs", database="own.db")
    assert runs == [("FINISHED",)] * 2
