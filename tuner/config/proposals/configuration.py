"""Reads the configuration of a program, such as one of Hydra, and searches around its values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from tuner.config.proposals.composed import Composed, compose
from tuner.config.proposals.printed_lines import PrintedResult
from tuner.config.proposals.proposal import Proposal, literal, place, study_name
from tuner.config.proposals.ranges import most_usual, propose_range
from tuner.config.proposals.sweeps.hydra_sweeper import Sweep, sweep_of
from tuner.errors import ConfigError
from tuner.search_spaces.space import is_number

_MOST_NAMED = 20


def propose_from_configuration(
    document: Mapping[str, object],
    file: Path,
    program: str | None,
    result: PrintedResult | None = None,
) -> Proposal:
    """Proposes a study whose command overrides keys in Hydra's syntax: `optimizer.lr=0.1`.

    Args:
        document: The configuration.
        file: Its file as the user named it.
        program: The script, relative to the study file's folder; None if unknown.
        result: The script's line with its result, if known.

    Raises:
        ConfigError: If the configuration has no number that users tune.
    """
    if sweep := sweep_of(document):
        return _of_sweep(sweep, file, program, result)
    composed = compose(document, file)
    options = list({each.name: each for each in composed.options}.values())
    ranges = {each.name: proposed for each in options if (proposed := propose_range(each))}
    space = {name: ranges[name] for name in most_usual(ranges)}
    if not space:
        raise ConfigError(_nothing_to_tune(composed), file=str(file))
    ranges_are_guesses = "The ranges are guesses around the values of the configuration."
    notes = [f"{ranges_are_guesses} {_note_on_result(result, program)}"]
    if composed.absent:
        notes.append(f"Not read: {', '.join(composed.absent)}, which `defaults` names.")
    fixed = [each.name for each in options if each.name not in space and is_number(each.default)]
    if fixed:
        more = f" and {n} more" if (n := len(fixed) - _MOST_NAMED) > 0 else ""
        named = ", ".join(fixed[:_MOST_NAMED])
        notes.append(f"Numbers that are not searched, so that theirs hold: {named}{more}.")
    return _proposal(space, notes, file, program, result)


def _of_sweep(
    sweep: Sweep, file: Path, program: str | None, result: PrintedResult | None
) -> Proposal:
    """The search that a configuration of Hydra has itself."""
    notes = [
        "The space is that of hydra.sweeper; its sampler is left to `sampler: auto`. What the "
        f"function of Hydra returns is not read. {_note_on_result(result, program)}"
    ]
    notes += [f"Not read: {each}." for each in sweep.unread]
    if sweep.n_trials is None:
        notes.append("hydra.sweeper has no n_trials: the study runs until Ctrl-C, or set budget.")
    proposal = _proposal(sweep.space, notes, file, program, result)
    names = list(proposal.objectives)
    names += [f"value_{place}" for place in range(1, len(sweep.directions))]
    directions = sweep.directions or tuple(proposal.objectives.values())
    return replace(
        proposal,
        objectives=dict(zip(names, directions, strict=False)),
        settings={"budget": {"trials": sweep.n_trials}} if sweep.n_trials else {},
    )


def _proposal(
    space: Mapping[str, object],
    notes: list[str],
    file: Path,
    program: str | None,
    result: PrintedResult | None,
) -> Proposal:
    unknown = "Replace train.py in trial.command by the program of this configuration."
    words = [f"{literal(name)}={place(name)}" for name in space]
    return Proposal(
        study=study_name(Path(program).stem if program else file.stem),
        source=str(file),
        command=("python", literal(program or "train.py"), *words),
        space=space,
        objectives={result.name: result.direction} if result else {"value": "minimize"},
        pattern=result.pattern if result else "",
        notes=(*notes, *(() if program else (unknown,))),
    )


def _note_on_result(result: PrintedResult | None, program: str | None) -> str:
    if result is None:
        return (
            'Let the program print its result as a line of JSON, such as {"step": 3, "value": '
            "0.71}, or set trial.metrics.pattern, and name it in objectives."
        )
    return (
        f"trial.metrics.pattern reads line {result.line} of {program}. Check that it is the number "
        f"to {result.direction}."
    )


def _nothing_to_tune(composed: Composed) -> str:
    files = f" (with {', '.join(composed.read)})" if composed.read else ""
    return (
        f"has no number that looks like a parameter to tune (lr, dropout, batch_size ...){files}. "
        "Write an empty study file, and the keys into its command as key={name}: tuner init"
    )
