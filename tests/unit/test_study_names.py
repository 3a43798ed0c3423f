"""Names that a user of Optuna writes for a study of `tuner.tune`."""

from __future__ import annotations

import copy

import pytest

from tuner.api.study import Study


@pytest.mark.parametrize(
    ("name", "wanted"),
    [("best_params", "best.params"), ("best_value", "best.value"), ("trials_dataframe", "trials")],
)
def test_names_of_optuna_are_answered_with_those_of_the_tuner(name: str, wanted: str) -> None:
    study = Study.__new__(Study)
    with pytest.raises(AttributeError, match=rf"no attribute '{name}'\. Write study\.{wanted}\."):
        getattr(study, name)


def test_other_names_have_no_advice() -> None:
    study = Study.__new__(Study)
    assert not hasattr(study, "nothing")
    assert type(copy.copy(study)) is Study
