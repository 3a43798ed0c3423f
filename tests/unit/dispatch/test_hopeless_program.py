"""When failures are no accident any more."""

from __future__ import annotations

import pytest

from tuner.dispatch.attempts.endings.hopeless_program import Streak, said_last
from tuner.domain.attempt import Cause, Ending, Outcome

BOOM = Ending(outcome=Outcome.FAILED, cause=Cause.EXCEPTION, detail="Traceback\nValueError: boom")
OTHER = Ending(outcome=Outcome.FAILED, cause=Cause.EXCEPTION, detail="KeyError: 'x'")
GOOD = Ending(outcome=Outcome.COMPLETED, values={"value": 1.0})
PRUNED = Ending(outcome=Outcome.PRUNED)
CANCELLED = Ending(outcome=Outcome.CANCELLED, cause=Cause.INTERRUPTED)
NO_MEMORY = Ending(outcome=Outcome.OUT_OF_MEMORY, cause=Cause.DEVICE_MEMORY, detail="out of memory")


def noted(*endings: Ending, is_over: bool = False) -> list[bool]:
    streak = Streak(is_over=is_over)
    return [streak.note(ending) for ending in endings]


def test_third_alike_is_the_last() -> None:
    assert noted(BOOM, BOOM, BOOM, BOOM) == [False, False, True, True]


@pytest.mark.parametrize("other", [OTHER, NO_MEMORY])
def test_failures_of_other_kinds_begin_anew(other: Ending) -> None:
    assert noted(BOOM, BOOM, other, BOOM, BOOM, BOOM) == [False] * 5 + [True]


@pytest.mark.parametrize("good", [GOOD, PRUNED])
def test_one_good_end_shows_that_the_program_works(good: Ending) -> None:
    assert not any(noted(BOOM, good, BOOM, BOOM, BOOM, BOOM))
    assert not any(noted(BOOM, BOOM, BOOM, is_over=True))


def cuda_error(name: str) -> Ending:
    detail = (
        f"Traceback\ntorch.AcceleratorError: CUDA error: {name}\n"
        "Search for `cudaErrorX' in https://docs.nvidia.com/cuda/x.html for more information.\n"
        "CUDA kernel errors might be asynchronously reported at some other API call, so the "
        "stacktrace below might be incorrect.\n"
        "For debugging consider passing CUDA_LAUNCH_BLOCKING=1\n"
        "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n"
    )
    return Ending(outcome=Outcome.FAILED, cause=Cause.EXCEPTION, detail=detail)


def test_cuda_errors_are_told_apart_though_torch_ends_each_with_the_same_advice() -> None:
    names = ("device-side assert triggered", "an illegal memory access", "unspecified failure")
    assert not any(noted(*map(cuda_error, names)))
    alike = [cuda_error(names[0])] * 3
    assert noted(*alike)[-1]
    assert said_last(alike[0]) == (
        "torch.AcceleratorError: CUDA error: device-side assert triggered"
    )


def test_what_the_program_did_not_do_does_not_count() -> None:
    assert noted(BOOM, CANCELLED, BOOM, CANCELLED, BOOM)[-1]
    assert not any(noted(NO_MEMORY, NO_MEMORY, NO_MEMORY))


def test_numbers_and_paths_of_a_trial_make_no_difference() -> None:
    details = (
        "RuntimeError: shape 12 at 0x7f01, see /tmp/trial-1/x",
        "RuntimeError: shape 7.5 at 0x7f02, see /tmp/trial-2/x",
        "RuntimeError: shape 9 at 0x7f03, see /tmp/trial-3/x",
    )
    endings = [Ending(outcome=Outcome.FAILED, cause=Cause.EXCEPTION, detail=d) for d in details]
    assert noted(*endings)[-1]
