"""No study file, however spoilt, is answered with a traceback: it is fine, or a message says why.

What is called is what `python -m tuner.run --dry-run` calls. The examples are drawn anew with each
version of the tests, but the same each time; FUZZ_EXAMPLES=5000 (`make nightly`) tries more.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from tests.unit.config.study_mutations import EVERY_KEY, SEEDS, spoilt
from tuner.compose.dry_run import DryRun
from tuner.config.study_file import load_study_file
from tuner.errors import EXIT_BAD_INPUT, TunerError

N_EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "300"))
FILE = Path("study.yaml")
#: A mistake is of a key, of a line, or of the file as a whole.
_PLACE = re.compile(
    r"(study|storage|objectives|trial|search_space|sampler|prior|transfer|pruner|devices"
    r"|max_gpus|priority|budget"
    r"|checkpoints|usage|track|widen|confirm|on_finish|on_best|on_failure|on_alert)\b"
    r"|unknown key |line \d+, column \d+: "
    r"|is not text in UTF-8|the file is empty|holds a |not valid YAML|is larger than "
    r"|No |GPU|This |There "
)
_LONGEST_LINE = 3000


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        # Optuna's and NumPy's, about values that are odd and allowed.
        warnings.simplefilter("ignore")
        yield tmp_path


def answer(content: bytes) -> str:
    """What is said about a study file; empty where it is fine."""
    FILE.write_bytes(content)
    try:
        would = DryRun.of(load_study_file(FILE, environ={}), {})
        (would.as_text() + would.as_json()).encode()
    except TunerError as error:
        said, code = str(error), error.exit_code
    else:
        return ""
    assert code == EXIT_BAD_INPUT
    return said


def check(message: str) -> None:
    message.encode()
    first, *_ = lines = message.splitlines()
    file, _, rest = first.partition(": ")
    assert file.endswith(".yaml"), message
    assert _PLACE.match(rest) or file != str(FILE), message
    assert "Traceback" not in message
    assert max(map(len, lines)) <= _LONGEST_LINE, message[:400]


@pytest.mark.slow
@pytest.mark.timeout(900)
@settings(
    max_examples=N_EXAMPLES,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(content=spoilt)
def test_spoilt_study_file_is_fine_or_gets_a_message(content: bytes) -> None:
    if message := answer(content):
        check(message)


@pytest.mark.parametrize("text", SEEDS)
def test_what_is_spoilt_was_right(text: str) -> None:
    """So that mutations reach the checks behind the first ones."""
    FILE.write_text(text)
    load_study_file(FILE, environ={})


def test_dry_run_of_what_is_spoilt_says_all_is_well() -> None:
    assert answer(EVERY_KEY.encode()) == ""
