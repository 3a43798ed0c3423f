"""Every mistake in a study file gets one message: file, key, value, what is allowed, what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.config.mistakes.study_texts import DURATION, SMALL, URL, trial
from tuner.config.study_file import load_study_file
from tuner.errors import EXIT_BAD_INPUT, ConfigError

FILE = [
    pytest.param(
        "",
        "the file is empty. Write a study, or let `tuner init` write one to start from.",
        id="empty-file",
    ),
    pytest.param(
        "- a",
        "holds a list, but must be a mapping with keys such as study: and trial:.",
        id="list",
    ),
    pytest.param(
        "hello",
        "holds a single value, but must be a mapping with keys such as study: and trial:.",
        id="text",
    ),
    pytest.param(
        "study: [1",
        "line 1, column 10: not valid YAML: while parsing a flow sequence, "
        "expected ',' or ']', but got the end of the file.",
        id="not-yaml",
    ),
    pytest.param(
        "study: a\nstudy: b",
        "line 2, column 1: the key 'study' is there twice (first on line 1). Keep one.",
        id="repeated-key",
    ),
    pytest.param(
        "study:\n\tx: 1",
        "line 2, column 1: a tab, which YAML does not allow here. Indent with spaces.",
        id="tab",
    ),
]


KEYS = [
    pytest.param(
        SMALL + "samplr: tpe", "unknown key 'samplr'. Did you mean 'sampler'?", id="near-key"
    ),
    pytest.param(
        trial("function: m:f, resorces: {gpus: 1}"),
        "unknown key 'trial.resorces'. Did you mean 'trial.resources'?",
        id="near-key-deep",
    ),
    pytest.param(
        SMALL + "timeout: 1h",
        "unknown key 'timeout'. Did you mean 'budget.time' (of the study) or 'trial.timeout' "
        "(of each attempt)?",
        id="key-of-two-other-mappings",
    ),
    pytest.param(
        SMALL + "retries: 3",
        "unknown key 'retries'. Did you mean 'trial.retries'?",
        id="key-of-another-mapping",
    ),
    pytest.param(
        SMALL + "name: digits",
        "unknown key 'name'. Did you mean 'study'?",
        id="name-of-the-study",
    ),
    pytest.param(
        SMALL + "budget: {zzz: 1}",
        "unknown key 'budget.zzz'. Known keys: budget.trials, budget.time, budget.device_hours, "
        "budget.energy.",
        id="far-key",
    ),
    pytest.param(
        SMALL + "priority: 101",
        "priority is 101, but must be a whole number from 0 to 100.",
        id="priority-too-high",
    ),
    pytest.param(
        SMALL + "priority: high",
        "priority is 'high', but must be a whole number from 0 to 100.",
        id="priority-in-words",
    ),
    pytest.param(
        SMALL + "path: x",
        "unknown key 'path'. Known keys: study, storage, objectives, trial, search_space, "
        "sampler, prior, transfer, pruner, devices, max_gpus, priority, budget, on_finish, "
        "on_best, on_failure, on_alert, track, checkpoints, usage, widen, confirm, engine.",
        id="name-of-a-property",
    ),
    pytest.param(
        "trial: {function: m:f}",
        "study is missing. Name the study, for example study: digits-mlp.",
        id="no-study",
    ),
    pytest.param(
        "study: x\ntrial:",
        "trial is missing. Say what to run, for example trial: {function: train:main}.",
        id="no-trial",
    ),
]


VALUES = [
    pytest.param(
        "study: 3\ntrial: {function: m:f}",
        'study is 3, but must be text. Put it in quotes: "3".',
        id="study-number",
    ),
    pytest.param(
        "study: a/b\ntrial: {function: m:f}",
        "study is 'a/b', but must be without slashes and line breaks, and at most 200 characters: "
        "it names files too.",
        id="study-slash",
    ),
    pytest.param(
        "study: ''\ntrial: {function: m:f}",
        "study is '', but must be a name, such as digits-mlp.",
        id="study-empty",
    ),
    pytest.param(
        SMALL + "budget: {trials: many}",
        "budget.trials is 'many', but must be a whole number (for example 64).",
        id="trials-text",
    ),
    pytest.param(
        SMALL + "budget: {trials: true}",
        "budget.trials is true, but must be a whole number (for example 64).",
        id="trials-bool",
    ),
    pytest.param(
        SMALL + "budget: {trials: 0}", "budget.trials is 0, but must be at least 1.", id="trials-0"
    ),
    pytest.param(
        SMALL + "budget: {time: soon}", f"budget.time is 'soon', but must be {DURATION}", id="time"
    ),
    pytest.param(
        SMALL + "budget: {device_hours: -1}",
        "budget.device_hours is -1, but must be a number above 0.",
        id="device-hours",
    ),
    pytest.param(
        SMALL + "budget: 3",
        "budget is 3, but must be a mapping, with one `key: value` per line. "
        "Write budget: {trials: 3}",
        id="budget-number",
    ),
    pytest.param(
        SMALL + "objectives: [accuracy]",
        "objectives is ['accuracy'], but must be a mapping, such as {accuracy: maximize}.",
        id="objectives-list",
    ),
    pytest.param(
        SMALL + "objectives: {}",
        "objectives is empty, but must have at least one objective, such as {accuracy: maximize}.",
        id="no-objective",
    ),
    pytest.param(
        SMALL + "objectives: {accuracy: max}",
        "objectives.accuracy is 'max', but must be 'minimize' or 'maximize'. "
        "Did you mean 'maximize'?",
        id="direction",
    ),
    pytest.param(
        SMALL + "objectives: {step: maximize}",
        "objectives has an objective named 'step', which means training steps. Rename it.",
        id="objective-step",
    ),
    pytest.param(
        SMALL + "sampler: 3",
        "sampler is 3, but must be a name or a mapping: {name: auto}.",
        id="sampler-number",
    ),
    pytest.param(
        SMALL + "sampler: {seed: x}",
        "sampler.seed is 'x', but must be a whole number from 0 to 4294967295.",
        id="seed",
    ),
    pytest.param(
        SMALL + "pruner: {name: 3}",
        'pruner.name is 3, but must be text. Put it in quotes: "3".',
        id="pruner-name",
    ),
    pytest.param(
        SMALL + "devices: gpu",
        "devices is 'gpu'. Allowed: auto, all, cpu:N (such as cpu:4), or a list of GPU numbers and "
        "UUIDs (such as [0, 1]). Write auto for every idle GPU.",
        id="devices",
    ),
    pytest.param(
        SMALL + "search_space: {lr: {type: float, low: 1, high: 0.1}}",
        "search_space.lr.low is 1.0, but must be below high, which is 0.1. Swap the two.",
        id="space",
    ),
]


STORAGE = [
    pytest.param(
        SMALL + "storage: postgresql+psycopg://u:s3c@ret@h:port/db",
        f"storage is 'postgresql+psycopg://u:***@h:port/db', but must be {URL}",
        id="malformed",
    ),
    pytest.param(
        SMALL + "storage: postgresql+psycopg:/u:s3cret@h/db",
        f"storage is 'postgresql+psycopg:***@h/db', but must be {URL}",
        id="one-slash",
    ),
    pytest.param(
        SMALL + "storage: postgres:s3cret",
        f"storage is 'postgres:***', but must be {URL}",
        id="no-slash",
    ),
    pytest.param(
        SMALL + "storage: postgres://u:s3cret@h/db",
        f"storage is 'postgres://u:***@h/db', but there is no database 'postgres'. It must be "
        f"{URL} Write postgresql, not postgres.",
        id="postgres",
    ),
    pytest.param(
        SMALL + "storage: ${URL}/db",
        "storage needs ${URL}, but the environment variable URL is not set. "
        "Set it (export URL=...), or read a file: ${file:/path/of/the/password}.",
        id="unset-variable",
    ),
    pytest.param(
        SMALL + "storage: 'sqlite://'",
        "storage is 'sqlite://', a database in memory, which would be gone at the end. "
        "Use a file, such as sqlite:///study.db.",
        id="memory",
    ),
    pytest.param(
        SMALL + "storage: {a: b}",
        "storage must be text, such as sqlite:///study.db.",
        id="mapping",
    ),
]


@pytest.mark.parametrize(("text", "expected"), [*FILE, *KEYS, *VALUES, *STORAGE])
def test_mistake_gets_one_message(message, text: str, expected: str) -> None:
    assert message(text) == f"study.yaml: {expected}"


def test_several_mistakes_get_a_line_each(message) -> None:
    text = SMALL + "samplr: tpe\nbudget: {trials: many}\n"
    text += "search_space: {a: {type: int}, b: {type: foo}}"
    assert message(text).splitlines() == [
        "study.yaml: search_space.a has no low and no high. "
        "A parameter of type int needs both ends.",
        "study.yaml: search_space.b.type is 'foo', but must be float, int or categorical.",
        "study.yaml: budget.trials is 'many', but must be a whole number (for example 64).",
        "study.yaml: unknown key 'samplr'. Did you mean 'sampler'?",
    ]


def test_mistake_in_a_space_file_names_that_file(message, folder: Path) -> None:
    (folder / "mine.yaml").write_text("a: {type: int}")
    assert message(SMALL + "search_space: mine.yaml") == (
        "mine.yaml: a has no low and no high. A parameter of type int needs both ends."
    )


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        pytest.param(
            {"overrides": ["samplr.seed=1"]},
            "--set: unknown key 'samplr'. Did you mean 'sampler'?",
            id="unknown-key",
        ),
        pytest.param(
            {"overrides": ["budget.trails=1"]},
            "--set: unknown key 'budget.trails'. Did you mean 'budget.trials'?",
            id="unknown-key-deep",
        ),
        pytest.param(
            {"overrides": ["budget.trials=many"]},
            "--set: budget.trials is 'many', but must be a whole number (for example 64).",
            id="wrong-value",
        ),
        pytest.param(
            {"overrides": ["seed"]},
            "--set is given 'seed', but takes KEY=VALUE, such as sampler.seed=1.",
            id="no-value",
        ),
        pytest.param(
            {"overrides": ["study.x=1"]},
            "--set: study.x cannot be set, because study is 'digits', which has no keys. "
            "Set study itself.",
            id="below-a-value",
        ),
        pytest.param(
            {"overrides": ["study=[1"]},
            "--set: study is given a value that is line 1, column 3: not valid YAML: while parsing "
            "a flow sequence, expected ',' or ']', but got the end of the file.",
            id="not-yaml",
        ),
        pytest.param(
            {"overrides": ["storage=postgresql://u:s3cret@h:x/db"]},
            f"--set: storage is 'postgresql://u:***@h:x/db', but must be {URL}",
            id="password",
        ),
        pytest.param(
            {"trials": -3}, "--trials: budget.trials is -3, but must be at least 1.", id="trials"
        ),
        pytest.param(
            {"study": "a/b"},
            "--study: study is 'a/b', but must be without slashes and line breaks, and at most 200 "
            "characters: it names files too.",
            id="study",
        ),
        pytest.param(
            {"extra_arguments": ["--lr=3"]},
            "study.yaml: the arguments after -- (--lr=3) are for the program of trial.command, "
            "and this study has none: its trials are calls of trial.function. Write such values "
            "into search_space as constants (data: /mnt/imagenet), which the function reads from "
            "its parameters, or into trial.env.",
            id="words-for-a-function",
        ),
    ],
)
def test_mistake_on_the_command_line_names_the_flag(
    message, arguments: dict[str, object], expected: str
) -> None:
    assert message(SMALL, **arguments) == expected


def test_set_does_not_take_the_blame_for_the_file(message) -> None:
    text = message("study: x\n", overrides=["trial.retries=2"])
    assert text.startswith("study.yaml: trial has neither function nor command.")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param(
            "nope.yaml",
            "nope.yaml: there is no such file. Give the path of a study file, or write one: "
            "tuner init",
            id="missing",
        ),
        pytest.param(
            "studies",
            "studies: is a folder. Give the study file in it, for example studies/study.yaml.",
            id="folder",
        ),
        pytest.param(
            "binary.yaml",
            "binary.yaml: is not text in UTF-8 (invalid start byte at byte 0). Save it as UTF-8.",
            id="binary",
        ),
    ],
)
def test_unreadable_file_is_named(folder: Path, name: str, expected: str) -> None:
    (folder / "studies").mkdir()
    (folder / "binary.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError) as caught:
        load_study_file(Path(name), environ={})
    assert str(caught.value) == expected
    assert caught.value.exit_code == EXIT_BAD_INPUT
