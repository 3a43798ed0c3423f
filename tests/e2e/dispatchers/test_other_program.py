"""Two study files of one name and one database, with different programs."""

from __future__ import annotations

import yaml

from tests.e2e.study_folder import StudyFolder
from tuner.errors import EXIT_BAD_INPUT, EXIT_BUDGET_REACHED

NOTE = "Note: the last start of this study, in "


def test_the_second_program_is_told_of_the_first(study_folder: StudyFolder) -> None:
    study_folder.study(budget={"trials": 1})
    assert NOTE not in study_folder.tune().out
    assert NOTE not in study_folder.tune("--trials", "2").out
    study_folder.write("other.py", "def train(trial):\n    return trial.params['x']\n")
    study_folder.study(trial={"function": "other:train"}, budget={"trials": 3})
    ended = study_folder.tune()
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    assert f"{NOTE}{study_folder.path} on " in ended.out
    assert "ran forecast:train; this one, in " in ended.out
    assert "runs other:train" in ended.out


def test_arguments_after_dashes_are_the_programs_and_are_kept(study_folder: StudyFolder) -> None:
    """The program gets them, the start records them, `status` and `logs` show them."""
    script = 'echo "word $3 $4"; echo \'{{"value": {x}}}\''
    study_folder.study(trial={"command": ["sh", "-c", script, "train", "--x={x}"]})
    first = study_folder.tune("--trials", "1", "--", "--data", "/mnt/a", "--", "--trials", "9")
    assert first.code == EXIT_BUDGET_REACHED, first.text
    ((text,),) = study_folder.rows("select study_file from tuner_dispatchers")
    command = yaml.safe_load(text)["trial"]["command"]
    assert command[-5:] == ["--data", "/mnt/a", "--", "--trials", "9"]
    assert "--data /mnt/a -- --trials 9\n" in study_folder.tuner("status").out
    assert "word /mnt/a --" in study_folder.tuner("logs", "0").out

    again = study_folder.tune("--trials", "2", "--", "--data", "/mnt/a", "--", "--trials", "9")
    assert NOTE not in again.out
    other = study_folder.tune("--trials", "3", "--", "--data", "/mnt/b")
    assert NOTE in other.out
    assert "--data /mnt/a" in other.out
    assert "--data /mnt/b. If these are" in other.out


def test_arguments_without_dashes_are_refused_with_the_line_to_type(
    study_folder: StudyFolder,
) -> None:
    study_folder.study(trial={"command": ["true"]})
    refused = study_folder.tune("extra")
    assert refused.code == EXIT_BAD_INPUT
    plain = " ".join(refused.err.replace("│", " ").split())
    assert "arguments for its program come after --" in plain
