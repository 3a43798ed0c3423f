"""A trial without a dispatcher."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.trials.recording_link import RecordingLink
from tuner.domain.attempt import AttemptId
from tuner.domain.messages import Assign, Json
from tuner.trials.context import TrialContext

NewTrial = Callable[..., TrialContext]


@pytest.fixture
def link() -> RecordingLink:
    return RecordingLink()


@pytest.fixture
def new_trial(tmp_path: Path, link: RecordingLink) -> NewTrial:
    """Makes trial 7 of a study, as the dispatcher would assign it."""

    def new_trial(
        *,
        params: dict[str, Json] | None = None,
        objectives: tuple[str, ...] = ("accuracy",),
        devices: tuple[str, ...] = ("cpu:0",),
        attempt_number: int = 2,
    ) -> TrialContext:
        link.assign = Assign(
            attempt_id=AttemptId("7.2"),
            trial_number=7,
            attempt_number=attempt_number,
            params=params or {},
            seed=11,
            checkpoint_dir=str(tmp_path / "checkpoints"),
            objectives=objectives,
            devices=devices,
        )
        return TrialContext(link.assign, link)

    return new_trial
