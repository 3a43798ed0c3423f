"""The best configurations as text."""

from __future__ import annotations

import pytest
import yaml

from tuner.queries.results.best import BestConfiguration
from tuner.queries.results.format_names import Format
from tuner.queries.results.formats import render


@pytest.mark.parametrize(
    "command",
    [
        f"python train.py --lr=0.01 --name={'long' * 40} --layers=3",
        """python -c 'import tuner, train; print(train.main(tuner.current({"lr": 0.1})))'""",
        """python train.py --name='a: b' # "c" """.strip(),
    ],
)
def test_a_command_is_a_line_of_the_yaml_that_can_be_pasted(command: str) -> None:
    found = BestConfiguration(
        study="s",
        trial_number=1,
        params={"lr": 0.1, "name": "it's"},
        values={"loss": 0.2},
        seed=3,
        git_commit=None,
        git_is_dirty=None,
        command=command,
    )
    text = render([found], Format.YAML)
    assert yaml.safe_load(text)[0]["command"] == command
    lines = [line.strip().removeprefix("command: ") for line in text.splitlines()]
    assert command in lines
