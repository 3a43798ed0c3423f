"""Dispatchers in PID namespaces of one host name, and on machines whose clock is set meanwhile."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from tests.contract.store.old_schema import connected
from tests.e2e.dispatchers.test_fleet import CHECKABLE, a_study, check_all_are_done
from tests.e2e.study_folder import REPOSITORY, StudyFolder, wait_until
from tests.nvml_stub import NvmlStub, StubGpu
from tests.servers import Server
from tuner.errors import EXIT_BAD_INPUT, EXIT_BUDGET_REACHED

N_TRIALS = 40
#: As `docker run --network host` does: pids of its own, the host's name.
IN_NAMESPACE = ("unshare", "--pid", "--fork", "--mount-proc")
#: The clock was set by an hour after the first dispatcher had started. psutil derives from the boot
#: time, which moves with the clock, when a process began.
CLOCK_WAS_SET = """
import datetime, time, psutil
now = time.time
time.time = lambda: now() + 3600.0
create_time = psutil.Process.create_time
psutil.Process.create_time = lambda self: create_time(self) + 3600.0
class Later(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return super().now(tz) + datetime.timedelta(hours=1)
datetime.datetime = Later
"""
PATIENT = """
import pathlib, time

def train(trial):
    pathlib.Path("begun").touch()
    while not pathlib.Path("go").exists():
        time.sleep(0.05)
    return trial.params["x"]
"""


def need_namespaces() -> None:
    if shutil.which("unshare") is None:
        pytest.skip("there is no unshare")
    if subprocess.run([*IN_NAMESPACE, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("this user cannot make a PID namespace")


@pytest.fixture
def shared(study_folder: StudyFolder, postgresql: Server) -> Iterator[StudyFolder]:
    url = postgresql.new_database()
    study_folder.env["STORAGE"] = url
    study_folder.write("forecast.py", CHECKABLE)
    yield study_folder
    study_folder.end_all()
    postgresql.drop_database(url)


def n_working(folder: StudyFolder) -> int:
    """Dispatchers that have an attempt in the database."""
    query = "SELECT count(DISTINCT dispatcher_id) FROM tuner_attempts"
    try:
        with connected(folder.env["STORAGE"]) as connection:
            return int(connection.exec_driver_sql(query).scalar() or 0)
    except sa.exc.DBAPIError:
        return 0  # There are no tables yet.


@pytest.mark.programs
def test_dispatchers_of_two_pid_namespaces_leave_each_other_alive(shared: StudyFolder) -> None:
    need_namespaces()
    # Trials wait for a file, so that one dispatcher cannot do all of them alone.
    gate = "    while not Path('go').exists():\n        time.sleep(0.05)\n"
    checkable = CHECKABLE.replace("    for step", f"{gate}    for step", 1)
    shared.write("forecast.py", f"from pathlib import Path\n{checkable}")
    a_study(shared, N_TRIALS)
    first = shared.start(prefix=IN_NAMESPACE)
    wait_until(lambda: n_working(shared) == 1, "the first is at work")
    second = shared.start(prefix=IN_NAMESPACE)
    wait_until(lambda: n_working(shared) == 2, "the second is at work, too")
    shared.write("go", "")
    for ended in (first.wait(), second.wait()):
        assert ended.code == EXIT_BUDGET_REACHED, ended.text
        assert "is gone" not in ended.out
    check_all_are_done(shared, N_TRIALS)
    with connected(shared.env["STORAGE"]) as connection:
        hosts = connection.exec_driver_sql("SELECT name FROM tuner_hosts").all()
        outcomes = connection.exec_driver_sql(
            "SELECT DISTINCT dispatcher_id, outcome FROM tuner_attempts"
        ).all()
    assert len(hosts) == 1
    assert {outcome for _, outcome in outcomes} == {"completed"}
    assert len(outcomes) == 2, "both worked"


def test_a_start_in_another_pid_namespace_is_refused_on_sqlite(study_folder: StudyFolder) -> None:
    need_namespaces()
    study_folder.write("forecast.py", PATIENT)
    study_folder.study(budget={"trials": 1}, devices="cpu:1")
    first = study_folder.start()
    wait_until(lambda: "begun" in study_folder.files(), "a trial is at work")
    second = study_folder.start(prefix=IN_NAMESPACE).wait()
    study_folder.write("go", "")
    assert first.wait().code == EXIT_BUDGET_REACHED
    assert second.code == EXIT_BAD_INPUT, second.text
    assert "cannot be checked from here" in second.out
    assert "This study is being run already, on " in second.err
    assert [(each.trial, each.outcome) for each in study_folder.attempts()] == [(0, "completed")]


def test_a_clock_that_was_set_makes_no_dispatcher_dead(study_folder: StudyFolder) -> None:
    study_folder.write("forecast.py", PATIENT)
    study_folder.study(budget={"trials": 1}, devices="cpu:1")
    first = study_folder.start()
    wait_until(lambda: "begun" in study_folder.files(), "a trial is at work")
    study_folder.write("clock/sitecustomize.py", CLOCK_WAS_SET)
    study_folder.env["PYTHONPATH"] = f"{study_folder.path}/clock:{REPOSITORY}"
    second = study_folder.tune()
    deleted = study_folder.tuner("delete", "--study", "small", "--yes")
    status = study_folder.tuner("status")
    study_folder.write("go", "")
    assert first.wait().code == EXIT_BUDGET_REACHED
    assert (second.code, deleted.code) == (EXIT_BAD_INPUT, EXIT_BAD_INPUT)
    assert "This study is being run already, on " in second.err
    assert "This study is being run, on " in deleted.err
    assert "died" not in status.out
    assert [(each.trial, each.outcome) for each in study_folder.attempts()] == [(0, "completed")]


# By day `test_leased_elsewhere` with clocks of its own.
@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_a_container_that_is_started_again_waits_for_the_leases_of_its_former_self(
    shared: StudyFolder, nvml_stub: NvmlStub
) -> None:
    need_namespaces()
    shared.env |= nvml_stub.env
    nvml_stub.write([StubGpu(uuid="GPU-aaaa")])
    shared.write("forecast.py", PATIENT)
    a_study(shared, 2, devices="auto")
    # All of it ends with the process that the signal reaches.
    first = shared.start(prefix=(*IN_NAMESPACE, "--kill-child"))
    wait_until(lambda: "begun" in shared.files(), "a trial is at work")
    first.end()
    # The kernel gives the number of a namespace that is gone to the next one.
    placeholder = subprocess.Popen([*IN_NAMESPACE, "--kill-child", "sleep", "inf"])
    try:
        second = shared.start(prefix=IN_NAMESPACE)
        wait_until(lambda: "GPU 0 is still leased to" in second.out, "it says what it waits for")
        shared.write("go", "")
        ended = second.wait(120.0)
    finally:
        placeholder.kill()
        placeholder.wait()
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    assert "GPU 0 is leased to no other dispatcher any more." in ended.out
    with connected(shared.env["STORAGE"]) as connection:
        outcomes = connection.exec_driver_sql("SELECT outcome FROM tuner_attempts ORDER BY id")
        assert outcomes.scalars().all() == ["lost", "completed", "completed"]
