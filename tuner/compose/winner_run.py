"""`tuner run --best`: trains the winner of a study on all devices and keeps its checkpoint.

It is the only trial of a second study, `<name>.best-<number of the trial>`, whose parameters are
constants. It is thus launched, retried, interrupted and resumed like all trials, and does not
affect the search's sampler, budget or best trial. Another winner is another study.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import yaml

from tuner.checkpoints import layout
from tuner.checkpoints.paths import StudyFiles
from tuner.compose.study_plan import find_devices
from tuner.config import BudgetConfig, PrunerConfig, SamplerConfig, StudyConfig
from tuner.config.sections.confirm import winner_run_of
from tuner.config.sections.resources import ResourcesConfig
from tuner.devices.allocation.width import FixedWidth, n_devices_of
from tuner.devices.device import DeviceKind
from tuner.errors import ConfigError
from tuner.queries.results.best import BestConfiguration, load_top
from tuner.search_spaces import SearchSpace
from tuner.search_spaces.strict_yaml import read_yaml
from tuner.terminal import wording

#: Keys of the study that do not apply to the winner's run.
_NOT_OF_THE_RUN = ("confirm", "widen", "prior", "transfer", "on_best", "on_failure")


@dataclass(frozen=True, slots=True, kw_only=True)
class WinnerRun:
    """The study that trains a winner."""

    config: StudyConfig
    winner: BestConfiguration

    @property
    def announcement(self) -> str:
        """The message at the start."""
        winner = self.winner
        return (
            f"Training the winner of study {winner.study!r} (trial {winner.trial_number}: "
            f"{wording.settings(winner.params)}) as study {self.config.study!r}. The search does "
            "not count it."
        )

    @property
    def checkpoint_text(self) -> str:
        """The message with the checkpoint's path."""
        files = StudyFiles(folder=self.config.home, study=self.config.study)
        folder = files.checkpoints(0)
        if newest := layout.newest_whole(folder):
            return f"checkpoint: {newest}"
        if folder.is_dir() and any(folder.iterdir()):
            return f"checkpoint: files in {folder}"
        return (
            "checkpoint: none. Write trial.save_checkpoint(state, step) in a function, or save to "
            '"{checkpoint_dir}" in a command.'
        )


def winner_run(
    config: StudyConfig, environ: Mapping[str, str], *, trials: int | None = None
) -> WinnerRun:
    """Builds the study that trains the winner of another one.

    Args:
        config: The study with the winner.
        environ: May have `CUDA_VISIBLE_DEVICES`.
        trials: `--trials`, which cannot be combined with it.

    Raises:
        TunerError: If no trial of the study has completed, or there is no single best trial.
    """
    if trials is not None:
        problem = "does not go with --best, which trains one trial. Leave it out."
        raise ConfigError(problem, key="--trials")
    if len(config.objectives) > 1:
        problem = (
            f"needs one objective, but the study has {len(config.objectives)}, so that no trial is "
            "the best. Choose one of tuner best --top 10, and run its line of tuner best --format "
            "command."
        )
        raise ConfigError(problem, file=config.file, key="--best")
    (winner,) = load_top(config.storage, config.study, n=1)
    return WinnerRun(config=_config(config, winner, environ), winner=winner)


def _config(
    config: StudyConfig, winner: BestConfiguration, environ: Mapping[str, str]
) -> StudyConfig:
    name = winner_run_of(config.study, winner.trial_number)
    params = dict(winner.params)
    constants = {name: {"value": value} for name, value in json.loads(json.dumps(params)).items()}
    resources = _resources(config, environ)
    found = config.model_copy(
        update={
            "study": name,
            "search_space": SearchSpace(parameters=(), constants=params),
            "sampler": SamplerConfig.model_validate({"name": "random", "seed": winner.seed}),
            "pruner": PrunerConfig.model_validate("none"),
            "budget": BudgetConfig(trials=1),
            "trial": config.trial.model_copy(update={"resources": resources}),
            "prior": None,
            "transfer": (),
            "confirm": None,
            "widen": False,
            "on_best": None,
            "on_failure": None,
        }
    )
    document = read_yaml(config.text)
    if not isinstance(document, dict):
        return found
    kept = {key: each for key, each in document.items() if key not in _NOT_OF_THE_RUN}
    own = {
        "study": name,
        "storage": document.get("storage", f"sqlite:///{config.study}.db"),
        "search_space": constants,
        "sampler": {"name": "random", "seed": winner.seed},
        "pruner": "none",
        "budget": {"trials": 1},
    }
    return found.with_text(yaml.safe_dump(kept | own, sort_keys=False))


def _resources(config: StudyConfig, environ: Mapping[str, str]) -> ResourcesConfig | None:
    """All devices if the program can use several; else the resources of the study's trials."""
    trial = config.trial
    texts: Sequence[str] = (*(trial.command or ()), *trial.env.values())
    rule = trial.resources.rule if trial.resources is not None else None
    is_wide = isinstance(rule, FixedWidth) and n_devices_of(rule.width) > 1
    uses_several = is_wide or trial.parallel is not None or any("{gpus}" in each for each in texts)
    if not uses_several:
        return trial.resources
    host = find_devices(config, environ, None)
    host.probe.close()
    devices = host.devices
    key = "cpus" if devices[0].kind is DeviceKind.CPU else "gpus"
    wide = ResourcesConfig.model_validate({key: len(devices)})
    if trial.resources is None:
        return wide
    return trial.resources.model_copy(update={"cpus": wide.cpus, "gpus": wide.gpus, "memory": None})
