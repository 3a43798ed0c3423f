"""Detects programs that run a search of another library, whose trials the tuner would not see."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from tuner.config.proposals.sweeps.ray_space import ray_space
from tuner.search_spaces.flow import flow


@dataclass(frozen=True, slots=True, kw_only=True)
class _Library:
    """A library for tuning.

    Args:
        name: Its usual name.
        module: Prefix of the imported module.
        calls: Last parts of the names of calls that start a search.
        advice: What to change, as text that follows a sentence.
        is_a_step: Whether a program with options may use it within a trial.
    """

    name: str
    module: str
    calls: frozenset[str]
    advice: str
    is_a_step: bool = False


_OBJECTIVE = (
    "Write def objective(trial) that trains with trial.suggest_float(...) and returns the value, "
    "and name it in a study file: trial: {function: train:objective}"
)
_LIBRARIES = (
    _Library(
        name="Ray Tune",
        module="ray",
        calls=frozenset({"Tuner", "run", "run_experiments"}),
        advice="Let its function take the trial: config = trial.params, and "
        "trial.report(value, step) in place of tune.report(...), session.report(...) or "
        "train.report(...). Of a Trainable, call setup and step in such a function. Name it in a "
        "study file: trial: {function: train:NAME}",
    ),
    _Library(
        name="W&B",
        module="wandb",
        calls=frozenset({"agent"}),
        advice="Write the sweep into a file, sweep.yaml; let the program call its function once "
        "and print the result; then: tuner init --from sweep.yaml",
    ),
    _Library(
        name="Hyperopt",
        module="hyperopt",
        calls=frozenset({"fmin"}),
        advice=_OBJECTIVE,
    ),
    _Library(
        name="Keras Tuner",
        module="keras_tuner",
        calls=frozenset({"RandomSearch", "BayesianOptimization", "Hyperband", "GridSearch"}),
        advice=_OBJECTIVE,
    ),
    _Library(
        name="scikit-learn",
        module="sklearn",
        calls=frozenset(
            {"GridSearchCV", "RandomizedSearchCV", "HalvingGridSearchCV", "HalvingRandomSearchCV"}
        ),
        is_a_step=True,
        advice=_OBJECTIVE + ". The value is cross_val_score(model, X, y).mean()",
    ),
)


def own_search(tree: ast.Module) -> str:
    """The call that starts a search of another library, and what to change.

    Args:
        tree: The program, which is not run.

    Returns:
        Sentences to follow the name of the file; empty if there is no such call.
    """
    modules = set(_imported(tree))
    has_options = any(
        isinstance(node, ast.Attribute) and node.attr == "add_argument" for node in ast.walk(tree)
    )
    used = [
        each
        for each in _LIBRARIES
        if each.module in modules and not (each.is_a_step and has_options)
    ]
    for node in ast.walk(tree):
        name = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
        for library in used:
            if name.rpartition(".")[2] in library.calls and _is_meant(name, tree, library):
                line = getattr(node, "lineno", 0)
                space = ray_space(tree) if library.module == "ray" else {}
                return (
                    f"line {line}: {name} starts a search of {library.name}, whose trials the "
                    f"tuner would not see. {library.advice}"
                    + (f", and its space: search_space: {flow(space)}" if space else "")
                )
    return ""


def _imported(tree: ast.Module) -> list[str]:
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [each.name.partition(".")[0] for each in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.append(node.module.partition(".")[0])
    return names


def _is_meant(name: str, tree: ast.Module, library: _Library) -> bool:
    """Whether a call is meant: `run` is a common name, for Ray it is `tune.run` or imported."""
    if name.rpartition(".")[2] != "run" or name.endswith("tune.run"):
        return True
    imported = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom))
    return name == "run" and any(
        (node.module or "").partition(".")[0] == library.module
        and any(each.name == name for each in node.names)
        for node in imported
    )
