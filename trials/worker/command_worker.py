"""The process that runs a command: starts it, logs its output, reads its metrics, ends it.

It uses the same protocol as the process of a training function, on behalf of a program that does
not import the tuner.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from tuner.config.notation.command_template import render_argv
from tuner.domain.attempt import Cause, Outcome
from tuner.domain.messages import (
    ENDS_EARLY,
    MAX_METRIC_NAME,
    Assign,
    Finished,
    RemarkTopic,
    name_problem,
)
from tuner.errors import ChannelClosed
from tuner.launch.failure_diagnosis import N_TAIL_LINES, diagnose_exit
from tuner.launch.hints import output_hint
from tuner.launch.local_host import leftover_workers
from tuner.launch.local_host.guardian import GRACE_S
from tuner.launch.local_host.oom_kills import count_oom_kills
from tuner.launch.request import CommandProgram, LaunchRequest
from tuner.search_spaces.values import ParamValue
from tuner.trials.worker.environment import (
    builtins_of,
    environment_of,
    write_sweep_parameters,
)
from tuner.trials.worker.link import DispatcherLink
from tuner.trials.worker.metrics import Curve, LineReader, Reading, line_reader
from tuner.trials.worker.missing_values import explain_missing_values
from tuner.trials.worker.output_lines import LineSplitter
from tuner.trials.worker.process import (
    EXIT_DISPATCHER_GONE,
    EXIT_OK,
    EXIT_TERMINATED,
    cancelled,
    connect,
    leave,
    settle,
)
from tuner.trials.worker.termination import Termination

#: From SIGTERM to SIGKILL for a command that was pruned.
TERMINATE_TIMEOUT_S = 10.0
_POLL_S = 0.5
#: Metrics that the log names as left out.
_MAX_REFUSED = 20
#: Characters of a line that are kept for the failure message.
_TAIL_CHARACTERS = 4096
#: How a program can report each step once.
_PATTERN_STEPS = (
    "Let trial.metrics.pattern match one line of each step, or remove {step} from it: reports are "
    "then counted."
)
_JSON_STEPS = 'Print one line for each step, or leave "step" out: reports are then counted.'
#: Seconds to wait for output after the program is gone (its child may hold the pipe).
_DRAIN_S = 1.0


def main(request: LaunchRequest) -> None:
    """Runs one attempt's command and reports its ending; never returns."""
    # The whole group gets SIGTERM; this process stays to say how the command took it.
    termination = settle(request, lambda: None)
    assert isinstance(request.program, CommandProgram)
    try:
        link = connect(request, termination, world_size=1)
        link.finish(_evaluate(request.program, link, termination, request.rank))
    except ChannelClosed as error:
        print(error, file=sys.stderr)
        leave(EXIT_DISPATCHER_GONE)
    leave(EXIT_OK)


def _evaluate(
    program: CommandProgram, link: DispatcherLink, termination: Termination, rank: int
) -> Finished:
    assign = link.assign
    params = _suggested(program.space, link) if program.space else assign.params
    n_oom_kills = count_oom_kills()
    try:
        process = _start(program, assign, params)
    except (OSError, ValueError) as error:
        return Finished(
            attempt_id=assign.attempt_id,
            outcome=Outcome.FAILED_TO_START,
            cause=Cause.LAUNCH,
            detail=f"The command could not be started: {error}",
        )
    # Rank 0 speaks for all of them.
    read = line_reader(assign.objectives, program.pattern) if rank == 0 else _read_nothing
    minder = _Minder(process, link, termination, read, program.pattern)
    try:
        exit_code = minder.watch()
    except ChannelClosed as error:
        print(error, file=sys.stderr)
        minder.end_all()
        raise
    return minder.conclude(exit_code, count_oom_kills() - n_oom_kills)


def _read_nothing(line: str) -> None:  # a line reader
    return None


def _suggested(space: str, link: DispatcherLink) -> Mapping[str, ParamValue]:
    """All parameters, after the user's function has suggested its own."""
    # Optuna and NumPy: a command with a space of the study file does without them.
    from tuner.trials.context import TrialContext
    from tuner.trials.worker.function_worker import build_params

    context = TrialContext(link.assign, link)
    build_params(context, space)
    return context.params


def _start(
    program: CommandProgram, assign: Assign, params: Mapping[str, ParamValue]
) -> subprocess.Popen[bytes]:
    environment = environment_of(assign, params, program.environment)
    # Programs write where `{checkpoint_dir}` says, and most make no folder for that.
    Path(assign.checkpoint_dir).mkdir(parents=True, exist_ok=True)
    write_sweep_parameters(params, environment)
    return subprocess.Popen(
        render_argv(program.argv, params, builtins_of(assign)),
        env={"PYTHONUNBUFFERED": "1", **os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        pass_fds=leftover_workers.held(),
    )


class _Minder:
    """Watches one running command until it is gone."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        link: DispatcherLink,
        termination: Termination,
        read: LineReader,
        pattern: str | None = None,
    ) -> None:
        self._process = process
        self._pattern = pattern
        self._link = link
        self._termination = termination
        self._read = read
        self._curve = Curve(link.assign.objectives)
        self._tail: deque[str] = deque(maxlen=N_TAIL_LINES)
        self._n_lines = 0
        self._lines = LineSplitter()
        #: Names of metrics that were left out.
        self._refused: set[str] = set()
        self._told: set[RemarkTopic] = set()
        self._kill_at_s: float | None = None

    def watch(self) -> int:
        """Reads output and verdicts until the command has exited; returns its exit code."""
        output = self._process.stdout
        assert output is not None
        os.set_blocking(output.fileno(), False)
        gone_at_s: float | None = None
        is_open = True
        while is_open and (gone_at_s is None or time.monotonic() < gone_at_s + _DRAIN_S):
            ready, _, _ = select.select([output.fileno(), self._link.fileno()], [], [], _POLL_S)
            if output.fileno() in ready:
                is_open = self._take_output(output)
            if gone_at_s is None and self._process.poll() is not None:
                gone_at_s = time.monotonic()
            # Also after output: what was read with a report does not make the link readable.
            if self._link.hear().action in ENDS_EARLY and gone_at_s is None:
                self._terminate()
            self._kill_when_due()
            self._link.send_ready()
        for line in self._lines.finish():
            self._take_line(line)
        output.close()
        return self._process.wait()

    def conclude(self, exit_code: int, n_oom_kills: int) -> Finished:
        attempt_id = self._link.assign.attempt_id
        if self._kill_at_s is not None:
            # However it handled SIGTERM: it was stopped, and its values are half-trained.
            return Finished(
                attempt_id=attempt_id,
                outcome=Outcome.PRUNED,
                cause=Cause.PRUNER,
                detail=self._link.verdict.reason,
            )
        # A command that takes SIGTERM by saving and exiting with 0 has not trained to its end.
        if self._termination.is_heard and exit_code in (EXIT_OK, -signal.SIGTERM, EXIT_TERMINATED):
            return cancelled(self._link)
        if exit_code == EXIT_OK:
            values = self._curve.values
            detail = "" if values else self._without_values()
            return Finished(
                attempt_id=attempt_id, outcome=Outcome.COMPLETED, values=values, detail=detail
            )
        ending = diagnose_exit(exit_code, "\n".join(self._tail), n_oom_kills=n_oom_kills)
        hint = self._hint() if exit_code > 0 else ""
        return Finished(
            attempt_id=attempt_id,
            outcome=ending.outcome,
            cause=ending.cause,
            detail="\n".join(filter(None, [ending.detail, hint])),
        )

    def _hint(self) -> str:
        argv = self._process.args
        assert isinstance(argv, list), "a command is started from a list of words"
        return output_hint("\n".join(self._tail), argv)

    def _take_output(self, output: IO[bytes]) -> bool:
        """Copies available output to the log and parses it; False once the pipe is closed."""
        chunk = output.read(65536)
        if chunk is None:
            return True
        # A disk that is full costs the log some lines, and not the trial.
        with contextlib.suppress(OSError):
            sys.stdout.buffer.write(chunk)
            sys.stdout.buffer.flush()
        for line in self._lines.feed(chunk):
            self._take_line(line)
        return bool(chunk)

    def _take_line(self, raw: bytes) -> None:
        line = raw.decode(errors="replace")
        if not line.strip():
            return
        self._tail.append(line[:_TAIL_CHARACTERS])
        self._n_lines += 1
        if reading := self._read(line):
            step = self._curve.add(reading)
            self._tell_doubts(reading)
            if step is not None:
                self._link.report(step, self._curve.values, self._storable(reading.metrics))

    def _tell_doubts(self, reading: Reading) -> None:
        """Reports once what users would not expect in the stored metrics."""
        if reading.cut:
            self._remark(RemarkTopic.CUT_NUMBER, reading.cut)
        if self._curve.steps.remark:
            self._remark(RemarkTopic.FRACTIONAL_STEPS, self._curve.steps.remark)
        advice = _JSON_STEPS if self._pattern is None else _PATTERN_STEPS
        if remark := self._curve.order.remark(advice):
            self._remark(RemarkTopic.REPEATED_STEPS, remark)

    def _remark(self, topic: RemarkTopic, text: str) -> None:
        if topic not in self._told:
            self._told.add(topic)
            print(text, file=sys.stderr)
            self._link.remark(topic, text)

    def _without_values(self) -> str:
        return explain_missing_values(
            self._link.assign.objectives, self._pattern, self._n_lines, self._tail
        )

    def _storable(self, metrics: Mapping[str, float]) -> Mapping[str, float]:
        """Metrics whose names can be stored; the log names each other one once."""
        problems = {name: name_problem(name, MAX_METRIC_NAME) for name in metrics}
        for name, problem in problems.items():
            if problem and name not in self._refused and len(self._refused) < _MAX_REFUSED:
                self._refused.add(name)
                print(f"A metric of the output is left out: {problem}.", file=sys.stderr)
        return {name: value for name, value in metrics.items() if not problems[name]}

    def _terminate(self) -> None:
        """Ends a pruned command with SIGTERM. A stopped one may end by itself first."""
        if self._kill_at_s is None:
            self._link.confirm_end()
            self._termination.announce()
            os.killpg(0, signal.SIGTERM)
            self._kill_at_s = time.monotonic() + TERMINATE_TIMEOUT_S

    def end_all(self) -> None:
        """When the dispatcher is gone: SIGTERM, a wait, and SIGKILL for the group and itself.

        If it exited first, a command that ignores SIGTERM would be left behind.
        """
        self._termination.announce()
        os.killpg(0, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(GRACE_S)
        os.killpg(0, signal.SIGKILL)

    def _kill_when_due(self) -> None:
        if self._kill_at_s is not None and time.monotonic() > self._kill_at_s:
            self._process.kill()
