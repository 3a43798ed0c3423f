"""The rules of single keys of study.yaml, and of keys that depend on each other.

Every text raised here is read after the key that it is about.
"""

from __future__ import annotations

import difflib
import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tuner.config.mistakes import Mistake, Refusal, refuse
from tuner.config.notation.command_template import BUILTINS, TemplateError, places
from tuner.config.notation.metric_pattern import expand
from tuner.config.shell_notation import shell_mistakes
from tuner.search_spaces import AnySpace, DefineByRunSpace, SearchSpace
from tuner.search_spaces.space import is_number
from tuner.search_spaces.values import format_value

#: After the path of a program: the function that it passes to `study.optimize`.
OPTIMIZE_SUFFIX = ":study.optimize"
_FUNCTION = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_ENV_NAME = re.compile(r"[A-Za-z_]\w*")
_UNFIT_FOR_A_FILE_NAME = re.compile(r"[/\\\x00-\x1f\x7f]")
MAX_SEED = 2**32 - 1
_MAX_NAME_BYTES = 200
#: Name of training steps among metrics; objectives cannot have it.
STEP = "step"
_SET_BY_THE_TUNER = re.compile(r"CUDA_VISIBLE_DEVICES|NVIDIA_VISIBLE_DEVICES|TUNER_\w*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Templates:
    """The texts of a trial that may have `{param}` places."""

    command: Sequence[str]
    env: Mapping[str, str]


def check_study_name(name: str) -> str:
    """A study's name also names its files."""
    if not name.strip() or name.startswith("."):
        raise ValueError(f"is {name!r}, but must be a name, such as digits-mlp.")
    if _UNFIT_FOR_A_FILE_NAME.search(name) or len(name.encode()) > _MAX_NAME_BYTES:
        unit = "characters" if name.isascii() else "bytes in UTF-8"
        raise ValueError(
            f"is {name!r}, but must be without slashes and line breaks, and at most "
            f"{_MAX_NAME_BYTES} {unit}: it names files too."
        )
    return name


def check_priority(value: object) -> int:
    """Parses the priority of a study.

    Raises:
        ValueError: If it is invalid; worded to follow the key.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 100:
        raise ValueError(f"is {value!r}, but must be a whole number from 0 to 100.")
    return value


def positive_number(value: object) -> int | float:
    """A finite number above 0."""
    if not is_number(value) or not math.isfinite(value) or value <= 0:
        raise ValueError(f"is {value!r}, but must be a number above 0.")
    return value


def check_function(target: str) -> str:
    """`module:function`, or `train.py:study.optimize`."""
    module = target.partition(":")[0]
    if optuna_program_of(target) is not None:
        return target
    if _FUNCTION.fullmatch(target) and not module.endswith(".py"):
        return target
    raise ValueError(
        f"is {target!r}, but must be module:function, such as train:main.{_function_hint(target)}"
    )


def _function_hint(target: str) -> str:
    """A correction to `module:function` for the path of a file, or a name without a colon."""
    if " " in target.strip():
        words = ", ".join(target.split())
        return f" For a program write command: [{words}] in its place."
    module, _, function = target.partition(":")
    is_path = ".py" in module or "/" in module
    name = module.removeprefix("./").removesuffix(".py").replace("/", ".")
    if not function and not is_path:
        name, _, function = name.rpartition(".")
    meant = f"{name}:{function}"
    if is_path and not function and _FUNCTION.fullmatch(f"{name}:main"):
        return f" Write the name of the function too: {name}:NAME."
    hint = f" Write {meant}." if _FUNCTION.fullmatch(meant) else ""
    if target.endswith("()") and _FUNCTION.fullmatch(target[:-2]):
        return f" Write {target[:-2]}."
    return f" It is the module's name, not the path of its file.{hint}" if is_path else hint


def optuna_program_of(function: str) -> str | None:
    """The path of the program in `train.py:study.optimize`; None for another function."""
    path = function.removesuffix(OPTIMIZE_SUFFIX)
    is_program = path != function and path.endswith(".py") and ":" not in path
    return path if is_program else None


def check_pattern(pattern: str) -> str:
    """Checks that a pattern is a valid regular expression once `{name}` is expanded."""
    try:
        re.compile(expand(pattern))
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"is {pattern!r}, which is no regular expression: {error}.") from error
    return pattern


def read_command(value: object) -> object:
    """A non-empty argv list; its numbers become text."""
    if isinstance(value, str):
        raise ValueError(
            f"is the text {value!r}, but must be a list of words, such as "
            '[python, train.py, "--lr={lr}"]: the tuner uses no shell, so that no quoting is '
            "needed."
        )
    if not isinstance(value, list):
        return value
    if not value or not value[0]:
        raise ValueError("must begin with a program, such as [python, train.py].")
    return _words(value)


def read_hook(value: object) -> object:
    """Parses a hook: the argv list of a program that receives events."""
    example = "such as [python, notify.py]"
    if not isinstance(value, list):
        is_text = isinstance(value, str)
        no_shell = ": the tuner uses no shell, so that no quoting is needed" if is_text else ""
        raise ValueError(f"is {value!r}, but must be a list of words, {example}{no_shell}.")
    if not value or not value[0]:
        raise ValueError(f"must begin with a program, {example}.")
    return _words(value)


def _words(value: list[object]) -> tuple[str, ...]:
    return tuple(_as_text(f"[{place}]", each) for place, each in enumerate(value))


def read_env(value: object) -> object:
    """Environment variables as text."""
    if not isinstance(value, Mapping):
        return value
    for name in value:
        if not _ENV_NAME.fullmatch(name):
            raise ValueError(f"has {name!r}, which is no name of an environment variable.")
        if _SET_BY_THE_TUNER.fullmatch(name):
            raise ValueError(f"sets {name}, which the tuner itself sets for each trial. Remove it.")
    return {name: _as_text(name, each) for name, each in value.items()}


def _as_text(key: str, value: object) -> str:
    if isinstance(value, str | bool | int | float):
        return format_value(value)
    raise Refusal([Mistake(key=key, problem=f"is {value!r}, but must be text or a number.")])


def read_objectives(value: object) -> object:
    """`{name: direction}`, at least one."""
    example = "such as {accuracy: maximize}"
    if not isinstance(value, Mapping):
        raise ValueError(f"is {value!r}, but must be a mapping, {example}.")
    if not value:
        raise ValueError(f"is empty, but must have at least one objective, {example}.")
    if STEP in value:
        raise ValueError(f"has an objective named '{STEP}', which means training steps. Rename it.")
    return value


def read_named(value: object, *, default_name: str) -> object:
    """`{name: tpe, seed: 0}`, or just `tpe`, as name and arguments."""
    if isinstance(value, str):
        return {"name": value}
    if value is False:
        raise ValueError("is false, but must be a name or a mapping. To use none, write none.")
    if not isinstance(value, Mapping):
        raise ValueError(
            f"is {value!r}, but must be a name or a mapping: {{name: {default_name}}}."
        )
    arguments = {key: each for key, each in value.items() if key != "name"}
    return {"name": value.get("name", default_name), "arguments": arguments}


def seed_mistakes(seed: object) -> Iterator[Mistake]:
    """Checks that a seed is valid for numpy."""
    is_seed = is_number(seed) and isinstance(seed, int) and 0 <= seed <= MAX_SEED
    if seed is not None and not is_seed:
        problem = f"is {seed!r}, but must be a whole number from 0 to {MAX_SEED}."
        yield Mistake(key="seed", problem=problem)


def check_trial(
    *,
    has_function: bool,
    has_command: bool,
    has_metrics: bool,
    completes_on_timeout: bool,
    has_timeout: bool,
) -> None:
    """Checks that there is exactly one program, and that other keys match it."""
    mistakes = []
    if has_function == has_command:
        given = "both function and command" if has_function else "neither function nor command"
        example = "function: train:main, or command: [python, train.py]"
        problem = f"has {given}. Give one of them: {example}."
        mistakes.append(Mistake(key="", problem=problem))
    if has_metrics and not has_command:
        problem = "is for a command only: a function reports through its trial. Remove it."
        mistakes.append(Mistake(key="metrics", problem=problem))
    if completes_on_timeout and not has_timeout:
        problem = "is 'complete', but there is no timeout. Give one, such as timeout: 10m."
        mistakes.append(Mistake(key="on_timeout", problem=problem))
    refuse(mistakes)


def pattern_mistakes(pattern: re.Pattern[str], objectives: Sequence[str]) -> Iterator[Mistake]:
    """The groups of a metrics pattern are objectives, and perhaps the step."""
    key = "trial.metrics.pattern"
    groups = tuple(pattern.groupindex)
    allowed = f"The objectives are {', '.join(objectives)}"
    example = f"'{objectives[0]}[:= ]+{{{objectives[0]}}}'"
    if not set(groups) & set(objectives):
        problem = (
            f"has no place named after an objective. {allowed}: write {{name}} in place of its "
            f"number, for example {example}."
        )
        yield Mistake(key=key, problem=problem)
    for group in groups:
        if group not in (*objectives, STEP):
            problem = (
                f"has a place '{group}', which is no objective. {allowed}, and '{STEP}'. "
                r"A brace that is no place is written \{."
            )
            yield Mistake(key=key, problem=problem)


def place_mistakes(templates: Templates, space: AnySpace | None) -> Iterator[Mistake]:
    """Each `{place}` is a parameter, a constant or a name that the tuner fills."""
    yield from shell_mistakes(templates.command, templates.env, space)
    for number, element in enumerate(templates.command):
        yield from _unknown_places(f"trial.command[{number}]", element, space)
    for name, template in templates.env.items():
        yield from _unknown_places(f"trial.env.{name}", template, space)
    if isinstance(space, SearchSpace):
        yield from _split_flags(templates.command, space)


def _unknown_places(key: str, template: str, space: AnySpace | None) -> Iterator[Mistake]:
    try:
        names = places(template)
    except TemplateError as error:
        yield Mistake(key=key, problem=str(error))
        return
    # What a function draws is known only once it has been called.
    if isinstance(space, DefineByRunSpace):
        return
    known = (*(space.names if space else ()), *BUILTINS)
    for name in names:
        if name not in known and f"${{{name}}}" not in template:
            yield Mistake(key=key, problem=_unknown_place(template, name, known, space))


def _unknown_place(template: str, name: str, known: Iterable[str], space: AnySpace | None) -> str:
    known = tuple(known)
    bare, sign, _ = name.partition(":")
    if sign and bare in known:
        return (
            f"is {template!r}, but a place has no format: numbers are written in full. Write "
            f"'{template.replace(f'{{{name}}}', f'{{{bare}}}')}'."
        )
    problem = f"is {template!r}, but {{{name}}} is not in search_space"
    problem += "." if space else ", which is absent."
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    if close:
        return f"{problem} Did you mean '{{{close[0]}}}'?"
    own = ", ".join(name for name in known if name not in BUILTINS)
    filled = ", ".join(f"{{{name}}}" for name in BUILTINS)
    return (
        f"{problem} Parameters: {own or 'none'}. The tuner itself fills {filled}. "
        "A brace that is no place is doubled: {{ }}."
    )


def _split_flags(command: Sequence[str], space: SearchSpace) -> Iterator[Mistake]:
    """Detects flags separate from their value, which would remain if the value is left out."""
    conditional = {each.name for each in space.parameters if each.when}
    for number, (flag, element) in enumerate(itertools.pairwise(command), start=1):
        is_split = flag.startswith("-") and "=" not in flag and not element.startswith("-")
        for name in sorted(conditional.intersection(_places_if_any(element))):
            if is_split:
                problem = (
                    f"is {element!r}, but {name} is absent in some trials, which would leave "
                    f"'{flag}' alone. Write one word: '{flag}={element}'."
                )
                yield Mistake(key=f"trial.command[{number}]", problem=problem)


def _places_if_any(template: str) -> tuple[str, ...]:
    try:
        return places(template)
    except TemplateError:
        return ()
