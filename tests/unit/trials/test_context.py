"""What training code can do with its trial, and what it is told when it does it wrong."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from tests.unit.trials.conftest import NewTrial
from tests.unit.trials.recording_link import RecordingLink
from tuner.domain.messages import Action, RemarkTopic

# -- parameters ----------------------------------------------------------------------------------


def test_parameters_are_items_and_attributes(new_trial: NewTrial) -> None:
    params = new_trial(params={"lr": 0.1, "layers": [64, 32]}).params
    assert params["lr"] == params.lr == 0.1
    assert dict(params) == {"lr": 0.1, "layers": [64, 32]}


def test_unknown_parameter_is_named_with_those_there_are(new_trial: NewTrial) -> None:
    params = new_trial(params={"lr": 0.1, "width": 8}).params
    with pytest.raises(AttributeError, match=r"no parameter 'depth'. It has: lr, width\."):
        _ = params.depth
    assert getattr(params, "depth", 3) == 3


def test_without_parameters_the_message_says_none(new_trial: NewTrial) -> None:
    with pytest.raises(AttributeError, match="It has: none"):
        _ = new_trial().params.lr


# -- suggestions ---------------------------------------------------------------------------------


def test_declared_parameters_are_not_asked_for(new_trial: NewTrial, link: RecordingLink) -> None:
    trial = new_trial(params={"lr": 0.25, "depth": 3, "optimizer": "sgd"})
    assert trial.suggest_float("lr", 1e-5, 1e-1, log=True) == 0.25
    assert trial.suggest_int("depth", 1, 2) == 3
    assert trial.suggest_categorical("optimizer", ["adam"]) == "sgd"
    assert link.asked == []


def test_other_parameters_are_asked_for_once(new_trial: NewTrial, link: RecordingLink) -> None:
    link.suggestions = {"lr": 0.01, "depth": 2, "optimizer": None}
    trial = new_trial()
    for _ in range(2):
        assert trial.suggest_float("lr", 1e-5, 1e-1, log=True) == 0.01
        assert trial.suggest_int("depth", 1, 9, step=2) == 2
        assert trial.suggest_categorical("optimizer", [None, "sgd"]) is None
    distributions = {
        "lr": FloatDistribution(1e-5, 1e-1, log=True),
        "depth": IntDistribution(1, 9, step=2),
        "optimizer": CategoricalDistribution([None, "sgd"]),
    }
    assert link.asked == list(distributions.items())
    assert trial.distributions == distributions
    assert trial.params == {"lr": 0.01, "depth": 2, "optimizer": None}


def test_suggested_numbers_have_the_type_asked_for(
    new_trial: NewTrial, link: RecordingLink
) -> None:
    link.suggestions = {"lr": 1, "depth": 2.0}
    trial = new_trial()
    assert isinstance(trial.suggest_float("lr", 0.0, 1.0), float)
    assert isinstance(trial.suggest_int("depth", 1, 4), int)


def test_names_of_older_objectives_still_work(new_trial: NewTrial, link: RecordingLink) -> None:
    link.suggestions = {"a": 0.1, "b": 0.2, "c": 0.3}
    trial = new_trial()
    trial.suggest_uniform("a", 0.0, 1.0)
    trial.suggest_loguniform("b", 0.1, 1.0)
    trial.suggest_discrete_uniform("c", 0.0, 1.0, 0.1)
    assert [distribution for _, distribution in link.asked] == [
        FloatDistribution(0.0, 1.0),
        FloatDistribution(0.1, 1.0, log=True),
        FloatDistribution(0.0, 1.0, step=0.1),
    ]


def test_wrong_range_is_refused_before_it_is_asked_for(
    new_trial: NewTrial, link: RecordingLink
) -> None:
    with pytest.raises(ValueError, match="low"):
        new_trial().suggest_float("lr", 1.0, 0.1)
    assert link.asked == []


def test_refused_suggestion_reaches_the_program(new_trial: NewTrial) -> None:
    with pytest.raises(ValueError, match="Nobody suggests lr"):
        new_trial().suggest_float("lr", 0.0, 1.0)


# -- reports -------------------------------------------------------------------------------------


def test_reports_at_fractions_of_an_epoch_are_counted_and_said(
    new_trial: NewTrial, link: RecordingLink
) -> None:
    trial = new_trial()
    for epoch in (0.5, 1.0, 1.5):
        trial.report(epoch / 2, step=epoch)
    assert [(step, values["accuracy"]) for step, values, _ in link.reports] == [
        (0, 0.25),
        (1, 0.5),
        (2, 0.75),
    ]
    ((topic, said),) = link.remarks
    assert topic is RemarkTopic.FRACTIONAL_STEPS
    assert "reports fractional steps (0.5)" in said


def test_report_names_the_objective(new_trial: NewTrial, link: RecordingLink) -> None:
    trial = new_trial()
    trial.report(0.5, step=0)
    trial.report(0.75, 1, loss=2, lr=0.1)
    assert link.reports == [
        (0, {"accuracy": 0.5}, {}),
        (1, {"accuracy": 0.75}, {"loss": 2.0, "lr": 0.1}),
    ]
    assert trial.last_values == {"accuracy": 0.75}


@pytest.mark.parametrize(
    "value",
    [
        *(np.float32(0.5), np.array(0.5), "0.5", 0.5),
        *(torch.tensor(0.5), torch.tensor(0.5, requires_grad=True)),
    ],
    ids=repr,
)
def test_numbers_of_every_library_are_reported(
    new_trial: NewTrial, link: RecordingLink, value: float
) -> None:
    new_trial().report(value, np.int64(3), loss=value)
    ((step, values, metrics),) = link.reports
    assert (step, values, metrics) == (3, {"accuracy": 0.5}, {"loss": 0.5})
    assert {type(step), type(values["accuracy"]), type(metrics["loss"])} == {int, float}


def test_negative_step_is_refused(new_trial: NewTrial, link: RecordingLink) -> None:
    with pytest.raises(ValueError, match="step is -1, but steps are from 0 to"):
        new_trial().report(0.5, step=-1)
    assert link.reports == []


@pytest.mark.parametrize("value", [None, "high", [0.5], {"accuracy": None}])
def test_value_that_is_no_number_is_named(new_trial: NewTrial, value: float) -> None:
    with pytest.raises(TypeError, match=r"report: accuracy is .*, which is not a number"):
        new_trial().report(value, step=1)


def test_metric_that_is_no_number_is_named(new_trial: NewTrial, link: RecordingLink) -> None:
    with pytest.raises(TypeError, match="report: loss is None"):
        new_trial().report(0.5, step=1, loss=None)
    assert link.reports == []


def test_several_objectives_are_reported_by_name(new_trial: NewTrial, link: RecordingLink) -> None:
    trial = new_trial(objectives=("accuracy", "size"))
    trial.report({"size": 3, "accuracy": 0.5}, step=1, loss=1.0)
    assert link.reports == [(1, {"accuracy": 0.5, "size": 3.0}, {"loss": 1.0})]


def test_one_number_for_several_objectives_is_refused(new_trial: NewTrial) -> None:
    with pytest.raises(ValueError, match=r"objectives accuracy, size; report a dict"):
        new_trial(objectives=("accuracy", "size")).report(0.5, step=1)


@pytest.mark.parametrize(
    ("value", "got"),
    [
        ({"accuracy": 0.5}, "accuracy"),
        ({"accuracy": 0.5, "size": 1, "loss": 2}, "accuracy, size, loss"),
        ({}, "nothing"),
    ],
)
def test_other_objectives_are_refused(
    new_trial: NewTrial, value: dict[str, float], got: str
) -> None:
    with pytest.raises(ValueError, match=f"got values for {got}, but"):
        new_trial(objectives=("accuracy", "size")).report(value, step=1)


@pytest.mark.parametrize("action", [Action.PRUNE, Action.STOP, Action.PAUSE])
def test_every_verdict_but_continue_ends_the_trial(
    new_trial: NewTrial, link: RecordingLink, action: Action
) -> None:
    trial = new_trial()
    assert not trial.should_prune()
    link.decide(action)
    assert trial.should_prune()


# -- the rest of Optuna's trial ------------------------------------------------------------------


def test_attributes_and_constraints_are_handed_over(
    new_trial: NewTrial, link: RecordingLink
) -> None:
    trial = new_trial()
    trial.set_user_attr("note", {"a": [1, 2]})
    trial.set_constraint("memory", 3)
    assert trial.user_attrs == link.attributes == {"note": {"a": [1, 2]}}
    assert trial.constraints == link.constraints == {"memory": 3.0}


def test_what_is_given_out_is_a_copy(new_trial: NewTrial) -> None:
    trial = new_trial()
    trial.user_attrs["a"] = 1
    trial.distributions["a"] = FloatDistribution(0, 1)
    trial.constraints["a"] = 1.0
    assert (trial.user_attrs, trial.distributions, trial.constraints) == ({}, {}, {})


# -- beyond it -----------------------------------------------------------------------------------


def test_trial_knows_who_it_is(new_trial: NewTrial) -> None:
    trial = new_trial(devices=("cpu:3",))
    assert (trial.number, trial.attempt_number, trial.seed) == (7, 2, 11)
    assert trial.objectives == ("accuracy",)
    assert trial.device_labels == ("cpu:3",)


@pytest.mark.parametrize(
    ("labels", "device"),
    [(("cpu:3",), "cpu"), (("GPU 5",), "cuda:0"), ((), "cpu")],
)
def test_device_is_the_only_one_it_sees(
    new_trial: NewTrial, labels: tuple[str, ...], device: str
) -> None:
    assert new_trial(devices=labels).device == torch.device(device)


def test_alone_it_is_the_main_process(new_trial: NewTrial, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    trial = new_trial()
    assert (trial.rank, trial.local_rank, trial.world_size, trial.is_main) == (0, 0, 1, True)


def test_rank_is_what_torch_says(new_trial: NewTrial, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "5")
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "8")
    trial = new_trial(devices=("GPU 0", "GPU 1"))
    assert (trial.rank, trial.local_rank, trial.world_size, trial.is_main) == (5, 1, 8, False)
    assert trial.device == torch.device("cuda:1")


def test_folder_for_checkpoints_is_made_on_first_use(new_trial: NewTrial, tmp_path: Path) -> None:
    trial = new_trial()
    assert trial.checkpoint_path == tmp_path / "checkpoints"
    assert not trial.checkpoint_path.exists()
    assert trial.checkpoint_dir == tmp_path / "checkpoints"
    assert trial.checkpoint_dir.is_dir()


def test_checkpoint_comes_back(new_trial: NewTrial) -> None:
    trial = new_trial()
    assert trial.load_checkpoint() is None
    trial.save_checkpoint({"epoch": 4}, step=4)
    assert new_trial().load_checkpoint() == {"epoch": 4}


def test_other_ranks_save_nothing(
    new_trial: NewTrial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = new_trial().save_checkpoint({"epoch": 4}, step=4)
    monkeypatch.setenv("RANK", "1")
    other = new_trial()
    assert other.save_checkpoint({"epoch": 5}, step=4) == file
    assert other.save_checkpoint({"epoch": 5}, step=5) == tmp_path / "checkpoints" / "step-5.pt"
    assert other.load_checkpoint() == {"epoch": 4}


# -- several devices -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("labels", "devices"),
    [
        (("GPU 2", "GPU 5"), ["cuda:0", "cuda:1"]),
        (("GPU 5",), ["cuda:0"]),
        (("cpu:0", "cpu:3"), ["cpu", "cpu"]),
        ((), ["cpu"]),
    ],
)
def test_only_process_uses_all_devices(
    new_trial: NewTrial, labels: tuple[str, ...], devices: list[str]
) -> None:
    trial = new_trial(devices=labels)
    assert trial.devices == tuple(map(torch.device, devices))
    assert trial.device == trial.devices[0]


@pytest.mark.parametrize(
    ("labels", "device"), [(("GPU 2", "GPU 5"), "cuda:1"), (("cpu:0", "cpu:3"), "cpu")]
)
def test_one_of_several_ranks_uses_its_own(
    new_trial: NewTrial, monkeypatch: pytest.MonkeyPatch, labels: tuple[str, ...], device: str
) -> None:
    _become_rank_1(monkeypatch)
    trial = new_trial(devices=labels)
    assert trial.devices == (torch.device(device),) == (trial.device,)


def test_autocast_on_a_cpu_is_bfloat16(new_trial: NewTrial) -> None:
    weights = torch.ones(2, 2)
    with new_trial().autocast():
        assert (weights @ weights).dtype is torch.bfloat16
    with new_trial().autocast(torch.float16):
        assert (weights @ weights).dtype is torch.float16


@pytest.mark.parametrize(
    ("has_bfloat16", "dtype"), [(True, torch.bfloat16), (False, torch.float16)]
)
@pytest.mark.filterwarnings("ignore:CUDA is not available")
def test_autocast_on_a_gpu_is_what_it_has(
    new_trial: NewTrial, monkeypatch: pytest.MonkeyPatch, has_bfloat16: bool, dtype: torch.dtype
) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: has_bfloat16)
    assert new_trial(devices=("GPU 0",)).autocast().fast_dtype is dtype


# -- seeds ---------------------------------------------------------------------------------------


@pytest.fixture
def _generators() -> Iterator[None]:
    """As they were, afterwards."""
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    yield
    random.setstate(states[0])
    np.random.set_state(states[1])
    torch.set_rng_state(states[2])


def _become_rank_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")


def _draw() -> tuple[float, float, float]:
    return random.random(), float(np.random.rand()), float(torch.rand(()))


def test_ranks_share_a_seed_and_have_their_own(
    new_trial: NewTrial, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = new_trial()
    assert trial.rank_seed == trial.seed == 11
    rank_seeds = set()
    for rank in range(64):
        monkeypatch.setenv("RANK", str(rank))
        assert trial.seed == 11
        rank_seeds.add(trial.rank_seed)
    assert len(rank_seeds) == 64
    assert all(0 <= seed < 2**31 for seed in rank_seeds)


@pytest.mark.usefixtures("_generators")
def test_every_generator_is_seeded(new_trial: NewTrial, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = new_trial()
    assert trial.seed_everything() == 11
    drawn = _draw()
    trial.seed_everything()
    assert _draw() == drawn
    _become_rank_1(monkeypatch)
    assert trial.seed_everything() == trial.rank_seed
    assert not set(_draw()) & set(drawn)


@pytest.mark.usefixtures("_generators")
def test_deterministic_algorithms_are_asked_for(
    new_trial: NewTrial, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    new_trial().seed_everything()
    assert not torch.are_deterministic_algorithms_enabled()
    try:
        new_trial().seed_everything(deterministic=True)
        assert torch.are_deterministic_algorithms_enabled()
        assert not torch.backends.cudnn.benchmark
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("name", ["n" * 513, "a\0b", "\ud800"], ids=["long", "nul", "surrogate"])
def test_name_that_no_database_holds_is_refused(
    new_trial: NewTrial, link: RecordingLink, name: str
) -> None:
    trial = new_trial()
    with pytest.raises(ValueError, match="report: the name"):
        trial.report(0.5, 1, **{name: 0.1})
    with pytest.raises(ValueError, match="set_user_attr: the name"):
        trial.set_user_attr(name, 1)
    with pytest.raises(ValueError, match="set_constraint: the name"):
        trial.set_constraint(name, 1.0)
    with pytest.raises(ValueError, match="suggest: the name"):
        trial.suggest_float(name, 0.0, 1.0)
    assert (link.reports, link.attributes, link.constraints, link.asked) == ([], {}, {}, [])
