"""Reads the options of a Python script without running it: its calls of `add_argument`, or others.

A program of Hydra has its options in a YAML file, which the script names.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tuner.config.proposals.other_options import other_options
from tuner.config.proposals.printed_lines import PrintedResult, result_of
from tuner.config.proposals.program_text import (
    assigned_constants,
    constants_of,
    endless_loop,
    imported_files,
)
from tuner.config.proposals.proposal import Proposal, literal, place, study_name, sweep_env
from tuner.config.proposals.ranges import Option, most_usual, propose_range
from tuner.config.proposals.subcommands import (
    Subcommands,
    function_subcommands,
    of_functions,
    subcommands_of,
)
from tuner.config.proposals.sweeps.wandb_config import wandb_defaults
from tuner.errors import ConfigError

_OUTPUT_FOLDER = re.compile(
    r"(out(put)?s?|work(ing)?|save|logs?|results?|checkpoints?|ckpts?|runs?)_?(dir|folder)"
)
_OTHER_SOURCES = (
    "If it reads options in a way of its own, write an empty study file (tuner init) and its "
    "command: [python, train.py, '--lr={lr}']. Also read are a W&B sweep and the YAML file of a "
    "configuration"
)
_OUTPUT_FILE = re.compile(r"save|out(put)?(_|$)|checkpoint|ckpt")
#: Constants that a note has.
_MOST_NAMED = 4
_FOLDER_OF_TRIAL = "checkpoint_dir"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Argument:
    """One call of `add_argument`."""

    #: `--learning-rate`, or the name of a positional argument.
    flag: str
    option: Option
    is_required: bool
    is_switch: bool
    #: The subcommand of `argparse` that takes it; empty for all of them.
    subcommand: str = ""
    #: Its other names, such as `-b`.
    aliases: tuple[str, ...] = ()

    def is_given(self, names: Collection[str]) -> bool:
        """Whether one of its names is among these."""
        return not {self.flag, *self.aliases}.isdisjoint(names)


def omegaconf_file(tree: ast.Module, script: Path) -> Path | None:
    """The file of a script with `OmegaConf.load("config.yaml")` and `OmegaConf.from_cli()`."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    if not any(ast.unparse(call.func).endswith("OmegaConf.from_cli") for call in calls):
        return None
    for call in calls:
        if ast.unparse(call.func).endswith("OmegaConf.load") and call.args:
            name = _literal(call.args[0])
            return script.parent / name if isinstance(name, str) else None
    return None


def hydra_config(tree: ast.Module, script: Path) -> Path | None:
    """The configuration that a script of Hydra names in its decorator; None for other scripts."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("hydra.main"):
            given = {word.arg: _literal(word.value) for word in node.keywords}
            name, folder = given.get("config_name"), given.get("config_path")
            if isinstance(name, str):
                path = script.parent / (folder if isinstance(folder, str) else ".") / name
                return path if path.suffix in (".yaml", ".yml") else Path(f"{path}.yaml")
    return None


def propose_from_script(
    tree: ast.Module, script: Path, program: str, given: frozenset[str] = frozenset()
) -> Proposal:
    """Proposes a study of a script with `argparse`.

    Args:
        tree: The script, which is not run.
        script: Its file as the user named it.
        program: The same from the study file's folder.
        given: Names of options that its command line sets.

    Raises:
        ConfigError: If it has no options.
    """
    subcommands = subcommands_of(tree)
    found = list(_arguments(tree, subcommands))
    if not found:
        functions = function_subcommands(tree)
        subcommands = of_functions(functions)
        found = [
            replace(_argument(each.flags, each.keywords), subcommand=subcommand)
            for each in other_options(tree)
            if (subcommand := functions.get(each.function, "")) in ("", subcommands.started)
        ]
    arguments = list({each.flag: each for each in found}.values())
    origin = ""
    if not arguments:
        origin, arguments = _imported_arguments(tree, script.parent)
    if not arguments and (proposal := _of_wandb(tree, script, program)):
        return proposal
    if not arguments:
        raise ConfigError(_without_options(tree), file=str(script))
    ranges = {each.option.name: propose_range(each.option) for each in arguments}
    tuned = [each for each in arguments if ranges[each.option.name] and not each.is_switch]
    usual = most_usual(each.option.name for each in tuned)
    searched = [each for each in tuned if each.option.name in usual]
    outputs = {each.flag: path for each in arguments if (path := _output_path(each))}
    result = result_of(tree)
    words = _words(arguments, searched, outputs, subcommands.started)
    words += [literal(word) for word in (result.words if result else ())]
    return Proposal(
        study=study_name(script.stem),
        source=str(script),
        command=("python", literal(program), *words),
        space={each.option.name: ranges[each.option.name] for each in searched},
        objectives={result.name: result.direction} if result else {"value": "minimize"},
        pattern=result.pattern if result else "",
        notes=(
            _note_on_result(result, script),
            *([f"The options are those of {origin}."] if origin else []),
            *_note_on_subcommands(subcommands),
            *_notes(arguments, searched, {*outputs, *_options_of(given, arguments)}, outputs),
            *_notes_on_text(tree, {each.option.name for each in arguments}, result),
        ),
    )


def _imported_arguments(tree: ast.Module, folder: Path) -> tuple[str, list[_Argument]]:
    """The options of a parser in a file that the script imports, and the name of this file."""
    for path in imported_files(tree, folder):
        try:
            other = ast.parse(path.read_text(encoding="utf-8"))
        except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        if found := {each.flag: each for each in _arguments(other, subcommands_of(other))}:
            return path.name, list(found.values())
    return "", []


def _of_wandb(tree: ast.Module, script: Path, program: str) -> Proposal | None:
    """A program without options whose parameters are in `wandb.config`."""
    options = wandb_defaults(tree)
    ranges = {each.name: found for each in options if (found := propose_range(each))}
    if not ranges:
        return None
    space = {name: ranges[name] for name in most_usual(ranges)}
    rest = ", ".join(f"{each.name} ({each.default})" for each in options if each.name not in space)
    result = result_of(tree)
    return Proposal(
        study=study_name(script.stem),
        source=str(script),
        command=("python", literal(program)),
        space=space,
        objectives={result.name: result.direction} if result else {"value": "minimize"},
        pattern=result.pattern if result else "",
        env=sweep_env(),
        notes=(
            _note_on_result(result, script),
            "Parameters are set in wandb.config, as W&B's agent does. The ranges are guesses "
            "around the values of wandb.init(config=...).",
            *([f"Not searched, so that the program's values hold: {rest}."] if rest else ()),
        ),
    )


def _words(
    arguments: list[_Argument],
    searched: list[_Argument],
    outputs: Mapping[str, str],
    subcommand: str,
) -> list[str]:
    """Options, with the subcommand before those that belong to it."""
    given = {each.flag: f"{literal(each.flag)}={place(each.option.name)}" for each in searched}
    given |= {flag: f"{literal(flag)}={path}" for flag, path in outputs.items()}
    later = {each.flag for each in arguments if each.subcommand}
    return [
        *(word for flag, word in given.items() if flag not in later),
        *([literal(subcommand)] if subcommand else []),
        *(word for flag, word in given.items() if flag in later),
    ]


def _note_on_subcommands(subcommands: Subcommands) -> Iterator[str]:
    if len(subcommands.names) > 1:
        yield (
            f"The command starts the subcommand {subcommands.started} of "
            f"{', '.join(subcommands.names)}. Check that it is the one that trains."
        )


def _note_on_result(result: PrintedResult | None, script: Path) -> str:
    if result is None:
        return (
            f"No line with print in {script} looks like the result. If the program prints it, set "
            "trial.metrics.pattern, such as 'accuracy {accuracy}', and name it in objectives. "
            'Otherwise let it print a line of JSON, such as {"step": 3, "value": 0.71}.'
        )
    place = f"line {result.line} of {script}" if result.line else "the lines of Trainer"
    return (
        f"trial.metrics.pattern reads {place}. Check that it is the number to {result.direction}."
    )


def _without_options(tree: ast.Module) -> str:
    """Constants cannot be set from outside; `tuner.current` makes them parameters."""
    constants = {
        name: (line, value)
        for name, line, value in (*constants_of(tree), *assigned_constants(tree))
        if name.isidentifier() and propose_range(Option(name=name, default=value))
    }
    assigned = {name for name, _, _ in assigned_constants(tree)}
    problem = "has no option of argparse, click, typer, fire, absl or of a parsed dataclass"
    if not constants:
        return f"{problem}. {_OTHER_SOURCES}"
    name, (line, value) = next(iter(constants.items()))
    text = f"{name} = " if name in assigned else ""
    defaults = "{" + ", ".join(f'"{key}": {default!r}' for key, (_, default) in constants.items())
    return (
        f"{problem}, so that the tuner cannot set its constants, such as {name} in line {line}. "
        f"Write at its top: import tuner; trial = tuner.current(defaults={defaults}}}), and "
        f"{text}trial.params.{name} in place of {text}{value!r}. Then write a study file "
        "with them in search_space: tuner init"
    )


def _arguments(tree: ast.Module, subcommands: Subcommands) -> Iterator[_Argument]:
    for node in ast.walk(tree):
        is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        if is_call and node.func.attr == "add_argument":  # type: ignore[attr-defined]
            assert isinstance(node, ast.Call)
            names = [name for name in map(_literal, node.args) if isinstance(name, str)]
            subcommand = subcommands.of(node)
            if names and subcommand in ("", subcommands.started):
                given = {word.arg: word.value for word in node.keywords if word.arg}
                yield replace(_argument(names, given), subcommand=subcommand)


def _argument(names: list[str], given: Mapping[str, ast.expr]) -> _Argument:
    flag = next((name for name in names if name.startswith("--")), names[0])
    dest = _literal(given["dest"]) if "dest" in given else None
    name = dest if isinstance(dest, str) else flag.lstrip("-").replace("-", "_")
    default = _literal(given["default"]) if "default" in given else None
    kind = ast.unparse(given["type"]) if "type" in given else ""
    if kind == "float" and isinstance(default, int) and not isinstance(default, bool):
        default = float(default)
    choices = _literal(given["choices"]) if "choices" in given else None
    action = _literal(given["action"]) if "action" in given else ""
    if "action" in given and not isinstance(action, str):
        action = ast.unparse(given["action"])
    return _Argument(
        flag=flag,
        option=Option(
            name=name,
            default=default,
            choices=tuple(choices) if isinstance(choices, list | tuple) else (),
        ),
        is_required=_is_required(flag, given),
        aliases=tuple(names),
        is_switch=(bool(action) and action != "store") or isinstance(default, bool),
    )


def _options_of(given: frozenset[str], arguments: list[_Argument]) -> set[str]:
    """Names of options that a command line sets; words without a name are positional ones."""
    positional = [each.flag for each in arguments if not each.flag.startswith("-")]
    words = [name for name in given if not name.startswith("-")]
    return {*given, *positional[: len(words)]}


def _is_required(flag: str, given: Mapping[str, ast.expr]) -> bool:
    if flag.startswith("-"):
        return _literal(given.get("required")) is True
    return _literal(given.get("nargs")) not in ("?", "*")


def _literal(node: ast.expr | None) -> object:
    try:
        return None if node is None else ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


def _output_path(argument: _Argument) -> str:
    """The value of an output path option: a path per trial."""
    option = argument.option
    name, default = option.name.lower(), option.default
    is_text = default is None or isinstance(default, str)
    if not is_text or argument.is_switch or not argument.flag.startswith("-"):
        return ""
    if _OUTPUT_FOLDER.fullmatch(name):
        return place(_FOLDER_OF_TRIAL)
    if _OUTPUT_FILE.search(name) and default and (suffix := Path(str(default)).suffix):
        stem = literal(Path(str(default)).stem)
        return f"{place(_FOLDER_OF_TRIAL)}/{stem}{literal(suffix)}"
    return ""


def _notes(
    arguments: list[_Argument],
    searched: list[_Argument],
    given: Collection[str],
    outputs: Mapping[str, str],
) -> Iterator[str]:
    if searched:
        yield "The ranges are guesses around the defaults."
    else:
        yield "No option looks like a parameter to tune: add search_space, and places for it."
    if outputs:
        flags = ", ".join(outputs)
        yield f"{flags}: a path of its own for each trial, so that trials do not overwrite files."
    rest = [each for each in arguments if each not in searched and not each.is_given(given)]
    for each in rest:
        if each.is_required:
            yield f"{each.flag} is required: add it to trial.command."
    others = [each for each in rest if not each.is_required]
    if others:
        named = ", ".join(_named(each) for each in others)
        yield f"Not searched, so that the program's defaults hold: {named}."


def _notes_on_text(
    tree: ast.Module, options: set[str], result: PrintedResult | None
) -> Iterator[str]:
    constants = {
        name: (line, value)
        for name, line, value in constants_of(tree)
        if name not in (*options, "dim") and propose_range(Option(name=name, default=value))
    }
    usual = most_usual(constants)[:_MOST_NAMED]
    if usual:
        named = ", ".join(
            f"{name} (line {constants[name][0]}: {constants[name][1]})" for name in usual
        )
        name, (_, value) = usual[0], constants[usual[0]]
        kind = type(value).__name__
        yield (
            f"Constants that could be options: {named}. To search one, write "
            f"parser.add_argument('--{name.replace('_', '-')}', type={kind}, default={value})."
        )
    if result and (line := endless_loop(tree, result.line)):
        yield (
            f"The loop in line {line} has no last step. If the program does not end by itself, set "
            "trial.max_steps, or trial.timeout and on_timeout: complete."
        )


def _named(argument: _Argument) -> str:
    default = argument.option.default
    has_default = default is not None and not argument.is_switch
    return f"{argument.flag} ({default})" if has_default else argument.flag
