"""What Optuna's own functions find in a trial: the study, its storage, attributes."""

from __future__ import annotations

import copy
from pathlib import Path

import optuna
import pytest
from optuna.artifacts import (
    FileSystemArtifactStore,
    download_artifact,
    get_all_artifact_meta,
    upload_artifact,
)
from optuna.distributions import FloatDistribution
from optuna.storages import RetryHeartbeatStaleTrialCallback
from optuna.study import StudyDirection

from tests.unit.trials.conftest import NewTrial
from tests.unit.trials.recording_link import RecordingLink
from tuner.store.connection.database import open_database


@pytest.fixture
def stored(link: RecordingLink, tmp_path: Path) -> optuna.Study:
    """A study in a database, as the dispatcher makes it, with the link's trials up to number 7."""
    link.storage = f"sqlite:///{tmp_path}/small.db"
    open_database(link.storage).close()
    study = optuna.create_study(study_name="small", storage=link.storage, direction="maximize")
    for _ in range(8):
        study.ask()
    return study


def test_a_trial_is_one_of_optuna(new_trial: NewTrial) -> None:
    assert isinstance(new_trial(), optuna.Trial)


def test_the_study_is_read_from_its_database(new_trial: NewTrial, stored: optuna.Study) -> None:
    stored.set_user_attr("owner", "ada")
    trial = new_trial()
    assert trial.study.direction is StudyDirection.MAXIMIZE
    assert trial.study.directions == [StudyDirection.MAXIMIZE]
    assert trial.study.user_attrs == {"owner": "ada"}
    assert trial.study.study_name == "small"
    assert len(trial.study.trials) == 8
    assert trial.storage is trial.study._storage
    assert trial.study.trials[trial.number]._trial_id == trial._trial_id


def test_artifacts_belong_to_the_trial_and_to_the_study(
    new_trial: NewTrial, stored: optuna.Study, tmp_path: Path
) -> None:
    kept = FileSystemArtifactStore(tmp_path)
    (tmp_path / "weights.bin").write_bytes(b"12")
    trial = new_trial()
    for owner in (trial, trial.study):
        found = upload_artifact(
            artifact_store=kept, file_path=str(tmp_path / "weights.bin"), study_or_trial=owner
        )
        back = tmp_path / f"{found}.bin"
        download_artifact(artifact_store=kept, artifact_id=found, file_path=str(back))
        assert back.read_bytes() == b"12"
    stored_trial = stored.trials[trial.number]
    metas = get_all_artifact_meta(stored_trial, storage=stored._storage)
    assert [meta.filename for meta in metas] == ["weights.bin"]
    assert any(key.startswith("artifacts:") for key in trial.system_attrs)


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_a_first_attempt_has_no_retry_history(new_trial: NewTrial, stored: optuna.Study) -> None:
    trial = new_trial(attempt_number=1)
    assert RetryHeartbeatStaleTrialCallback.retry_history(trial) == []
    assert RetryHeartbeatStaleTrialCallback.retried_trial_number(trial) is None


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_a_restarted_trial_is_its_own_predecessor(
    new_trial: NewTrial, stored: optuna.Study
) -> None:
    trial = new_trial(attempt_number=2)
    stored._storage.set_trial_user_attr(trial._trial_id, "artifact_id", "a1")
    stored._storage.set_trial_user_attr(trial._trial_id, "tuner:returned_params", {})
    assert RetryHeartbeatStaleTrialCallback.retry_history(trial) == [trial.number]
    assert RetryHeartbeatStaleTrialCallback.retried_trial_number(trial) == trial.number
    assert trial.user_attrs == {"artifact_id": "a1"}
    trial.set_user_attr("artifact_id", "a2")
    assert trial.user_attrs == {"artifact_id": "a2"}


def test_stop_is_for_the_tuner(
    new_trial: NewTrial, link: RecordingLink, stored: optuna.Study
) -> None:
    new_trial().study.stop()
    assert link.is_study_stopped


def test_a_trial_runs_no_trials_of_its_study(new_trial: NewTrial, stored: optuna.Study) -> None:
    with pytest.raises(RuntimeError, match=r"The tuner starts its trials"):
        new_trial().study.optimize(lambda trial: 0.0, n_trials=1)


def test_without_a_database_the_message_says_what_to_do(new_trial: NewTrial) -> None:
    with pytest.raises(RuntimeError, match=r"tuner\.current\(storage="):
        _ = new_trial().study


def test_parameters_chosen_before_the_start_are_the_relative_ones(
    new_trial: NewTrial, link: RecordingLink
) -> None:
    link.suggestions = {"momentum": 0.5}
    trial = new_trial(params={"lr": 0.1})
    trial.suggest_float("momentum", 0.0, 1.0)
    assert trial.relative_params == {"lr": 0.1}


def test_a_range_for_a_declared_parameter_is_passed_on_once(
    new_trial: NewTrial, link: RecordingLink
) -> None:
    link.suggestions = {"momentum": 0.5}
    trial = new_trial(params={"lr": 0.1})
    for _ in range(2):
        trial.suggest_float("lr", 1e-5, 1e-1, log=True)
        trial.suggest_float("momentum", 0.0, 1.0)
    assert link.ranges == [("lr", FloatDistribution(1e-5, 1e-1, log=True))]


def test_a_copy_in_the_same_process_is_the_trial_itself(
    new_trial: NewTrial, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = new_trial(params={"lr": 0.1})
    monkeypatch.setattr("tuner.trials.active.context", trial)
    assert copy.deepcopy(trial) is trial
