"""The process that calls a training function: one attempt, then it is gone.

It is forked from a process that has imported torch and the user's module already, so everything
that must differ between trials is set here: session, output, environment, threads, random seeds.
"""

from __future__ import annotations

import contextlib
import importlib
import math
import os
import random
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from optuna import TrialPruned

from tuner.domain.attempt import Cause, Outcome
from tuner.domain.messages import ENDS_EARLY, RETURNED_PARAMS_ATTR, Action, Assign, Finished
from tuner.errors import ChannelClosed
from tuner.launch.failure_diagnosis import (
    ENDED_ITSELF,
    N_TAIL_LINES,
    memory_cause,
    nan_detail,
    user_traceback,
)
from tuner.launch.hints import HINT, hint_for
from tuner.launch.request import FunctionProgram, LaunchRequest
from tuner.trials import active
from tuner.trials.context import TrialContext
from tuner.trials.optuna_trial import add_params
from tuner.trials.profiling import begin_trace
from tuner.trials.worker.environment import environment_of
from tuner.trials.worker.link import DispatcherLink
from tuner.trials.worker.process import (
    EXIT_DISPATCHER_GONE,
    EXIT_OK,
    EXIT_TERMINATED,
    cancelled,
    connect,
    leave,
    settle,
)
from tuner.trials.worker.returned import by_objective, nothing_returned


def main(request: LaunchRequest) -> None:
    """Evaluates one attempt and reports its ending; never returns."""
    termination = settle(request, _exit_cleanly)
    assert isinstance(request.program, FunctionProgram)
    try:
        world_size = int(request.environment.get("WORLD_SIZE", "1"))
        link = connect(request, termination, world_size=world_size)
        context = TrialContext(link.assign, link)
        prepare(context, link.assign, request)
        finished = evaluate(request.program, context, link)
        finished = finish_saving(context, link, finished)
        link.finish(replace(finished, peak_memory_bytes=peak_memory_bytes()))
    except ChannelClosed as error:
        print(error, file=sys.stderr)
        leave(EXIT_DISPATCHER_GONE)
    leave(EXIT_OK)


def prepare(context: TrialContext, assign: Assign, request: LaunchRequest) -> None:
    """Seeds every loaded generator (a fork would otherwise repeat its parent's numbers)."""
    os.environ.update(environment_of(assign, context.params, request.program.environment))
    random.seed(context.seed)
    # numpy.random is imported on first use, which the fork server did.
    if numpy_random := sys.modules.get("numpy.random"):
        numpy_random.seed(context.seed)
    if torch := sys.modules.get("torch"):
        torch.manual_seed(context.seed)
        threads = os.environ.get("OMP_NUM_THREADS", "")
        if n_threads := request.n_threads or (int(threads) if threads.isdigit() else 0):
            # As the variable would have done before the import.
            torch.set_num_threads(n_threads)
        if request.memory_fraction is not None and torch.cuda.is_available():
            torch.cuda.set_per_process_memory_fraction(request.memory_fraction, 0)
    active.context = context
    begin_trace(context)


def evaluate(program: FunctionProgram, context: TrialContext, link: DispatcherLink) -> Finished:
    """Calls the user's function and returns the attempt's ending, whatever happens."""
    try:
        if program.space:
            build_params(context, program.space)
        result = resolve(f"{program.module}:{program.function}")(context)
        return judge_result(context, link, result)
    except TrialPruned as error:
        return _finished_early(link, str(error))
    except SystemExit as error:
        if link.is_termination_requested:
            return cancelled(link)
        if link.verdict.action is not Action.CONTINUE:
            return _finished_early(link, "")
        if error.code == EXIT_TERMINATED:
            return cancelled(link)
        if not error.code:
            return judge_result(context, link, None)
        return _failed(link, Outcome.FAILED, Cause.EXIT_CODE, _exit_detail(error))
    except ChannelClosed:
        raise
    except BaseException as error:  # the edge: whatever the user's code raises is its ending
        return judge_error(link, error)


def finish_saving(context: TrialContext, link: DispatcherLink, finished: Finished) -> Finished:
    """Waits for saves started with `wait=False`; without them a result is incomplete.

    A trace that is being recorded is written, too.
    """
    if context.trace is not None:
        context.trace.finish()
    if not context.checkpoints.is_busy:
        return finished
    # The trial ends anyway; a longer wait ends with a SIGKILL.
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    error = context.checkpoints.settle()
    signal.signal(signal.SIGTERM, before)
    if error is None:
        return finished
    if finished.outcome is Outcome.COMPLETED:
        return judge_error(link, error)
    print(f"The last checkpoint could not be saved: {error}", file=sys.stderr)
    return finished


def build_params(context: TrialContext, space: str) -> None:
    """Calls the define-by-run space; also keeps returned values that it did not suggest."""
    returned = resolve(space)(context) or {}
    others = {k: v for k, v in returned.items() if k not in context.distributions}
    if others:
        add_params(context, others)
        context.set_user_attr(RETURNED_PARAMS_ATTR, others)


def resolve(name: str) -> Callable[..., Any]:
    """Finds `module:function`.

    Raises:
        AttributeError: If the module has no such function.
    """
    module, _, function = name.partition(":")
    found = importlib.import_module(module)
    for part in function.split("."):
        found = getattr(found, part)
    if not callable(found):
        raise AttributeError(f"{name} is not a function.")
    return found


def peak_memory_bytes() -> int | None:
    """Peak torch memory on any one GPU, in bytes; None if it used none."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None
    peaks = map(torch.cuda.max_memory_reserved, range(torch.cuda.device_count()))
    return max(peaks, default=None)


def judge_result(context: TrialContext, link: DispatcherLink, result: object) -> Finished:
    names = context.objectives
    if result is None and link.verdict.action is not Action.CONTINUE:
        # Its last report is from a training that was stopped.
        return _finished_early(link, "")
    try:
        values = by_objective(result, names) if result is not None else dict(context.last_values)
    except (TypeError, ValueError) as error:
        return _failed(link, Outcome.FAILED, Cause.NO_RESULT, str(error))
    if not values:
        # A failure, unless an earlier attempt of the trial had reported all.
        return Finished(
            attempt_id=link.assign.attempt_id,
            outcome=Outcome.COMPLETED,
            detail=nothing_returned(names),
        )
    bad = [name for name, value in values.items() if math.isnan(value)]
    if bad:
        return _failed(link, Outcome.FAILED, Cause.NOT_A_NUMBER, nan_detail(bad))
    return Finished(
        attempt_id=link.assign.attempt_id,
        outcome=Outcome.COMPLETED,
        values=values,
        is_result=result is not None,
    )


def judge_error(link: DispatcherLink, error: BaseException) -> Finished:
    hint = hint_for(error)
    text = "\n".join(filter(None, [user_traceback(error), hint]))
    # The disk of the log may be what is full.
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr)
    if link.is_termination_requested:
        # Its child processes got the signal as well, which may be why it failed.
        return cancelled(link)
    names = {cls.__name__ for cls in type(error).__mro__}
    cause = memory_cause(f"{type(error).__name__}: {error}")
    if "OutOfMemoryError" in names:
        cause = Cause.DEVICE_MEMORY
    elif isinstance(error, MemoryError):
        cause = Cause.HOST_MEMORY
    shown = "\n".join(filter(None, [user_traceback(error, is_short=True), hint]))
    detail = "\n".join(shown.splitlines()[-N_TAIL_LINES:])
    if cause:
        return _failed(link, Outcome.OUT_OF_MEMORY, cause, detail)
    return _failed(link, Outcome.FAILED, Cause.EXCEPTION, detail)


def _finished_early(link: DispatcherLink, said: str) -> Finished:
    verdict = link.verdict
    outcome, cause = Outcome.PRUNED, Cause.PROGRAM
    if link.is_termination_requested and verdict.action not in ENDS_EARLY:
        return cancelled(link)
    if verdict.action is Action.STOP:
        outcome, cause = Outcome.CANCELLED, Cause.INTERRUPTED
    elif verdict.action in ENDS_EARLY:
        cause = Cause.PRUNER
    return Finished(
        attempt_id=link.assign.attempt_id,
        outcome=outcome,
        cause=cause,
        detail=verdict.reason
        or said
        or ("the program raised TrialPruned" if cause is Cause.PROGRAM else ""),
    )


def _exit_detail(error: SystemExit) -> str:
    """Where the function ended the program, which Python itself does not report."""
    text = f"Exit code {error.code}."
    if isinstance(error.code, str):
        text = f"Exit code 1: {error.code}"
    frames = user_traceback(error, is_short=True).splitlines()[1:-1]
    if not frames:
        return text
    told = "\n".join(frames)
    return f"{text}\n{ENDED_ITSELF}\n{told}\n{HINT}Return a number, or raise an error."


def _failed(link: DispatcherLink, outcome: Outcome, cause: Cause, detail: str) -> Finished:
    return Finished(attempt_id=link.assign.attempt_id, outcome=outcome, cause=cause, detail=detail)


def _exit_cleanly() -> None:
    """SIGTERM unwinds the stack, so that `finally` and `with` of the user's code still happen."""
    raise SystemExit(EXIT_TERMINATED)
