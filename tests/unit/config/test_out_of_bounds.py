"""Values that are of the right kind, and that no part of the machine can take."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.config.machine_checks import check_command_exists
from tuner.config.study_file import load_study_file
from tuner.errors import ConfigError
from tuner.search_spaces.strict_yaml import MAX_BYTES

SMALL = "study: digits\ntrial: {function: m:train}\n"
INT = "search_space: {n: {type: int, "
FLOAT = "search_space: {x: {type: float, "


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (SMALL + FLOAT + "low: -1e308, high: 1e308}}", "search_space.x has low -1e+308 and high"),
        (SMALL + FLOAT + "low: 0, high: 1, step: 5e-324}}", "search_space.x.step is 5e-324, too"),
        (SMALL + INT + "low: 0, high: 1e300}}", "search_space.n.high is 1e+300, but must be at"),
        (SMALL + "storage: sqlite+a+b:///x", "storage is 'sqlite+a+b:///x', but"),
        (SMALL + f"storage: sqlite:///{'x' * 300}.db", ", which cannot be a file: File name too"),
        (SMALL + f"search_space: {'x' * 300}.yaml", "search_space is '"),
        (SMALL + "storage: sqlite://u@h/x", "is 'sqlite://u@h/x', which names a host, and SQLite"),
        (SMALL + "storage: sqlite://study.db", "Write three slashes: sqlite:///study.db."),
        (SMALL + "devices: cpu:99999", "devices is 'cpu:99999', but cpu: needs a whole number"),
        (SMALL + f"budget: {{time: '1d{' ' * 9000}x'}}", "budget.time is '1d   "),
        (f"study: {'é' * 150}\ntrial: {{function: m:f}}", "at most 200 bytes in UTF-8: it names"),
        (
            SMALL.replace(
                "function: m:train", "command: [x], metrics: {pattern: 'a{99999999999}'}"
            ),
            "trial.metrics.pattern is 'a{99999999999}', which is no regular expression: the",
        ),
    ],
)
def test_value_that_is_out_of_bounds_gets_a_message(message, text: str, sentence: str) -> None:
    assert sentence in message(text)
    assert len(message(text)) < 3000


@pytest.mark.parametrize("name", ["~", "~nobody-here", "a?b=c", "${x}", "50%"])
def test_name_of_a_study_is_no_part_of_a_url_or_a_path(load, folder: Path, name: str) -> None:
    config = load(f"study: '{name}'\ntrial: {{function: m:train}}")
    path = Path(config.storage.removeprefix("sqlite:///"))
    assert path.parent == folder.resolve()
    assert path.suffix == ".db"


@pytest.mark.parametrize("program", ["~nobody-here/x", "/" + "x" * 300, "x" * 300])
def test_program_that_cannot_be_there_is_refused(load, program: str) -> None:
    with pytest.raises(ConfigError, match=r"trial.command\[0\] is"):
        check_command_exists(load(f"study: a\ntrial: {{command: ['{program}']}}"))


def test_file_of_another_user_that_is_not_there_is_refused(message) -> None:
    said = message(SMALL + "storage: postgresql://u:${file:~nobody-here/x}@h/d")
    assert "cannot be read: No such file or directory" in said


def test_large_file_is_refused_before_it_is_read(message, tmp_path: Path) -> None:
    assert "is larger than 1,000,000 bytes" in message("#" * (MAX_BYTES + 1))
    with pytest.raises(ConfigError, match="is larger than"):
        load_study_file(Path("/dev/zero"), environ={})


@pytest.mark.slow
def test_many_choices_and_devices_are_read_at_once(load) -> None:
    many = ", ".join(map(str, range(5_000)))
    space = f"search_space: {{n: {{type: categorical, choices: [{many}]}}}}\n"
    assert len(load(SMALL + space + f"devices: [{many}]").devices.names) == 5_000
