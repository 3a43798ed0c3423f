"""How an attempt ended, judged by what the user's function returned or raised."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import optuna
import pytest
import torch

from tests.unit.trials.conftest import NewTrial
from tests.unit.trials.recording_link import ATTEMPT, RecordingLink
from tuner.domain.attempt import Cause, Outcome
from tuner.domain.messages import Action, Finished
from tuner.errors import ChannelClosed
from tuner.launch.failure_diagnosis import N_TAIL_LINES
from tuner.launch.request import FunctionProgram
from tuner.trials.context import TrialContext
from tuner.trials.worker.function_worker import evaluate, judge_error, judge_result, resolve

NAN = float("nan")
ONE = ("accuracy",)
TWO = ("accuracy", "size")


class OutOfMemoryError(RuntimeError):
    """As torch names its own."""


class ArenaFull(MemoryError):
    """A library's own kind, whose name and words say nothing."""


@pytest.fixture
def judge(new_trial: NewTrial, link: RecordingLink) -> Callable[..., Finished]:
    def judge(result: object, objectives: tuple[str, ...] = ONE) -> Finished:
        return judge_result(new_trial(objectives=objectives), link, result)

    return judge


@pytest.fixture
def run(
    new_trial: NewTrial, link: RecordingLink, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Finished]:
    """Evaluates a function as if it stood in the user's module."""

    def run(
        train: Callable[[TrialContext], object],
        space: Callable[[TrialContext], object] | None = None,
    ) -> Finished:
        module = ModuleType("user_training")
        vars(module).update(train=train, build=space)
        monkeypatch.setitem(sys.modules, "user_training", module)
        program = FunctionProgram(
            module="user_training",
            function="train",
            space="user_training:build" if space else None,
        )
        return evaluate(program, new_trial(), link)

    return run


def _raiser(error: BaseException) -> Callable[[TrialContext], object]:
    def train(_trial: TrialContext) -> object:
        raise error

    return train


# -- results -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "result", [0.5, np.float32(0.5), torch.tensor(0.5), [0.5], (0.5,), {"accuracy": 0.5}]
)
def test_number_completes_the_trial(judge: Callable[..., Finished], result: object) -> None:
    ended = judge(result)
    assert (ended.attempt_id, ended.outcome, ended.cause) == (ATTEMPT, Outcome.COMPLETED, None)
    assert ended.values == {"accuracy": 0.5}
    assert type(ended.values["accuracy"]) is float


def test_infinity_completes_the_trial_as_in_optuna(judge: Callable[..., Finished]) -> None:
    assert judge(float("inf")).outcome is Outcome.COMPLETED


@pytest.mark.parametrize(
    "result",
    [(0.5, 3), [0.5, 3], {"size": 3, "accuracy": 0.5}, {"accuracy": 0.5, "size": 3, "x": 1}],
)
def test_several_values_complete_the_trial(judge: Callable[..., Finished], result: object) -> None:
    ended = judge(result, TWO)
    assert ended.outcome is Outcome.COMPLETED
    assert ended.values == {"accuracy": 0.5, "size": 3.0}


def test_none_takes_the_last_report(new_trial: NewTrial, link: RecordingLink) -> None:
    trial = new_trial()
    trial.report(0.5, step=1)
    trial.report(0.75, step=2)
    ended = judge_result(trial, link, None)
    assert (ended.outcome, ended.values) == (Outcome.COMPLETED, {"accuracy": 0.75})


def test_none_without_a_report_is_no_result(judge: Callable[..., Finished]) -> None:
    ended = judge(None)
    assert (ended.outcome, ended.cause) == (Outcome.COMPLETED, None)
    assert "returned None and reported nothing" in ended.detail
    assert ended.values == {}


@pytest.mark.parametrize(
    ("result", "objectives", "names"),
    [(NAN, ONE, "accuracy"), ({"accuracy": 1, "size": NAN}, TWO, "size")],
)
def test_nan_is_a_failure_that_names_the_objective(
    judge: Callable[..., Finished], result: object, objectives: tuple[str, ...], names: str
) -> None:
    ended = judge(result, objectives)
    assert (ended.outcome, ended.cause) == (Outcome.FAILED, Cause.NOT_A_NUMBER)
    assert f"The value of {names} is not a number" in ended.detail


def test_nan_of_the_last_report_is_a_failure(new_trial: NewTrial, link: RecordingLink) -> None:
    trial = new_trial()
    trial.report(NAN, step=1)
    assert judge_result(trial, link, None).cause is Cause.NOT_A_NUMBER


@pytest.mark.parametrize(
    ("result", "objectives", "detail"),
    [
        ("high", ONE, "returned 'high', which is not a number"),
        (object, ONE, "which is not a number"),
        ({"loss": 1}, ONE, "returned 'loss', without accuracy. Write return {"),
        ({}, TWO, "without accuracy, size"),
        (0.5, TWO, "returned 1 value, 0.5, but the study has 2 objectives (accuracy,"),
        ((0.5, 1, 2), TWO, "objectives: {accuracy: minimize, size: minimize, metric_3: minimize}."),
        ((), ONE, "returned 0 values, (), but the study has 1 objective (accuracy). "),
        ({"accuracy": None}, ONE, "returned None, which is not a number, for accuracy."),
    ],
)
def test_other_results_are_no_result(
    judge: Callable[..., Finished], result: object, objectives: tuple[str, ...], detail: str
) -> None:
    ended = judge(result, objectives)
    assert (ended.outcome, ended.cause) == (Outcome.FAILED, Cause.NO_RESULT)
    assert detail in ended.detail


# -- errors --------------------------------------------------------------------------------------


def _numpy_without_memory() -> Exception:
    try:
        np.empty(2**59)
    except MemoryError as error:
        return error
    raise AssertionError("so much memory there is not")


@pytest.mark.parametrize(
    ("error", "outcome", "cause"),
    [
        (ValueError("no such optimizer"), Outcome.FAILED, Cause.EXCEPTION),
        (KeyboardInterrupt(), Outcome.FAILED, Cause.EXCEPTION),
        (RuntimeError("out of ideas"), Outcome.FAILED, Cause.EXCEPTION),
        (MemoryError(), Outcome.OUT_OF_MEMORY, Cause.HOST_MEMORY),
        (ArenaFull("no"), Outcome.OUT_OF_MEMORY, Cause.HOST_MEMORY),
        (_numpy_without_memory(), Outcome.OUT_OF_MEMORY, Cause.HOST_MEMORY),
        (
            RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate"),
            Outcome.OUT_OF_MEMORY,
            Cause.HOST_MEMORY,
        ),
        (OutOfMemoryError("no words"), Outcome.OUT_OF_MEMORY, Cause.DEVICE_MEMORY),
        (torch.OutOfMemoryError("no words"), Outcome.OUT_OF_MEMORY, Cause.DEVICE_MEMORY),
        (
            RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"),
            Outcome.OUT_OF_MEMORY,
            Cause.DEVICE_MEMORY,
        ),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_error_is_judged_by_its_kind(
    run: Callable[..., Finished], error: BaseException, outcome: Outcome, cause: Cause
) -> None:
    ended = run(_raiser(error))
    assert (ended.attempt_id, ended.outcome, ended.cause) == (ATTEMPT, outcome, cause)
    assert ended.values == {}


def test_error_is_shown_with_its_place_and_kept_in_the_log(
    run: Callable[..., Finished], capsys: pytest.CaptureFixture[str]
) -> None:
    ended = run(_raiser(ValueError("no such optimizer")))
    assert ended.detail.endswith("ValueError: no such optimizer")
    assert "in train" in ended.detail
    assert "ValueError: no such optimizer" in capsys.readouterr().err


def test_long_traceback_is_cut_from_above(new_trial: NewTrial, link: RecordingLink) -> None:
    new_trial()
    ended = judge_error(link, ValueError("\n".join(map(str, range(100)))))
    assert ended.detail.splitlines() == [str(n) for n in range(100 - N_TAIL_LINES, 100)]


# -- the whole evaluation ------------------------------------------------------------------------


def test_function_is_called_with_the_trial(run: Callable[..., Finished]) -> None:
    ended = run(lambda trial: trial.number / 10)
    assert (ended.outcome, ended.values) == (Outcome.COMPLETED, {"accuracy": 0.7})


def test_space_is_drawn_first(run: Callable[..., Finished], link: RecordingLink) -> None:
    link.suggestions = {"depth": 2}

    def build(trial: TrialContext) -> dict[str, Any]:
        return {"widths": [8] * trial.suggest_int("depth", 1, 3)}

    ended = run(lambda trial: len(trial.params.widths) + trial.params.depth, build)
    assert ended.values == {"accuracy": 4.0}


def test_space_that_fails_is_the_attempts_ending(run: Callable[..., Finished]) -> None:
    ended = run(lambda _: 1.0, lambda trial: trial.suggest_int("depth", 1, 3))
    assert (ended.outcome, ended.cause) == (Outcome.FAILED, Cause.EXCEPTION)
    assert "Nobody suggests depth" in ended.detail


def test_pruned_by_the_program_itself(run: Callable[..., Finished]) -> None:
    ended = run(_raiser(optuna.TrialPruned("diverged")))
    assert (ended.outcome, ended.cause) == (Outcome.PRUNED, Cause.PROGRAM)
    assert ended.detail == "diverged"


@pytest.mark.parametrize("error", [optuna.TrialPruned("as told"), SystemExit(0), SystemExit(143)])
@pytest.mark.parametrize(
    ("action", "outcome", "cause"),
    [
        (Action.PRUNE, Outcome.PRUNED, Cause.PRUNER),
        (Action.STOP, Outcome.CANCELLED, Cause.INTERRUPTED),
    ],
)
def test_verdict_is_the_reason_of_an_early_end(
    run: Callable[..., Finished],
    link: RecordingLink,
    error: BaseException,
    action: Action,
    outcome: Outcome,
    cause: Cause,
) -> None:
    link.decide(action, "the verdict's reason")
    ended = run(_raiser(error))
    assert (ended.outcome, ended.cause) == (outcome, cause)
    assert ended.detail == "the verdict's reason"


def test_exit_code_is_a_failure(run: Callable[..., Finished]) -> None:
    ended = run(_raiser(SystemExit(3)))
    assert (ended.outcome, ended.cause) == (Outcome.FAILED, Cause.EXIT_CODE)
    first, second, *where, hint = ended.detail.splitlines()
    assert (first, second) == ("Exit code 3.", "The function called sys.exit:")
    assert f'File "{__file__}"' in where[0]
    assert hint == "Hint: Return a number, or raise an error."


def test_sigterm_that_the_dispatcher_did_not_send(run: Callable[..., Finished]) -> None:
    ended = run(_raiser(SystemExit(128 + 15)))
    assert (ended.outcome, ended.cause) == (Outcome.CANCELLED, Cause.SIGNAL)
    assert ended.detail.startswith("SIGTERM from outside")


@pytest.mark.parametrize(
    "error",
    [optuna.TrialPruned(), SystemExit(0), SystemExit(3), RuntimeError("a loader's worker died")],
)
def test_whatever_a_trial_does_after_a_batch_systems_sigterm_is_no_failure(
    run: Callable[..., Finished], link: RecordingLink, error: BaseException
) -> None:
    link.is_termination_requested = True
    ended = run(_raiser(error))
    assert (ended.outcome, ended.cause) == (Outcome.CANCELLED, Cause.SIGNAL)


class FullDisk(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(28, "No space left on device")


def test_log_that_cannot_be_written_hides_no_ending(
    run: Callable[..., Finished], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr", FullDisk())
    ended = run(_raiser(ValueError("this is why")))
    assert (ended.outcome, ended.cause) == (Outcome.FAILED, Cause.EXCEPTION)
    assert ended.detail.endswith("this is why")


@pytest.mark.parametrize("code", [0, None])
def test_exit_in_peace_takes_the_last_report(run: Callable[..., Finished], code: int) -> None:
    def train(trial: TrialContext) -> None:
        trial.report(0.5, step=1)
        raise SystemExit(code)

    ended = run(train)
    assert (ended.outcome, ended.values) == (Outcome.COMPLETED, {"accuracy": 0.5})


def test_lost_dispatcher_is_no_ending_of_the_trial(run: Callable[..., Finished]) -> None:
    with pytest.raises(ChannelClosed):
        run(_raiser(ChannelClosed()))


# -- finding the function ------------------------------------------------------------------------


def test_function_is_found_inside_of_a_class() -> None:
    assert resolve("pathlib:Path.exists").__name__ == "exists"


@pytest.mark.parametrize("name", ["math:nothing", "math:pi"])
def test_what_is_no_function_is_refused(name: str) -> None:
    with pytest.raises(AttributeError):
        resolve(name)
