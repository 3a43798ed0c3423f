"""Values of `trial.env` reach the trials and nothing that others read."""

from __future__ import annotations

from tests.e2e.study_folder import StudyFolder
from tuner.errors import EXIT_BUDGET_REACHED

SECRET = "hf_0123456789"
TRAIN = """
import os

def train(trial):
    return float(len(os.environ["HF_TOKEN"]))
"""


def test_environment_is_nowhere_in_what_is_stored_and_exported(study_folder: StudyFolder) -> None:
    study_folder.write("forecast.py", TRAIN)
    trial = {"function": "forecast:train", "env": {"HF_TOKEN": SECRET}}
    study_folder.study(trial=trial, budget={"trials": 2})
    assert study_folder.tune().code == EXIT_BUDGET_REACHED
    ended = study_folder.tune("--trials", "4")  # The same file again continues.
    assert (ended.code, ended.err) == (EXIT_BUDGET_REACHED, "")
    assert study_folder.rows("select value from trial_values") == [(len(SECRET),)] * 4
    texts = [text for (text,) in study_folder.rows("select study_file from tuner_dispatchers")]
    assert len(texts) == 2
    assert all("HF_TOKEN: '***'" in text or 'HF_TOKEN: "***"' in text for text in texts)
    # As an older tuner has left it.
    study_folder.execute(
        "update tuner_dispatchers set study_file = ?", texts[0].replace("***", SECRET)
    )
    assert study_folder.tuner("export", "study.yaml", "-o", "exported.db").code == 0
    (study_folder.path / "small.db").unlink()
    (study_folder.path / "exported.db").rename(study_folder.path / "small.db")
    report = study_folder.tuner("report", "study.yaml", "-o", "report.html")
    assert report.code == 0
    for path in study_folder.path.rglob("*"):
        if path.is_file() and path.name != "study.yaml":
            assert SECRET.encode() not in path.read_bytes(), path
