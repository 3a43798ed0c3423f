"""Alerts on the Studies page and in `tuner status`, of a stored study."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
import sqlalchemy as sa
from optuna.trial import TrialState, create_trial

from tests.databases import new_database
from tests.integration.app.pages import opened, show_database
from tests.integration.stored_studies import seeded
from tuner.queries.locate import StoredStudy, stored_studies
from tuner.queries.status import read_status
from tuner.terminal.studies import status_text

TEXT = "2 of 6 finished trials failed"


def test_a_failure_rate_is_shown_on_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = new_database(tmp_path)
    failed = [create_trial(state=TrialState.FAIL)] * 2
    seeded.add_study(url, "bad", [*failed, *[create_trial(value=0.5)] * 4])
    seeded.add_study(url, "good", [create_trial(value=0.5)] * 6)
    show_database(monkeypatch, url)
    test = opened("studies")
    (alert,) = (each.value for each in test.main.markdown if each.value.startswith("Alert"))
    assert alert == f"Alert, study [bad](convergence?study=bad): {TEXT}."
    now = datetime.now(UTC)
    with sa.create_engine(url).connect() as connection:
        found = stored_studies(connection)
        texts = {
            name: status_text(
                read_status(connection, StoredStudy(id=study_id, name=name), None, now), now
            )
            for name, study_id in found.items()
        }
    assert f"alert: {TEXT}" in texts["bad"]
    assert "alert" not in texts["good"]
