"""The rules file: what it may say, and the message for each mistake."""

from __future__ import annotations

import os
import re
from datetime import datetime
from pathlib import Path

import pytest

from tests.fakes import a_gpu
from tuner.devices.allocation.width import WHOLE
from tuner.errors import ConfigError
from tuner.shares.check import check_rules
from tuner.shares.people import census
from tuner.shares.rules import DEFAULT_FILE, ShareRules, parse_rules, read_rules, rules_file

GOOD = """
guaranteed: {ann: 2, "@vision": 4, "*": 0}
weights: {"@vision": 2}
grace: 30s
hold: 5m
max_per_user: 6
quiet_hours:
  09:00-18:00: {guaranteed: {ann: 4}}
  22:00-06:00: {max_per_user: 8}
"""


def rules(text: str) -> ShareRules:
    return parse_rules(text.encode(), "shares.yaml")


def test_a_whole_file() -> None:
    read = rules(GOOD)
    assert read.guaranteed == {"ann": 2, "@vision": 4, "*": 0}
    assert (read.grace, read.hold, read.max_per_user) == (30, 300, 6)


@pytest.mark.parametrize(
    ("hour", "guaranteed_to_ann", "most"), [(8, 2, 6), (9, 4, 6), (18, 2, 6), (23, 2, 8), (3, 2, 8)]
)
def test_hours_lay_their_keys_over_the_others(
    hour: int, guaranteed_to_ann: float, most: float
) -> None:
    now = rules(GOOD).at(datetime(2026, 11, 25, hour, 0))
    assert now.guaranteed["ann"] == guaranteed_to_ann
    assert now.max_per_user == most
    assert now.weights == {"@vision": 2}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("guarantee: {ann: 2}", "unknown key 'guarantee'. Did you mean 'guaranteed'?"),
        ("guaranteed: {ann: -1}", "guaranteed of ann is -1, but must be a number of devices"),
        ("guaranteed: {ann: true}", "guaranteed of ann is True, but must be a number"),
        ("guaranteed: {'a b': 1}", "guaranteed has the name 'a b'. Allowed: a user (ann)"),
        ("guaranteed: 3", "guaranteed is 3, but must be a mapping"),
        ("weights: {ann: 0}", "weights of ann is 0, but must be above 0"),
        ("grace: soon", "grace is 'soon', but must be a duration"),
        ("max_per_user: 0", "max_per_user is 0, but must be a number of devices above 0"),
        ("cpu_slots: 0", "cpu_slots is 0, but must be at least 1"),
        ("gpu_shares: 4", "gpu_shares is 4, but must be a mapping"),
        ("gpu_shares: {first: 4}", "gpu_shares has the GPU 'first'. Allowed: its number"),
        ('gpu_shares: {"0": 1}', "gpu_shares of 0 is 1, but must be a whole number from 2 to 16"),
        ("folder: here", "folder is 'here', but must be an absolute path"),
        ("quiet_hours: {9-18: {}}", "quiet_hours has the hours '9-18', but must be two times"),
        ("quiet_hours: {09:00-25:00: {}}", "quiet_hours has the hours '09:00-25:00'"),
        ("quiet_hours: {09:00-18:00: {grace: 1s}}", "unknown key"),
        ("[1]", "must be a mapping"),
        ("a: {", "not valid YAML"),
    ],
)
def test_each_mistake_has_a_message_with_file_and_key(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        rules(text)
    assert str(caught.value).startswith("shares.yaml: ")
    assert message in str(caught.value)
    assert caught.value.exit_code == 2


def test_no_file_is_no_rules_and_a_file_that_cannot_be_read_is_a_mistake(tmp_path: Path) -> None:
    assert read_rules(tmp_path / "absent.yaml") is None
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        read_rules(tmp_path)


def test_inside_an_engine_s_allocation_no_rules_hold() -> None:
    assert rules_file({}) == DEFAULT_FILE
    assert rules_file({"TUNER_SHARES": "/x.yaml"}) == Path("/x.yaml")
    assert rules_file({"TUNER_SHARES": "/x.yaml", "SLURM_JOB_ID": "7"}) is None
    assert rules_file({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}) is None


def test_a_user_has_the_own_entry_or_that_of_the_first_group_or_that_of_all_others() -> None:
    names = {
        1: ("ann", "1", "@vision"),
        2: ("bob", "2", "@speech", "@vision"),
        3: ("cat", "3"),
        4: ("ann", "4"),
        5: ("5",),
    }
    read = rules("guaranteed: {ann: 2, '@vision': 3, '@speech': 1, '5': 1}\nweights: {bob: 3}")
    found = census(read, frozenset(names), names.__getitem__)
    accounts = {uid: person.account for uid, person in found.people.items()}
    assert accounts == {1: "ann", 2: "@vision", 3: "*", 4: "ann", 5: "5"}
    assert [found.people[uid].weight for uid in names] == [1, 3, 1, 1, 1]
    assert found.guarantees["@vision"] == 3 * WHOLE


def test_the_check_says_what_cannot_be_kept_and_what_is_doubtful(tmp_path: Path) -> None:
    file = tmp_path / "shares.yaml"
    file.write_text("")
    file.chmod(0o666)
    read = rules("guaranteed: {nobody-here: 5, '*': 4, '@none': 1, '77': 0}")
    findings = list(check_rules(read, file, 8 * WHOLE))
    mistakes = [each.text for each in findings if each.is_mistake]
    doubts = [each.text for each in findings if not each.is_mistake]
    assert "guaranteed is 10 devices in all, but this machine has 8" in mistakes[0]
    assert "users other than its owner may write it" in mistakes[1]
    assert "no user nobody-here" in doubts[0]
    assert "no group none" in doubts[1]
    assert len(doubts) == 2
    file.chmod(0o644)
    assert list(check_rules(rules("guaranteed: {'*': 8}"), file, 8 * WHOLE)) == []


def test_the_hours_of_the_rules_are_checked_like_the_rest(tmp_path: Path) -> None:
    file = tmp_path / "shares.yaml"
    file.write_text("")
    os.chmod(file, 0o644)
    read = rules("quiet_hours: {09:00-18:00: {guaranteed: {'*': 9}}}")
    (finding,) = check_rules(read, file, 8 * WHOLE)
    assert finding.text.startswith("quiet_hours.09:00-18:00.guaranteed is 9 devices in all")


def test_the_rules_of_the_page_are_rules_and_its_table_has_every_key() -> None:
    page = (Path(__file__).parents[3] / "docs" / "shares.md").read_text()
    block = page.partition("```text\n")[2].partition("```")[0]
    assert rules(block).quiet_hours["09:00-18:00"].guaranteed == {"ann": 4, "@vision": 4}
    assert set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == set(ShareRules.yaml_keys())


def test_shares_of_a_gpu_that_is_not_there_are_a_mistake(tmp_path: Path) -> None:
    file = tmp_path / "shares.yaml"
    file.write_text("")
    file.chmod(0o644)
    read = rules('gpu_shares: {"0": 4, "3": 2}')
    (finding,) = check_rules(read, file, 8 * WHOLE, [a_gpu(0), a_gpu(1)])
    assert finding.is_mistake
    assert finding.text.startswith("gpu_shares.3: this machine has no such GPU. There are 0 (")
