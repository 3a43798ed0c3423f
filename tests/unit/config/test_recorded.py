"""What of a study file is recorded: the names of `trial.env`, and none of its values."""

from __future__ import annotations

import pytest

from tuner.config.appended_words import append_words
from tuner.config.recorded import recorded_text
from tuner.search_spaces.strict_yaml import read_yaml

BEFORE = "study: s  # a comment\ntrial:\n  command: [a, b]\n"
AFTER = "  retries: 1\nbudget: {trials: 3}\n"


@pytest.mark.parametrize(
    ("written", "recorded"),
    [
        ("  env: {TOKEN: secret, N: 2}\n", '  env: {TOKEN: "***", N: "***"}\n'),
        (
            "  env:\n    TOKEN: 'secret' # why\n    B: \"secret: x\"\n",
            '  env:\n    TOKEN: "***" # why\n    B: "***"\n',
        ),
        (
            "  env:\n    KEY: |\n      secret\n      secret\n    B: secret\n",
            '  env:\n    KEY: "***"\n    B: "***"\n',
        ),
        ("  env:\n    KEY: >-\n      secret\n\n      secret\n", '  env:\n    KEY: "***"\n\n'),
        ("  env: {}\n", "  env: {}\n"),
        ("  env:\n", "  env:\n"),
        ("", ""),
    ],
)
def test_values_are_masked_and_all_else_stays(written: str, recorded: str) -> None:
    text = recorded_text(BEFORE + written + AFTER)
    assert "secret" not in text
    assert text.replace("\n\n", "\n") == (BEFORE + recorded + AFTER).replace("\n\n", "\n")


@pytest.mark.parametrize(
    "text",
    [
        "study: s\ntrial:\n  command: [a]\n  env: {A: &key secret, B: *key}\n",
        "study: &key secret\ntrial:\n  command: [a]\n  env: {A: *key}\n",
        "study: s\ntrial: {command: [a], env: {? A : secret, B: !!str secret}}\n",
        "study: s\ntrial:\n  command: [a]\n  env:\n    A: se\n      cret\n",
        'study: s\n"trial": {"command": ["a"], "env": {"A": "s\\u00e9cret secret"}}\n',
    ],
)
def test_unusual_yaml_is_masked_too(text: str) -> None:
    masked = read_yaml(recorded_text(text))
    whole = read_yaml(text)
    assert isinstance(masked, dict)
    assert isinstance(whole, dict)
    assert set(masked["trial"]["env"].values()) == {"***"}
    assert masked["trial"]["env"].keys() == whole["trial"]["env"].keys()
    assert masked["study"] == whole["study"]
    assert masked["trial"]["command"] == ["a"]


def test_passwords_go_as_before() -> None:
    text = "study: s\nstorage: postgresql://a:secret@host/b\ntrial: {function: m:f}\n"
    assert "secret" not in recorded_text(text)


@pytest.mark.parametrize(
    "command",
    [
        "  command: [python, train.py]  # ours\n",
        "  command:\n    - python  # why\n    - train.py\n",
        '  "command": ["python",\n    "train.py"]\n',
    ],
)
def test_arguments_are_recorded_after_the_command(command: str) -> None:
    text = f"study: s  # a comment\ntrial:\n{command}{AFTER}"
    recorded = append_words(text, ["--data", "/mnt/two words", "a: 'b' # c"])
    document = read_yaml(recorded)
    assert isinstance(document, dict)
    wanted = ["python", "train.py", "--data", "/mnt/two words", "a: 'b' # c"]
    assert document["trial"] == {"command": wanted, "retries": 1}
    assert document["budget"] == {"trials": 3}
    assert recorded.startswith("study: s  # a comment\n")


def test_arguments_are_recorded_where_an_anchor_is_the_command() -> None:
    text = "study: s\ntrial:\n  env: {A: &a x}\n  command: [*a]\n"
    document = read_yaml(append_words(text, ["--data"]))
    assert isinstance(document, dict)
    assert document["trial"] == {"env": {"A": "x"}, "command": ["x", "--data"]}


def test_a_study_without_arguments_is_recorded_as_it_stands() -> None:
    text = BEFORE + AFTER
    assert append_words(text, []) == text
