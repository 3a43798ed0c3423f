"""Metrics that a command prints, on their way to the dispatcher."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.unit.trials.recording_link import ATTEMPT, RecordingLink
from tuner.config.notation.metric_pattern import expand
from tuner.domain.attempt import Outcome
from tuner.domain.messages import Assign, RemarkTopic
from tuner.trials.worker.command_worker import _Minder
from tuner.trials.worker.metrics import line_reader

ASSIGN = Assign(
    attempt_id=ATTEMPT,
    trial_number=7,
    attempt_number=2,
    params={},
    seed=11,
    checkpoint_dir="checkpoints",
    objectives=("accuracy",),
    devices=("cpu:0",),
)


@pytest.fixture
def command() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        yield process


@pytest.mark.parametrize("name", ["n" * 256, "a\0b"], ids=["long", "nul"])
def test_metric_whose_name_no_database_holds_is_left_out_and_told_once(
    command: subprocess.Popen[bytes], capsys: pytest.CaptureFixture[str], name: str
) -> None:
    link = RecordingLink(assign=ASSIGN)
    read = line_reader(("accuracy",), None)
    minder = _Minder(command, link, None, read)  # type: ignore[arg-type]
    for step in (1, 2):
        line = {"step": step, "accuracy": 0.5, "loss": 0.1, name: 3.0}
        minder._take_line(json.dumps(line).encode())
    assert link.reports == [(step, {"accuracy": 0.5}, {"loss": 0.1}) for step in (1, 2)]
    assert capsys.readouterr().err.count("A metric of the output is left out: the name") == 1


@pytest.mark.parametrize(
    ("pattern", "lines", "topic", "said"),
    [
        (
            r"loss (?P<accuracy>[\d.]+)",
            ["loss 1.67e-06", "loss 1.5e-06"],
            RemarkTopic.CUT_NUMBER,
            "takes '1.67' as accuracy, but the output continues: '1.67e-06'",
        ),
        (
            None,
            ['{"step": 0.5, "accuracy": 1}', '{"step": 1.0, "accuracy": 1}'],
            RemarkTopic.FRACTIONAL_STEPS,
            "reports fractional steps (0.5)",
        ),
        (
            r"epoch (?P<step>\d+): .*loss (?P<accuracy>[\d.]+)",
            ["epoch 0: train loss 2", "epoch 0: test loss 3", "epoch 0: loss 4"],
            RemarkTopic.REPEATED_STEPS,
            "The program reports step 0 twice. Only the first report of each step is compared "
            "with other trials. Let trial.metrics.pattern match one line of each step",
        ),
        (
            None,
            ['{"step": 1, "accuracy": 1}', '{"step": 0, "accuracy": 1}'],
            RemarkTopic.REPEATED_STEPS,
            "reports step 0 after step 1. Only the first report",
        ),
    ],
    ids=["cut", "fractions", "repeated", "repeated in JSON"],
)
def test_what_people_would_not_expect_is_said_once(
    command: subprocess.Popen[bytes],
    pattern: str | None,
    lines: list[str],
    topic: RemarkTopic,
    said: str,
) -> None:
    link = RecordingLink(assign=ASSIGN)
    read = line_reader(("accuracy",), pattern)
    minder = _Minder(command, link, None, read, pattern)  # type: ignore[arg-type]
    for line in lines:
        minder._take_line(line.encode())
    assert len(link.reports) == len(lines)
    assert [each for each, _ in link.remarks] == [topic]
    assert said in link.remarks[0][1]


@pytest.mark.parametrize(
    ("pattern", "lines", "detail"),
    [
        (
            "accuracy {accuracy}",
            ["Epoch 1", "acc: 0.5"],
            "trial.metrics.pattern matched none of its 2 lines. The last ones:\nEpoch 1\nacc: 0.5",
        ),
        (
            "step={step}, return={accuracy}",
            ["step=8, return=[39.]", "SPS: 3"],
            "trial.metrics.pattern matched none of its 2 lines. 'step=8, return=[39.]' has its "
            "beginning, 'step={step}, return=', but not its continuation, '{accuracy}'. The last "
            "ones:\nstep=8, return=[39.]\nSPS: 3",
        ),
        (
            "Accuracy: {accuracy}",
            ["accuracy: 0.5"],
            "trial.metrics.pattern matched none of its 1 lines. Upper and lower case differ: write "
            "(?i) at the beginning of the pattern. The last ones:\naccuracy: 0.5",
        ),
        (
            None,
            ["acc: 0.5"],
            "Its only line is no JSON object with accuracy, such as "
            '{"step": 1, "accuracy": 0.5}. Print such lines, or give trial.metrics.pattern. '
            "The last ones:\nacc: 0.5",
        ),
        (
            None,
            [],
            "It printed nothing. Its metrics are read from its output: print lines such as "
            '{"step": 1, "accuracy": 0.5}.',
        ),
    ],
    ids=["pattern", "beginning", "case", "json", "silent"],
)
def test_without_any_value_it_shows_what_the_lines_were(
    command: subprocess.Popen[bytes], pattern: str | None, lines: list[str], detail: str
) -> None:
    link = RecordingLink(assign=ASSIGN)
    read = line_reader(("accuracy",), pattern and expand(pattern))
    minder = _Minder(command, link, Heard(), read, pattern)  # type: ignore[arg-type]
    for line in lines:
        minder._take_line(line.encode())
    ended = minder.conclude(0, 0)
    assert (ended.outcome, ended.detail) == (Outcome.COMPLETED, detail)


class Heard:
    """Of a process that nobody has told to end."""

    is_heard = False
