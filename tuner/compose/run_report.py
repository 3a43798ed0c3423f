"""What the command line prints: the end of a study, a dry run, a log's place."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import optuna
import yaml

from tuner.attempt import Attempt
from tuner.compose.start import open_launcher
from tuner.compose.study_plan import (
    HostDevices,
    check_study,
    find_devices,
    plan_of,
    rule_of,
    widening_of,
)
from tuner.compose.transfer import begins_with
from tuner.compose.wiring import StudyEnd, check_program
from tuner.config import StudyConfig
from tuner.config.proposals.proposal import study_text
from tuner.config.proposals.read import propose
from tuner.config.schema.template import study_template
from tuner.devices.allocation.pool import DevicePool, Lease
from tuner.devices.allocation.width import ONE, LearnedWidth, width_of
from tuner.errors import ConfigError
from tuner.launch.inbox import Inbox
from tuner.search.defaults import choose, sampler_of
from tuner.search.incumbent import BestTrial
from tuner.search.samplers.transfer import Transferred
from tuner.search.study_identity import to_optuna
from tuner.search_spaces import DefineByRunSpace, ParamValue, SearchSpace
from tuner.store.connection.database import open_database, shown_url
from tuner.terminal import wording
from tuner.terminal.studies import confirmation_lines
from tuner.terminal.tables import table

#: More are a page of their own: `tuner best`, or the dashboard.
_MOST_OF_FRONT = 20


def summary(end: StudyEnd, config: StudyConfig, command_line: str) -> str:
    """The last words of a study: how it went, the best configuration, how to go on."""
    result = end.result
    paused = f", {result.n_paused} paused" if result.n_paused else ""
    lines = [
        f"{result.reason}: {result.n_completed} completed, {result.n_pruned} pruned, "
        f"{result.n_failed} failed{paused}"
    ]
    if end.front:
        lines += _front_lines(end.front)
        lines.append(f"again: python -m tuner.best {_named(config)} --top {len(end.front)}")
    elif end.best:
        lines.append(f"best: {wording.values_text(end.best.values)} (trial {end.best.number})")
        lines += [f"  {name}: {wording.short(value)}" for name, value in end.best.params.items()]
        lines += confirmation_lines(end.confirmation)
        lines.append(f"again: python -m tuner.best {_named(config)}")
    elif result.n_failed:
        lines.append(f"No trial has completed. See what one printed: tuner logs 0 {_named(config)}")
    if result.is_interrupted:
        lines.append(f"Stopped; everything is saved. To go on: {command_line}")
    return "\n".join(lines)


def _front_lines(front: Sequence[BestTrial]) -> list[str]:
    """A table of the trials that no other one beats in all objectives."""
    n_shown = min(len(front), _MOST_OF_FRONT)
    names = list(front[0].values)
    in_order = sorted(front, key=lambda each: each.values[names[0]])
    rows = [
        (
            str(each.number),
            *(f"{value:.6g}" for value in each.values.values()),
            wording.settings(each.params),
        )
        for each in in_order[:n_shown]
    ]
    head = f"Pareto front: {len(front)} trial{'s' if len(front) > 1 else ''}"
    more = f" (the first {n_shown} are shown)" if n_shown < len(front) else ""
    shown = table(("trial", *names, "parameters"), rows)
    return [head + more, *(f"  {line}" for line in shown.splitlines())]


def dry_run(config: StudyConfig, environ: Mapping[str, str]) -> str:
    """The space, the devices, and the first trial's launch request, as YAML. Writes nothing."""
    check_study(config)
    host = find_devices(config, environ, None)
    seed = config.sampler.seed or 0
    earlier = begins_with(config)
    params = _first_params(config, seed, earlier)
    plan = plan_of(config, seed=seed)
    now = datetime.now(UTC)
    attempt = Attempt(trial_id=0, trial_number=0, number=1, seed=plan.seed_of(0, 1), leased_at=now)
    lease = _first_lease(config, host, params)
    requests = plan.requests(attempt, lease, params, address="<socket>", token="", port=0)
    document = {
        "study": config.study,
        "storage": shown_url(config.storage),
        "search_space": _space(config),
        "search": _search(config),
        **({"transfer": earlier.as_data()} if config.transfer else {}),
        **({"widen": line} if (line := widening_of(config, len(host.all_devices))) else {}),
        "devices": [_device(host, i) for i in range(len(host.devices))],
        "first_launch_requests": [request.as_data() for request in requests],
    }
    plain = json.loads(json.dumps(document))
    return yaml.safe_dump(plain, sort_keys=False, allow_unicode=True).rstrip()


def validate(config: StudyConfig, environ: Mapping[str, str]) -> str:
    """Tries all that a start would try, but starts no trial and writes no study.

    Raises:
        TunerError: With what is wrong.
    """
    check_study(config)
    begins_with(config)
    host = find_devices(config, environ, None)
    inbox = Inbox()
    with open_launcher(config, host, inbox, environ) as launcher:
        check_program(launcher, config)
    inbox.close()
    database = Path(config.storage.removeprefix("sqlite:///"))
    if not config.storage.startswith("sqlite") or database.exists():
        open_database(config.storage, read_only=True).close()
    names = ", ".join(device.label for device in host.devices)
    return f"{config.file} is fine: study {config.study!r} would run on {names}."


def init(path: Path, *, force: bool, source: Path | None = None) -> str:
    """Writes the commented study file, or one that is proposed from another program's file.

    Args:
        path: The study file.
        force: Whether a file that is there is replaced.
        source: A W&B sweep, a Python script or a configuration; None for the commented file.

    Raises:
        ConfigError: If the file is there already, its folder is not writable, or the source has
            nothing to tune.
    """
    if path.exists() and not force:
        raise ConfigError(
            "exists already. Name another file, or overwrite it with --force.", file=str(path)
        )
    proposal = None if source is None else propose(source, path.parent)
    text = study_text(proposal, path.parent) if proposal else study_template(path.parent)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot be written: {error.strerror}.", file=str(path)) from error
    file = shlex.quote(str(path))
    end = f"{path} is written. Edit it, then: tuner validate {file}; python -m tuner.run {file}"
    return "\n".join([*(f"- {note}" for note in (proposal.notes if proposal else ())), end])


def _first_lease(config: StudyConfig, host: HostDevices, params: Mapping[str, ParamValue]) -> Lease:
    rule = rule_of(config)
    width = ONE if isinstance(rule, LearnedWidth) else width_of(rule, params)
    lease = DevicePool(host.devices).lease(width, "0.1")
    assert lease is not None, "find_devices has seen that every width fits"
    return lease


def _named(config: StudyConfig) -> str:
    """How to name the study in another command: the file, and what `--study` made of it."""
    written = yaml.safe_load(config.text).get("study")
    words = [config.file] if written == config.study else [config.file, "--study", config.study]
    return shlex.join(words)


def _first_params(config: StudyConfig, seed: int, earlier: Transferred) -> dict[str, ParamValue]:
    if not isinstance(config.search_space, SearchSpace):
        return {}
    sampler = sampler_of(config, seed=seed, transferred=earlier.configurations)
    directions = [to_optuna(direction) for direction in config.objectives.values()]
    study = optuna.create_study(directions=directions, sampler=sampler)
    return config.search_space.suggest(study.ask())


def _space(config: StudyConfig) -> object:
    match config.search_space:
        case SearchSpace() as space:
            return space.to_file_mapping()
        case DefineByRunSpace() as space:
            return f"{space.target} (define-by-run)"
        case None:
            return "the objective's own (define-by-run)"


def _search(config: StudyConfig) -> dict[str, object]:
    choice = choose(config)
    return {
        "sampler": {"name": choice.sampler.name, "why": choice.sampler_reason},
        "pruner": {
            "name": choice.pruner.name,
            **choice.pruner.arguments,
            "why": choice.pruner_reason,
        },
    }


def _device(host: HostDevices, index: int) -> dict[str, object]:
    data = asdict(host.devices[index])
    return data | {"kind": host.devices[index].kind.value}
