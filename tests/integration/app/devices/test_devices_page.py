"""The page of devices on databases of every kind, run by Streamlit without a browser."""

from __future__ import annotations

import os
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from optuna.trial import create_trial
from streamlit.testing.v1 import AppTest

from tests.integration.app.devices.device_week import add_week
from tests.integration.app.pages import figures, fine, opened
from tests.integration.stored_studies import seeded
from tuner.devices.device import DeviceId
from tuner.host.process_identity import pid_namespace
from tuner.shares.claims import Claim, OwnClaim
from tuner.shares.people import shown_name

_SCRIPT = "from tuner.app.views import devices, shell\nshell.sidebar()\ndevices.page()"


def titles(figure: dict[str, Any]) -> list[str]:
    axes = [figure["layout"][axis]["title"]["text"] for axis in ("xaxis", "yaxis")]
    bars = [trace["colorbar"]["title"]["text"] for trace in figure["data"] if "colorbar" in trace]
    return [*axes, *bars]


def numbers(test: AppTest) -> dict[str, str]:
    return {each.label: each.value for each in test.metric}


def now() -> datetime:
    return datetime.now(UTC)


def test_a_study_without_a_trial(url: str) -> None:
    seeded.add_study(url, "empty", [])
    test = opened("devices")
    assert test.info[0].value == "No trial of this study has started yet."
    assert figures(test) == []


def test_a_single_trial(url: str) -> None:
    seeded.add_study(url, "one", [create_trial(value=0.5)])
    seeded.add_attempt(url, seeded.add_dispatcher(url, "one", is_ended=True), 0)
    test = opened("devices")
    (timeline,) = figures(test)
    assert [trace["name"] for trace in timeline["data"]] == ["completed"]
    (totals,) = test.dataframe
    assert list(totals.value["device"]) == ["GPU 0"]
    assert list(totals.value["attempts"]) == [1]


def test_two_hosts_have_a_timeline_each(url: str) -> None:
    seeded.add_first_study(url)
    seeded.add_attempt(url, seeded.add_dispatcher(url, "first", host="elsewhere"), 1)
    test = opened("devices")
    hosts = {each.value for each in test.subheader}
    assert hosts == {seeded.HERE, "elsewhere"}
    assert set(test.dataframe[-1].value["host"]) == hosts


def test_a_database_of_optuna_alone(url: str) -> None:
    seeded.add_study(url, "plain", [create_trial(value=0.5)], space=None)
    test = opened("devices")
    assert any("No devices are recorded" in each.value for each in test.main.caption)
    (timeline,) = figures(test)
    assert [trace["name"] for trace in timeline["data"]] == ["completed"]


def test_a_week_with_causes_numbers_and_units(url: str) -> None:
    add_week(url, now() - timedelta(seconds=1), n_devices=2, days=7, trial_s=7_200)
    test = opened("devices")
    timeline, heat = figures(test)
    names = [trace["name"] for trace in timeline["data"]]
    assert {"completed", "pruned", "failed"} <= set(names)
    assert timeline["layout"]["yaxis"]["ticktext"] == ["GPU 0", "GPU 1"]
    assert titles(timeline) == ["Time (UTC)", "Device"]
    assert titles(heat) == ["Time (UTC)", "Device", "Utilization (%)"]
    shown = numbers(test)
    assert 325 <= float(shown["device-hours"]) <= 330
    assert shown["busy (%)"] in ("95", "96")
    assert 75 <= float(shown["utilization (%)"]) <= 84
    # 2 GPUs x 168 h x 600 W
    assert float(shown["device energy (kWh)"]) == pytest.approx(201.6, rel=0.02)
    assert {"pruned (% of trial time)", "failed (% of trial time)"} <= set(shown)
    present, totals = test.dataframe
    assert list(present.value["device"]) == ["GPU 0", "GPU 1"]
    assert list(present.value["power (W)"]) == [600, 600]
    assert all(0 < value < 100 for value in totals.value["busy (%)"])
    # 1 % of the time, each other cause about two thirds of that.
    assert list(totals.value["idle for"]) == ["starting", "starting"]
    assert "paused" in " ".join(each.value for each in test.caption)


def test_what_is_asked_for_is_shown(url: str) -> None:
    add_week(url, now(), n_devices=2, days=1, trial_s=7_200)
    test = opened("devices")
    span, colour, heat = test.segmented_control
    span.set_value("6 h")
    colour.set_value("trial")
    heat.set_value("memory")
    timeline, memory = figures(fine(test.run()))
    assert "idle: paused" in [trace["name"] for trace in timeline["data"]]
    assert titles(memory)[-1] == "Memory (GiB)"
    bars = [trace for trace in timeline["data"] if not trace["name"].startswith("idle")]
    assert len({colour for trace in bars for colour in trace["marker"]["color"]}) > 1
    assert float(numbers(test)["device-hours"]) < 12


def test_a_wide_trial_has_one_colour_on_all_its_devices(url: str) -> None:
    seeded.add_study(url, "wide", [create_trial(value=0.5)] * 3)
    dispatcher = seeded.add_dispatcher(url, "wide", is_ended=True)
    for number in range(2):
        seeded.add_attempt(url, dispatcher, number, device=number)
    with seeded.writing(url) as connection:
        connection.exec_driver_sql(
            "INSERT INTO tuner_leases (attempt_id, device_id, held_slot, share, leased_at, "
            "released_at) SELECT attempt_id, 2, 1, share, leased_at, released_at "
            "FROM tuner_leases WHERE attempt_id = 1"
        )
    test = opened("devices")
    test.segmented_control[1].set_value("trial")
    timeline = figures(fine(test.run()))[0]
    (trace,) = timeline["data"]
    colours: dict[str, list[str]] = {}
    for text, colour in zip(trace["customdata"], trace["marker"]["color"], strict=True):
        colours.setdefault(text.partition("<br>")[0], []).append(colour)
    first, second = colours.values()
    assert len(first) == 2
    assert len(set(first)) == 1
    assert set(first) != set(second)
    assert sum("GPU 0, GPU 1" in text for text in trace["customdata"]) == 2


def test_users_of_a_machine_that_is_divided_have_a_colour_each(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeded.add_first_study(url)
    rules = tmp_path / "shares.yaml"
    rules.write_text(f"folder: {tmp_path / 'claims'}\n")
    monkeypatch.setenv("TUNER_SHARES", str(rules))
    n_before = len(figures(opened("devices")))
    gpu = DeviceId("GPU-7")
    with closing(OwnClaim(tmp_path / "claims")) as own:
        own.write(
            Claim(
                pid=os.getpid(),
                pid_namespace=pid_namespace(),
                priority=50,
                since_s=0.0,
                wants=1,
                unit=1,
                suits={gpu: 10_000},
                holds={gpu: 0.0},
            )
        )
        test = opened("devices")
    shown = figures(test)
    assert len(shown) == n_before + 1
    (users,) = [each for each in shown if each["data"][0].get("x") == [gpu]]
    assert users["data"][0]["name"] == shown_name(os.getuid())
    (table,) = [each.value for each in test.dataframe if "borrows" in each.value]
    assert list(table["has"]) == list(table["borrows"]) == [1.0]
    assert not test.warning
    rules.write_text("{")
    (warning,) = opened("devices").warning
    assert "tuner shares check" in warning.value
