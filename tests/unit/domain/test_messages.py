"""What workers and the dispatcher say to each other comes over the wire as it was meant."""

from __future__ import annotations

import json
import math
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.domain.attempt import AttemptId, Cause, Outcome
from tuner.domain.messages import (
    Action,
    AskStudy,
    Assign,
    Decided,
    Finished,
    Hello,
    MalformedMessage,
    Message,
    RangeInCode,
    Remark,
    RemarkTopic,
    Report,
    SetAttribute,
    SetConstraint,
    StatesDamaged,
    StopStudy,
    StudyPlace,
    Suggest,
    Suggested,
    TerminationRequested,
    Verdict,
    decode,
    encode,
)

ID = AttemptId("3.1")
MESSAGES = [
    Hello(attempt_id=ID, token="t", pid=7),
    Hello(attempt_id=ID, token="t", pid=7, is_worker=False),
    Hello(attempt_id=ID, token="t", pid=7, since_boot_s=12.5),
    TerminationRequested(attempt_id=ID, rank=2),
    Assign(
        attempt_id=ID,
        trial_number=3,
        attempt_number=1,
        params={"lr": 1e-5, "layers": [1, 2], "name": "x\ny", "on": True, "none": None},
        seed=2**31 - 1,
        checkpoint_dir="/a b/ü",
        objectives=("accuracy", "latency_ms"),
        devices=("GPU 0",),
    ),
    Report(attempt_id=ID, step=0, values={"accuracy": 0.5}),
    Report(attempt_id=ID, step=9, values={"accuracy": math.inf}, metrics={"loss": -math.inf}),
    *(Verdict(attempt_id=ID, step=-1, action=action, reason="why") for action in Action),
    Suggest(attempt_id=ID, name="x", distribution='{"name": "FloatDistribution"}'),
    Suggested(attempt_id=ID, name="x", value=[1, "a"]),
    Suggested(attempt_id=ID, name="x", error="no"),
    RangeInCode(attempt_id=ID, name="x", distribution='{"name": "FloatDistribution"}'),
    AskStudy(attempt_id=ID),
    StudyPlace(attempt_id=ID, study="small", storage="sqlite:////a b/small.db"),
    StopStudy(attempt_id=ID),
    SetAttribute(attempt_id=ID, key="k", value={"deep": [{"er": None}]}),
    SetConstraint(attempt_id=ID, key="c", value=-0.5),
    Decided(attempt_id=ID, count=1, step=3, action=Action.PRUNE, reason="why"),
    *(Remark(attempt_id=ID, topic=topic, text="cut") for topic in RemarkTopic),
    StatesDamaged(attempt_id=ID, paths=("/a b/step-2.pt", "/a b/step-1.pt"), resumed_from=0),
    StatesDamaged(attempt_id=ID, paths=("/a b/step-2.pt",), resumed_from=None),
    *(Finished(attempt_id=ID, outcome=outcome) for outcome in Outcome),
    *(Finished(attempt_id=ID, outcome=Outcome.FAILED, cause=cause) for cause in Cause),
    Finished(attempt_id=ID, outcome=Outcome.COMPLETED, detail="line\nline", values={"a": 1.0}),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_decode_gives_what_was_encoded(message):
    line = encode(message)
    assert decode(line) == message
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1


def test_no_kind_of_message_is_left_out():
    assert {type(message) for message in MESSAGES} == set(get_args(Message))


def test_a_password_of_the_storage_is_in_no_representation():
    place = StudyPlace(attempt_id=ID, study="small", storage="postgresql://me:secret@db/x")
    assert "secret" not in repr(place)


def test_not_a_number_survives():
    report = decode(encode(Report(attempt_id=ID, step=1, values={"accuracy": math.nan})))
    assert isinstance(report, Report)
    assert math.isnan(report.values["accuracy"])


@settings(max_examples=50, deadline=None)
@given(
    text=st.text(),
    step=st.integers(),
    values=st.dictionaries(st.text(), st.floats(allow_nan=False)),
)
def test_any_text_and_number_survives(text, step, values):
    messages = [
        Report(attempt_id=AttemptId(text), step=step, values=values),
        Finished(attempt_id=AttemptId(text), outcome=Outcome.FAILED, detail=text, values=values),
        SetAttribute(attempt_id=ID, key=text, value={text: [step, text]}),
    ]
    assert [decode(encode(message)) for message in messages] == messages


MALFORMED = [
    b"",
    b"\n",
    b"hello\n",
    b"\xff\xfe",
    b"null",
    b"5",
    b"[]",
    b'["Hello"]',
    b'["Hello", 5]',
    b'["Hello", {}]',
    b'["Nobody", {}]',
    b'[["Hello"], {}]',
    b'["Hello", {"attempt_id": "1.1", "token": "t", "pid": 1, "more": 2}]',
    b'["Finished", {"attempt_id": "1.1", "outcome": "won"}]',
    b'["Verdict", {"attempt_id": "1.1", "step": 1, "action": "dance"}]',
    b"[" * 100_000,
    b'["Hello", {"attempt_id": [], "token": "t", "pid": 1}]',
    b'["Hello", {"attempt_id": "1.1", "token": null, "pid": 1}]',
    b'["Report", {"attempt_id": "1.1", "step": "one", "values": {}}]',
    b'["Report", {"attempt_id": "1.1", "step": 1, "values": [1]}]',
    b'["Report", {"attempt_id": "1.1", "step": 1, "values": {"accuracy": "high"}}]',
    b'["Finished", {"attempt_id": "1.1", "outcome": "completed", "values": {"a": null}}]',
    b'["SetConstraint", {"attempt_id": "1.1", "key": 5, "value": 1}]',
]


@pytest.mark.parametrize("line", MALFORMED, ids=lambda line: line[:60].decode(errors="replace"))
def test_decode_refuses_what_is_no_message(line):
    with pytest.raises(MalformedMessage, match="not a message of the tuner"):
        decode(line)


def test_decode_shows_only_the_beginning_of_a_long_line():
    with pytest.raises(MalformedMessage) as caught:
        decode(b"x" * 10_000)
    assert len(str(caught.value)) < 300


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(st.binary() | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps))
def test_decode_of_anything_is_a_message_or_malformed(line):
    with pytest.raises(MalformedMessage):
        decode(line if isinstance(line, bytes) else line.encode())
