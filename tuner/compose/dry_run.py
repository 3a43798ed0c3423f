"""A dry run: devices, sampler and pruner, and the first trial of a start. Writes nothing."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

import optuna

from tuner.compose.study_plan import (
    HostDevices,
    check_study,
    find_devices,
    plan_of,
    rule_of,
    widening_of,
)
from tuner.compose.transfer import begins_with
from tuner.config import StudyConfig
from tuner.config.notation.command_template import render_env
from tuner.devices.allocation.pool import DevicePool, Lease
from tuner.devices.allocation.width import ONE, LearnedWidth, width_of
from tuner.domain.attempt import Attempt
from tuner.queries.results.command_line import Program
from tuner.search.defaults import Choice, choose, sampler_of
from tuner.search.samplers.transfer import Transferred
from tuner.search.study_identity import to_optuna
from tuner.search_spaces import DefineByRunSpace, ParamValue, SearchSpace
from tuner.store.connection.database import shown_url
from tuner.terminal import wording

#: Checkpoints of a program that is run alone; the trial's own are kept separate.
_CHECKPOINTS = "checkpoints-alone"


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRun:
    """A start of a study, up to its first trial.

    Raises:
        TunerError: If the study could not start.
    """

    config: StudyConfig
    host: HostDevices
    earlier: Transferred
    params: Mapping[str, ParamValue]
    lease: Lease
    choice: Choice
    widening: str

    @classmethod
    def of(cls, config: StudyConfig, environ: Mapping[str, str]) -> DryRun:
        check_study(config)
        host = find_devices(config, environ, None)
        earlier = begins_with(config)
        params = _first_params(config, config.sampler.seed or 0, earlier)
        return cls(
            config=config,
            host=host,
            earlier=earlier,
            params=params,
            lease=_first_lease(config, host, params),
            choice=choose(config),
            widening=widening_of(config, len(host.all_devices)),
        )

    def as_text(self) -> str:
        """What would run where, and a command to run the first trial alone, as text."""
        config, choice = self.config, self.choice
        names = ", ".join(device.label for device in self.host.devices)
        arguments = ", ".join(f"{name} {value}" for name, value in choice.pruner.arguments.items())
        pruner = choice.pruner.name + (f" ({arguments})" if arguments else "")
        on = ", ".join(device.label for device in self.lease.devices)
        first = wording.settings(self.params) or "parameters are the program's own"
        lines = [
            f"study: {config.study} in {shown_url(config.storage)}",
            f"objectives: {', '.join(f'{k} ({v.value})' for k, v in config.objectives.items())}",
            f"devices: {names}",
            f"sampler: {choice.sampler.name}: {choice.sampler_reason}",
            f"pruner: {pruner}: {choice.pruner_reason}",
            *([f"transfer: {self._transfer_text()}"] if config.transfer else []),
            *([f"widen: {self.widening}"] if self.widening else []),
            f"first trial, on {on}: {first}",
        ]
        if line := self._line_alone():
            lines += ["to run it alone:", f"  {line}"]
        return "\n".join([*lines, "Nothing was started. With --json: every detail."])

    def as_json(self) -> str:
        """For programs: the space, the devices, and the first trial's launch requests."""
        config, seed = self.config, self.config.sampler.seed or 0
        plan, now = plan_of(config, seed=seed), datetime.now(UTC)
        attempt = Attempt(
            trial_id=0, trial_number=0, number=1, seed=plan.seed_of(0, 1), leased_at=now
        )
        requests = plan.requests(
            attempt, self.lease, self.params, address="<socket>", token="", port=0
        )
        document = {
            "study": config.study,
            "storage": shown_url(config.storage),
            "search_space": _space(config),
            "search": _search(self.choice),
            **({"transfer": self.earlier.as_data()} if config.transfer else {}),
            **({"widen": self.widening} if self.widening else {}),
            "devices": [_device(self.host, i) for i in range(len(self.host.devices))],
            "first_launch_requests": [request.as_data() for request in requests],
        }
        return json.dumps(document, indent=2, ensure_ascii=False)

    def _transfer_text(self) -> str:
        n = len(self.earlier.configurations)
        return f"begins near {n} configurations of {', '.join(self.earlier.studies)}"

    def _line_alone(self) -> str | None:
        trial = self.config.trial
        if not self.params and not isinstance(self.config.search_space, SearchSpace):
            return None
        places: dict[str, ParamValue] = {
            "trial_number": 0,
            "attempt_number": 1,
            "seed": 0,
            "checkpoint_dir": _CHECKPOINTS,
            "gpus": len(self.lease.devices),
        }
        program = Program(function=trial.function or "", argv=tuple(trial.command or ()))
        line = program.line(self.params, places)
        if line is None:
            return None
        # Values without places are often tokens; they are in the user's own environment mostly.
        filled = {name: value for name, value in (trial.env or {}).items() if "{" in value}
        env = render_env(filled, self.params, places)
        words = shlex.join(["env", *(f"{k}={v}" for k, v in env.items())]) + " " if env else ""
        has_folder = program.has_folder or "{checkpoint_dir}" in "".join(filled.values())
        folder = f"mkdir -p {_CHECKPOINTS} && " if has_folder else ""
        return f"cd {shlex.quote(str(self.config.folder))} && {folder}{words}{line}"


def _first_lease(config: StudyConfig, host: HostDevices, params: Mapping[str, ParamValue]) -> Lease:
    rule = rule_of(config)
    width = ONE if isinstance(rule, LearnedWidth) else width_of(rule, params)
    lease = DevicePool(host.devices).lease(width, "0.1")
    assert lease is not None, "find_devices has seen that every width fits"
    return lease


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


def _search(choice: Choice) -> dict[str, object]:
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
