"""What each command refuses, in one process: `test_verbs.py` types them in a shell."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.integration.stored_studies.seeded import SPACE, a_trial, add_study
from tuner.cli.main import app
from tuner.errors import EXIT_BAD_INPUT

STUDY = "study: small\ntrial: {function: 'm:f'}\nsearch_space: {x: {type: int, low: 0, high: 9}}\n"
READERS = {
    "studies": ["studies", "SOURCE"],
    "status": ["status", "SOURCE"],
    "trials": ["trials", "SOURCE"],
    "export": ["export", "SOURCE", "-o", "x.db"],
    "import": ["import", "SOURCE", "sqlite:///target.db"],
    "copy": ["copy", "SOURCE", "--to", "x"],
    "delete": ["delete", "SOURCE", "--yes"],
}
NAMING = [verb for verb in READERS if verb != "studies"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def type_in(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


def refusal(verb: str, source: str, *words: str) -> str:
    command = [source if word == "SOURCE" else word for word in READERS[verb]]
    result = type_in(*command, *words)
    assert (result.exit_code, result.stdout) == (EXIT_BAD_INPUT, ""), result.output
    assert "accident" not in result.stderr
    return result.stderr


@pytest.mark.parametrize("verb", READERS)
def test_file_that_is_not_there_is_named(verb: str) -> None:
    assert "study.yaml: there is no such file" in refusal(verb, "study.yaml")


@pytest.mark.parametrize("verb", READERS)
def test_database_that_is_not_there_is_not_made(verb: str, folder: Path) -> None:
    (folder / "study.yaml").write_text(STUDY)
    for source in ("study.yaml", "sqlite:///small.db"):
        words = ["--study", "a"] if verb == "delete" else []
        assert "There is no database at sqlite:///" in refusal(verb, source, *words)
    assert [path.name for path in folder.iterdir()] == ["study.yaml"]


@pytest.mark.parametrize("verb", NAMING)
def test_nearest_study_is_suggested(verb: str, folder: Path) -> None:
    add_study(f"sqlite:///{folder}/all.db", "digits", [a_trial({}, 0.5)])
    for source in ("all.db", "sqlite:///all.db"):
        text = refusal(verb, source, "--study", "digit")
        assert "has no study 'digit'. Did you mean 'digits'?" in text


@pytest.mark.parametrize("verb", NAMING)
def test_empty_database_is_told(verb: str, folder: Path) -> None:
    add_study(f"sqlite:///{folder}/all.db", "digits", [])
    assert type_in("delete", "all.db", "--study", "digits", "--yes").exit_code == 0
    assert "has no study 'digits'; it holds none" in refusal(verb, "all.db", "--study", "digits")


@pytest.mark.parametrize("verb", READERS)
def test_password_is_never_shown(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DB_PASSWORD", "s3cret")
    words = ["--study", "a"] if verb == "delete" else []
    for password in ("s3cret", "${DB_PASSWORD}"):
        url = f"postgresql://me:{password}@127.0.0.1:1/x"
        for flags in ([], ["--debug"]):
            text = refusal(verb, url, *words, *flags)
            assert "The database server did not answer" in text
            assert "s3cret" not in text


def test_variable_that_is_not_set_is_named() -> None:
    text = refusal("trials", "postgresql://me:${NO_SUCH_VARIABLE}@127.0.0.1/x")
    assert text.startswith("The database URL needs ${NO_SUCH_VARIABLE}, but the environment")


def test_study_of_a_file_without_storage_is_looked_for_in_its_own_database(folder: Path) -> None:
    (folder / "study.yaml").write_text(STUDY)
    add_study(f"sqlite:///{folder}/small.db", "twin", [a_trial({}, 0.5)])
    assert type_in("trials", "study.yaml", "--study", "twin").exit_code == 0
    assert "Did you mean 'twin'?" in refusal("trials", "study.yaml", "--study", "twi")


def test_import_goes_where_the_files_start_looks(folder: Path) -> None:
    (folder / "study.yaml").write_text(STUDY)
    add_study(f"sqlite:///{folder}/kept.db", "kept", [a_trial({}, 0.5)])
    result = type_in("import", "kept.db", "study.yaml", "--as", "again")
    assert result.stdout == f"Study 'again' with 1 trial is in sqlite:///{folder}/again.db now.\n"


def test_copy_of_a_database_keeps_its_space(folder: Path) -> None:
    add_study(f"sqlite:///{folder}/all.db", "first", [a_trial({"lr": 0.01}, 0.5)], space=SPACE)
    result = type_in("copy", "all.db", "--to", "second")
    assert result.stdout == "1 trial of study 'first' copied to the new study 'second' in all.db.\n"
    assert "second" in type_in("studies", "all.db").stdout


def test_files_are_deleted_by_study_file_only(folder: Path) -> None:
    add_study(f"sqlite:///{folder}/all.db", "first", [])
    assert "--files needs the study file" in refusal(
        "delete", "all.db", "--study", "first", "--files"
    )


@pytest.mark.parametrize(
    "command",
    [
        ["studies", "all.db"],
        ["status", "all.db"],
        ["trials", "all.db"],
        ["best", "all.db"],
        ["export", "--force", "-o", "x.csv", "all.db"],
        ["why", "all.db", "0"],
        ["logs", "all.db", "0"],
        ["db", "status", "all.db"],
    ],
    ids=lambda command: " ".join(command[:-1]),
)
def test_two_dashes_may_stand_before_the_words_of_a_command(
    command: list[str], folder: Path
) -> None:
    add_study(f"sqlite:///{folder}/all.db", "first", [a_trial({"lr": 0.01}, 0.5)], space=SPACE)
    place = command.index("all.db")
    plain, dashed = type_in(*command), type_in(*command[:place], "--", *command[place:])
    assert (dashed.exit_code, dashed.stderr) == (plain.exit_code, plain.stderr)
    assert without_times(dashed.stdout) == without_times(plain.stdout)
    assert plain.stdout or "log" in plain.stderr, plain.output


def without_times(text: str) -> str:
    return re.sub(r"\d+ (s|ms|seconds?) ago", "", text)


@pytest.mark.parametrize("words", [["all.db", "0"], ["0", "all.db"], ["--", "all.db", "0"]])
def test_trial_may_stand_on_either_side_of_its_study(words: list[str], folder: Path) -> None:
    add_study(f"sqlite:///{folder}/all.db", "first", [a_trial({"lr": 0.01}, 0.5)], space=SPACE)
    assert type_in("why", *words).stdout.startswith("Trial 0")
    assert "Trial 1 of study 'first' waits" in type_in("retry", *words).stdout
