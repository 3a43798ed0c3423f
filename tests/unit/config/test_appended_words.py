"""Words after `--` are part of the study file that is recorded."""

from __future__ import annotations

import pytest
import yaml

from tuner.config.appended_words import append_words

WORDS = ["--data", "/mnt/a b", '--note="it\'s"', "ü", "# no comment"]
FLOW = "study: s\ntrial:\n  command: [python, train.py]  # mine\n  retries: 1\n"
BLOCK = "study: s\ntrial:\n  command:\n    - python\n    - train.py  # mine\n  retries: 1\n"
DASHES_IN_ITEM = "trial:\n  command:\n  - python\n  - a-b - c.py\nstudy: s\n"
ALIAS = "x: &c [python, train.py]\ntrial: {command: *c}\n"


@pytest.mark.parametrize("text", [FLOW, BLOCK, DASHES_IN_ITEM, ALIAS])
def test_words_follow_the_command(text: str) -> None:
    before, after = yaml.safe_load(text), yaml.safe_load(append_words(text, WORDS))
    assert after["trial"].pop("command") == [*before["trial"].pop("command"), *WORDS]
    assert after == before


@pytest.mark.parametrize("text", [FLOW, BLOCK])
def test_comments_stay(text: str) -> None:
    assert "# mine" in append_words(text, WORDS)


@pytest.mark.parametrize("text", ["trial: {function: a:b}\n", "study: s\n", FLOW])
def test_without_words_or_a_command_the_text_stays(text: str) -> None:
    assert append_words(text, [] if "command" in text else WORDS) == text
