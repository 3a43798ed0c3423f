"""Reads a sweep of W&B. What has no counterpart here is named in a note.

Keys and macros: https://docs.wandb.ai/models/sweeps/sweep-config-keys.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path

from tuner.config.proposals.printed_lines import PrintedResult, printed_result
from tuner.config.proposals.proposal import (
    Proposal,
    literal,
    objective_name,
    place,
    shown,
    study_name,
    sweep_env,
)
from tuner.search_spaces import ParamValue, SearchSpace, SpaceError, parse_space

_COMMAND = ("${env}", "${interpreter}", "${program}", "${args}")
_MACRO = re.compile(r"\$\{([a-z_]+)(?::([^}]*))?\}")
_TAKEN = frozenset(
    {"program", "method", "metric", "parameters", "command", "early_terminate", "run_cap", "name"}
)
_DEFAULT_ETA = 3


def is_sweep(document: object) -> bool:
    """Whether a YAML document is a sweep of W&B."""
    return (
        isinstance(document, Mapping)
        and isinstance(document.get("parameters"), Mapping)
        and bool({"method", "program", "metric"} & document.keys())
    )


def propose_from_sweep(document: Mapping[str, object], file: Path) -> Proposal:
    """Proposes the study that is closest to a sweep.

    Args:
        document: The sweep, for which `is_sweep` holds.
        file: Its file as the user named it.
    """
    notes: list[str] = []
    parameters = document["parameters"]
    assert isinstance(parameters, Mapping)
    space = dict(_space(parameters, "", notes))
    name = document.get("name") or document.get("project") or file.stem
    settings = {
        **_sampler(document.get("method"), space, notes),
        **_pruner(document.get("early_terminate"), notes),
        **_budget(document.get("run_cap"), notes),
    }
    taken = _TAKEN if "name" in document else _TAKEN | {"project"}
    notes += [f"Not carried over: {key}." for key in document if key not in taken]
    objectives = _objectives(document.get("metric"), notes)
    pattern = _pattern(document, file, next(iter(objectives)), notes)
    return Proposal(
        study=study_name(str(name)),
        source=str(file),
        command=tuple(_command(document, space, notes)),
        space=space,
        objectives=objectives,
        pattern=pattern,
        # Many programs of sweeps have no options and read `wandb.config`.
        env=sweep_env(),
        settings=settings,
        notes=tuple(notes),
    )


def _space(
    parameters: Mapping[str, object], above: str, notes: list[str]
) -> Iterator[tuple[str, object]]:
    for key, body in parameters.items():
        name = f"{above}{key}"
        nested = body.get("parameters") if isinstance(body, Mapping) else None
        if isinstance(nested, Mapping):
            notes.append(
                f"{name}: its nested parameters are named {name}.NAME, and passed one by one "
                "under these names; W&B passes them as one mapping."
            )
            yield from _space(nested, f"{name}.", notes)
            continue
        read = _parameter(name, body, notes)
        if read is not None:
            written = read.to_file_mapping()[name]
            choices = written.get("choices") if isinstance(written, Mapping) else None
            yield name, choices[0] if isinstance(choices, list) and len(choices) == 1 else written


def _parameter(name: str, body: object, notes: list[str]) -> SearchSpace | None:
    try:
        return parse_space({name: _explicit(name, body, notes)})
    except SpaceError as error:
        if error.suggestion is None:
            notes.append(f"Not carried over: the parameter {error}")
            return None
        notes.append(f"The parameter {error} The file has {shown(error.suggestion)}")
        return _parameter(name, error.suggestion, notes)


def _explicit(name: str, body: object, notes: list[str]) -> object:
    """The same with W&B's defaults filled in."""
    if not isinstance(body, Mapping):
        return body
    if "probabilities" in body:
        notes.append(f"Not carried over: {name}.probabilities; all values are equally likely.")
        body = {key: each for key, each in body.items() if key != "probabilities"}
    ends = [body.get("min"), body.get("max")]
    if "distribution" not in body and all(type(each) is int for each in ends):
        return {**body, "distribution": "int_uniform"}
    return body


def _objectives(metric: object, notes: list[str]) -> dict[str, str]:
    if not isinstance(metric, Mapping) or not isinstance(metric.get("name"), str):
        notes.append("The sweep names no metric: replace `value` in objectives.")
        return {"value": "minimize"}
    name = metric["name"]
    goal = metric.get("goal", "minimize")
    notes += [f"Not carried over: metric.{key}." for key in metric if key not in ("name", "goal")]
    return {objective_name(name): "maximize" if goal in ("maximize", "max") else "minimize"}


def _pattern(document: Mapping[str, object], file: Path, objective: str, notes: list[str]) -> str:
    """The pattern of a line that the program prints beside `wandb.log`; empty if none is known."""
    printed = _printed(file.parent / str(document.get("program")), objective)
    if printed is not None and printed.name == objective:
        notes.append(
            f"trial.metrics.pattern reads line {printed.line} of {document['program']}. What goes "
            "to wandb.log is not read."
        )
        return printed.pattern
    notes.append(
        f"What goes to wandb.log is not read. Let the program also print a line of JSON, such as "
        f'print(json.dumps({{"step": step, "{objective}": value}})), or set trial.metrics.pattern.'
    )
    if printed is not None:
        notes.append(
            f"Line {printed.line} of {document['program']} prints {printed.name}. To tune that, "
            f"write objectives: {{{printed.name}: {printed.direction}}} and "
            f"trial: {{metrics: {{pattern: {shown(printed.pattern)}}}}}."
        )
    return ""


def _printed(program: Path, objective: str) -> PrintedResult | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Invalid escapes are the program's own affair.
            return printed_result(ast.parse(program.read_bytes()), wanted=objective)
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _sampler(method: object, space: Mapping[str, object], notes: list[str]) -> dict[str, object]:
    if method == "random":
        return {"sampler": "random"}
    if method == "grid":
        ranges = [
            name
            for name, body in space.items()
            if isinstance(body, Mapping) and body.get("type") == "float" and "step" not in body
        ]
        if not ranges:
            return {"sampler": "grid"}
        notes.append(f"Not carried over: method: grid, because of the range of {ranges[0]}.")
    elif method == "bayes":
        notes.append("method: bayes is left to `sampler: auto`; --dry-run prints what it picks.")
    elif method is not None:
        notes.append(f"Not carried over: method: {shown(method)}.")
    return {"sampler": "auto"}


def _pruner(rule: object, notes: list[str]) -> dict[str, object]:
    """W&B stops no run without a rule. Its Hyperband stops at `min_iter * eta**k` iterations."""
    if not isinstance(rule, Mapping):
        return {"pruner": "none"}
    eta, s = rule.get("eta", _DEFAULT_ETA), rule.get("s", 1)
    first, last = rule.get("min_iter"), rule.get("max_iter")
    if _is_count(last) and _is_count(eta) and _is_count(s):
        first = max(1, last // eta**s) if s < 64 else 1
    if rule.get("type") != "hyperband" or not _is_count(first) or not _is_count(eta) or eta < 2:
        notes.append(f"Not carried over: early_terminate: {shown(dict(rule))}.")
        return {"pruner": "auto"}
    known = ("type", "min_iter", "eta", *(("max_iter", "s") if "max_iter" in rule else ()))
    notes += [f"Not carried over: early_terminate.{key}." for key in rule if key not in known]
    notes.append(
        "early_terminate counts calls of wandb.log, pruner.min_resource counts steps. "
        "Remove `mode: stop` if the program can resume from checkpoints."
    )
    arguments = {"min_resource": first, "reduction_factor": eta, "mode": "stop"}
    return {"pruner": {"name": "asha", **arguments}}


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value < 2**31


def _budget(run_cap: object, notes: list[str]) -> dict[str, object]:
    if _is_count(run_cap):
        return {"budget": {"trials": run_cap}}
    notes.append("The sweep has no run_cap: the study runs until Ctrl-C, or set budget.")
    return {}


def _command(
    document: Mapping[str, object], space: Mapping[str, object], notes: list[str]
) -> Iterator[str]:
    program = document.get("program")
    if not isinstance(program, str):
        program = "train.py"
        if "command" not in document:
            notes.append("The sweep names no program: replace train.py in trial.command.")
    command = document.get("command")
    words = (
        [str(word) for word in command] if isinstance(command, list) and command else list(_COMMAND)
    )
    has_arguments = False
    for word in words:
        macro = _MACRO.fullmatch(word.strip())
        match macro[1] if macro else None:
            case "env":
                continue
            case "interpreter":
                yield "python"
            case "program":
                yield literal(program)
            case "args" | "args_no_boolean_flags" | "args_no_hyphens" | "args_no_equals" as kind:
                has_arguments = True
                yield from _arguments(kind, space, notes)
            case _ if _MACRO.search(word):
                notes.append(f"Not carried over: {word} in command.")
            case _:
                yield literal(word)
    if not has_arguments:
        notes.append(
            "The command has no ${args}: the program gets its parameters in wandb.config, and in "
            "the environment variables TUNER_PARAM_<NAME>."
        )


def _arguments(kind: str, space: Mapping[str, object], notes: list[str]) -> Iterator[str]:
    for name, body in space.items():
        if kind == "args_no_boolean_flags" and _is_flag(body):
            notes.append(
                f"{name} is passed as --{name}=true or --{name}=false; W&B passes --{name} or "
                "nothing."
            )
        if kind == "args_no_hyphens":
            yield f"{literal(name)}={place(name)}"
        elif kind == "args_no_equals":
            yield f"--{literal(name)}"
            yield place(name)
        else:
            yield f"--{literal(name)}={place(name)}"


def _is_flag(body: object) -> bool:
    choices: ParamValue = [body]  # type: ignore[list-item]
    if isinstance(body, Mapping) and isinstance(body.get("choices"), list):
        choices = body["choices"]
    assert isinstance(choices, list)
    return any(isinstance(each, bool) for each in choices)
