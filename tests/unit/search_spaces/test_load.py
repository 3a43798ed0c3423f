"""Where a space is found: a mapping, a file, a ready-made name, a function."""

from __future__ import annotations

from pathlib import Path

import optuna
import pytest

from tuner.search_spaces import (
    DefineByRunSpace,
    SearchSpace,
    SpaceError,
    load_ready_made,
    load_space,
    ready_made,
)

ONE_INT = "n: {type: int, low: 0, high: 1}\n"


def test_mapping_is_read_in_place(tmp_path: Path) -> None:
    space = load_space({"n": {"type": "int", "low": 0, "high": 1}}, tmp_path)
    assert space.names == ("n",)


def test_path_begins_in_the_folder_of_the_study(tmp_path: Path) -> None:
    (tmp_path / "spaces").mkdir()
    (tmp_path / "spaces" / "mine.yaml").write_text(ONE_INT)
    assert load_space("spaces/mine.yaml", tmp_path).names == ("n",)


def test_own_file_wins_over_ready_made(tmp_path: Path) -> None:
    (tmp_path / "mlp.yaml").write_text(ONE_INT)
    assert load_space("mlp.yaml", tmp_path).names == ("n",)


@pytest.mark.parametrize("name", ["search_spaces/mlp.yaml", "mlp.yaml"])
def test_ready_made_is_found_by_name(name: str, tmp_path: Path) -> None:
    assert load_space(name, tmp_path) == load_ready_made("mlp")


def test_target_is_not_imported(tmp_path: Path) -> None:
    space = load_space("no_such_package.spaces:mine", tmp_path)
    assert space == DefineByRunSpace(module="no_such_package.spaces", function="mine")


@pytest.mark.parametrize("name", ["adamw", "mlp", "sgd"])
def test_ready_made_samples(name: str) -> None:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    space = load_ready_made(name)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    for _ in range(20):
        values = space.suggest(study.ask())
        assert {each.name for each in space.parameters if not each.when} <= values.keys()


def test_ready_made_names_are_the_files() -> None:
    assert ready_made() == ("adamw", "mlp", "sgd")
    assert all(isinstance(load_ready_made(name), SearchSpace) for name in ready_made())


@pytest.mark.parametrize(
    ("source", "message"),
    [
        pytest.param(
            "mpl.yaml",
            "is 'mpl.yaml', but there is no file {folder}/mpl.yaml. "
            "Did you mean the ready-made 'search_spaces/mlp.yaml'?",
            id="near",
        ),
        pytest.param(
            "deep/mlp.yaml",
            "is 'deep/mlp.yaml', but there is no file {folder}/deep/mlp.yaml. "
            "Ready-made spaces are adamw.yaml, mlp.yaml, sgd.yaml.",
            id="other-folder",
        ),
        pytest.param(
            "mlp",
            "is 'mlp', but must be a mapping of parameters, the path of a .yaml file, "
            "or module:function (for example spaces:my_space).",
            id="neither",
        ),
        pytest.param(
            3,
            "is 3, but must be a mapping of parameters, the path of a .yaml file, "
            "or module:function, such as search_space: "
            "{lr: {type: float, low: 1.0e-4, high: 0.1, log: true}}",
            id="number",
        ),
    ],
)
def test_missing_space_is_named(source: object, message: str, tmp_path: Path) -> None:
    with pytest.raises(SpaceError) as caught:
        load_space(source, tmp_path)
    assert str(caught.value) == message.replace("{folder}", str(tmp_path))


@pytest.mark.parametrize(
    ("text", "key", "problem"),
    [
        pytest.param("n: {type: int}", "n", "has no low and no high.", id="space"),
        pytest.param("- n", "", "must be a mapping of parameters", id="list"),
        pytest.param("n: [", "", "line 1, column 5: not valid YAML", id="yaml"),
    ],
)
def test_mistake_in_a_space_file_names_that_file(
    text: str, key: str, problem: str, tmp_path: Path
) -> None:
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(SpaceError) as caught:
        load_space("mine.yaml", tmp_path)
    assert (caught.value.file, caught.value.key) == ("mine.yaml", key)
    assert caught.value.problem.startswith(problem)
