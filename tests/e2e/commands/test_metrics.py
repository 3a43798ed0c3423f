"""Figures for Prometheus, asked for while a study runs."""

from __future__ import annotations

import re
import signal
import socket
import urllib.request
from collections.abc import Iterator
from urllib.error import URLError

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.commands.test_control import PATIENT
from tests.e2e.study_folder import Running, StudyFolder, wait_until
from tuner.errors import EXIT_BAD_INPUT, EXIT_BUDGET_REACHED

Series = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def url_of(running: Running) -> str:
    wait_until(lambda: "metrics: http://" in running.out, "the address is printed")
    found = re.search(r"^metrics: (http://127\.0\.0\.1:\d+/metrics)$", running.out, re.M)
    assert found is not None
    return found[1]


def scrape(url: str) -> Series:
    with urllib.request.urlopen(url, timeout=10) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain")
        text = answer.read().decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(series: Series, name: str, **labels: str) -> float:
    return series[name, tuple(sorted(labels.items()))]


@pytest.fixture
def running(study_folder: StudyFolder) -> Running:
    study_folder.write("forecast.py", PATIENT)
    study_folder.study(pruner="none", budget={"trials": 4})
    started = study_folder.start("--metrics-port", "0")
    wait_until(lambda: started.out.count(": started on") == 2, "two trials run")
    return started


def test_figures_of_a_running_study(study_folder: StudyFolder, running: Running) -> None:
    url = url_of(running)
    wait_until(
        lambda: scrape(url).get(("tuner_trials", (("state", "running"),))) == 2, "they are told"
    )
    before = scrape(url)
    ((_, labels),) = [key for key in before if key[0] == "tuner_dispatcher_info"]
    about = dict(labels)
    assert (about["study"], about["pid"]) == ("small", str(running.process.pid))
    assert about["host"] == socket.gethostname()
    assert value(before, "tuner_trials", state="completed") == 0
    assert value(before, "tuner_budget_trials") == 4
    assert value(before, "tuner_devices_wanted") == 4
    assert value(before, "tuner_queue_length") == 0
    assert value(before, "tuner_dispatcher_stopping") == 0

    def grows(device: str) -> bool:
        name = "tuner_device_busy_seconds_total"
        return value(scrape(url), name, device=device) > value(before, name, device=device)

    wait_until(lambda: grows("cpu:0") and grows("cpu:1"), "busy seconds grow")
    last_round = "tuner_dispatcher_last_round_timestamp_seconds"
    assert value(scrape(url), last_round) > value(before, last_round)
    study_folder.write("go", "")
    seen = [before]
    for latest in until_closed(url):
        seen.append(latest)
    assert running.wait().code == EXIT_BUDGET_REACHED
    assert all(value(each, "tuner_trials", state="failed") == 0 for each in seen)
    completed = [value(each, "tuner_attempts_total", outcome="completed") for each in seen]
    assert completed == sorted(completed)
    assert completed[-1] >= 2


def until_closed(url: str) -> Iterator[Series]:
    """Scrapes as fast as it can, until the study has ended."""
    while True:
        try:
            yield scrape(url)
        except (URLError, ConnectionError):
            return


def test_database_that_is_locked_shows_as_lag(study_folder: StudyFolder, running: Running) -> None:
    import sqlite3

    url = url_of(running)
    wait_until(lambda: ("tuner_store_lag_seconds", ()) in scrape(url), "there are numbers")
    blocker = sqlite3.connect(study_folder.path / "small.db", isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    wait_until(lambda: value(scrape(url), "tuner_store_lag_seconds") > 5, "the lag grows")
    assert value(scrape(url), "tuner_store_unsaved_reports") > 0
    blocker.execute("ROLLBACK")
    blocker.close()
    wait_until(lambda: value(scrape(url), "tuner_store_lag_seconds") < 2, "it has caught up")
    study_folder.write("go", "")
    assert running.wait().code == EXIT_BUDGET_REACHED


def test_port_that_is_taken(study_folder: StudyFolder) -> None:
    study_folder.study()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ended = study_folder.tune("--metrics-port", port)
    assert (ended.code, ended.out) == (EXIT_BAD_INPUT, "")
    assert ended.err == (
        f"--metrics-port is {port}, which another program listens on (at 127.0.0.1). Name another "
        "port, or 0 for any that is free.\n"
    )
    assert "small.db" not in study_folder.files()


def test_host_that_is_not_here(study_folder: StudyFolder) -> None:
    study_folder.study()
    # RFC 5737: an address that is nobody's.
    ended = study_folder.tune("--metrics-port", "0", "--metrics-host", "192.0.2.1")
    assert ended.code == EXIT_BAD_INPUT
    assert "--metrics-host is '192.0.2.1', which this machine cannot listen at" in ended.err


def test_silent_client_holds_nothing_up(study_folder: StudyFolder, running: Running) -> None:
    port = int(url_of(running).rsplit(":", 1)[1].partition("/")[0])
    with socket.create_connection(("127.0.0.1", port)) as silent:
        silent.sendall(b"GET /metr")
        study_folder.write("go", "")
        assert running.wait().code == EXIT_BUDGET_REACHED


def test_stopped_dispatcher_shows_in_status(study_folder: StudyFolder, running: Running) -> None:
    assert study_folder.tuner("status").code == 0
    running.signal(signal.SIGSTOP)
    try:
        study_folder.execute("update tuner_dispatchers set beat_at = datetime('now', '-2 minutes')")
        silent = study_folder.tuner("status")
    finally:
        running.signal(signal.SIGCONT)
    assert silent.code == 4
    assert "silent" in silent.out
    study_folder.write("go", "")
    assert running.wait().code == EXIT_BUDGET_REACHED
