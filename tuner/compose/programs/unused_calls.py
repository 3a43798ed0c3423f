"""Calls of Optuna in the program of a study file, which the study file overrules."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

from tuner.config import StudyConfig
from tuner.config.proposals.own_search import own_search
from tuner.config.rules import optuna_program_of
from tuner.errors import ConfigError
from tuner.frameworks.optuna_programs.scan import OPTIMIZE, FoundCall, find_calls

#: Arguments of `create_study` and `optimize`, and the keys of a study file that have their place.
_KEYS = {
    "study_name": "study",
    "storage": "storage",
    "sampler": "sampler",
    "pruner": "pruner",
    "direction": "objectives",
    "directions": "objectives",
    "n_trials": "budget.trials",
    "timeout": "budget.time",
    "n_jobs": "devices",
    "callbacks": "on_best, on_finish",
}


def unused_calls(config: StudyConfig) -> list[str]:
    """Calls of the program's own study that are not used, one sentence each."""
    module, scripts = _module_of(config), list(_scripts_of(config))
    lines = [_of_module(config, module, each) for each in _calls(module)] if module else []
    if lines:
        shown = _shown(config, module) if module else ""
        lines.append(f"To run the study of the program instead: python -m tuner.run {shown}")
    lines += [
        f"{script} line {call.line}: {call.text} runs a study of its own in each trial. To tune "
        f"with the tuner instead: python -m tuner.run {script}"
        for script in scripts
        for call in _calls(config.folder / script)
        if call.name == OPTIMIZE
    ]
    found = ((script, _search_in(config.folder / script)) for script in scripts)
    return lines + [f"{script} {search}" for script, search in found if search]


def _search_in(script: Path) -> str:
    try:
        return own_search(ast.parse(script.read_bytes()))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return ""


def refuse_optimize_at_import(config: StudyConfig) -> None:
    """Refuses modules that call `optimize` when imported.

    Raises:
        ConfigError: If an import of the training function's module would run a study.
    """
    module = _module_of(config)
    if module is None:
        return
    for call in _calls(module):
        if call.name == OPTIMIZE and call.is_run_by_import:
            raise ConfigError(
                f"is {config.trial.function!r}, but {module.name} calls {call.text} in line "
                f"{call.line} when it is imported. Move the call below `if __name__ == "
                '"__main__":`, or run the study of the program: '
                f"python -m tuner.run {_shown(config, module)}",
                file=config.file,
                key="trial.function",
            )


def _of_module(config: StudyConfig, module: Path, call: FoundCall) -> str:
    keys = [f"{name} is {_KEYS[name]}" for name in call.arguments if name in _KEYS]
    instead = f" (in the study file, {', '.join(keys)})" if keys else ""
    return (
        f"{_shown(config, module)} line {call.line}: {call.text} is not used, because "
        f"{config.file} describes the study{instead}."
    )


def _calls(path: Path) -> Sequence[FoundCall]:
    found = find_calls(path)
    return found if any(each.name == OPTIMIZE for each in found) else ()


def _shown(config: StudyConfig, module: Path) -> str:
    return str(module.relative_to(config.folder))


def _module_of(config: StudyConfig) -> Path | None:
    """The file of the training function, if it is the user's own."""
    function = config.trial.function
    if function is None or optuna_program_of(function) is not None:
        return None
    path = config.folder.joinpath(*function.partition(":")[0].split("."))
    files = (path.with_name(f"{path.name}.py"), path / "__init__.py")
    return next((each for each in files if each.is_file()), None)


def _scripts_of(config: StudyConfig) -> Iterator[str]:
    """Python files that the command names, relative to the study file."""
    for word in config.trial.command or ():
        if word.endswith(".py") and (config.folder / word).is_file():
            yield word
