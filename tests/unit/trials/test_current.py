"""`tuner.current()` in a script that the user started without the tuner."""

from __future__ import annotations

from pathlib import Path

import optuna
import pytest

import tuner
from tuner.errors import StoreError
from tuner.trials import active


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A process without a trial, in a folder of its own."""
    monkeypatch.setattr(active, "context", None)
    for name in ("TUNER_CHANNEL", "TUNER_STORAGE", "TUNER_STUDY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def storage() -> str:
    """Two studies; the best of `tall` has lr 0.2."""
    url = "sqlite:///known.db"
    for name, best in (("tall", 0.2), ("small", 0.5)):
        study = optuna.create_study(study_name=name, storage=url, direction="maximize")
        for lr in (best, 0.9):
            study.enqueue_trial({"lr": lr})
        study.optimize(lambda trial: -trial.suggest_float("lr", 0, 1), n_trials=2)
    return url


def test_defaults_are_its_parameters() -> None:
    trial = tuner.current({"lr": 0.1})
    assert dict(trial.params) == {"lr": 0.1}
    assert (trial.number, trial.attempt_number) == (0, 0)
    assert not trial.should_prune()


def test_every_call_gives_the_same_trial() -> None:
    assert tuner.current({"lr": 0.1}) is tuner.current()


def test_best_parameters_win_over_defaults(storage: str) -> None:
    trial = tuner.current({"lr": 0.1, "epochs": 3}, storage=storage, study="tall")
    assert dict(trial.params) == {"lr": 0.2, "epochs": 3}
    assert trial.suggest_float("lr", 0, 1) == 0.2


@pytest.mark.slow
def test_storage_and_study_come_from_the_environment(
    storage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNER_STORAGE", storage)
    monkeypatch.setenv("TUNER_STUDY", "small")
    assert tuner.current().params.lr == 0.5


@pytest.mark.slow
def test_several_studies_are_listed_where_none_is_named(storage: str) -> None:
    with pytest.raises(StoreError, match="holds small, tall"):
        tuner.current(storage=storage)


def test_reports_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    tuner.current().report(0.5, step=3, loss=0.25)
    assert capsys.readouterr().out == "step 3: value 0.5, loss 0.25\n"


def test_under_torchrun_alone_rank_0_alone_prints(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    trial = tuner.current()
    trial.report(0.5, step=3)
    assert not trial.should_prune()
    assert capsys.readouterr().out == ""


def test_unknown_parameter_says_what_to_do() -> None:
    with pytest.raises(KeyError, match=r"parameter 'lr' is in neither .*defaults=\{"):
        tuner.current({"width": 8}).suggest_float("lr", 0, 1)


def test_attributes_are_kept_for_the_script() -> None:
    trial = tuner.current()
    trial.set_user_attr("note", 1)
    trial.set_constraint("memory", -1)
    assert (trial.user_attrs, trial.constraints) == ({"note": 1}, {"memory": -1.0})


@pytest.mark.slow
def test_each_configuration_has_its_own_checkpoints(storage: str) -> None:
    tuner.current().save_checkpoint({"width": 8}, step=1)
    active.context = None
    assert tuner.current(storage=storage, study="tall").load_checkpoint() is None
