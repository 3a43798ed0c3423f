"""A trial as environment variables, for the program and its child processes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from tuner.config.notation.command_template import ENV_SWEEP, render_env
from tuner.domain.messages import Assign
from tuner.launch.request import trial_environment
from tuner.search_spaces.values import ParamValue


def builtins_of(assign: Assign) -> dict[str, ParamValue]:
    """Values for `{name}` placeholders of the study file, in addition to parameters."""
    return {
        "trial_number": assign.trial_number,
        "attempt_number": assign.attempt_number,
        "seed": assign.seed,
        "checkpoint_dir": assign.checkpoint_dir,
        "gpus": len(assign.devices),
    }


def environment_of(
    assign: Assign, params: Mapping[str, ParamValue], templates: Mapping[str, str]
) -> dict[str, str]:
    """The tuner's variables, and those of the study file's `trial.env`.

    Args:
        assign: The trial.
        params: All parameters, also those of a space that is a function.
        templates: Environment of the study file, with `{param}` places.
    """
    return trial_environment(
        params,
        number=assign.trial_number,
        attempt_number=assign.attempt_number,
        seed=assign.seed,
        checkpoint_dir=assign.checkpoint_dir,
    ) | render_env(templates, params, builtins_of(assign))


def write_sweep_parameters(
    params: Mapping[str, ParamValue], environment: Mapping[str, str]
) -> None:
    """Writes parameters for `wandb.config`, as W&B's sweep agent does.

    Args:
        params: All parameters of the trial.
        environment: Environment of the program; without the variable with the file's name nothing
            is written.
    """
    if path := environment.get(ENV_SWEEP):
        # JSON is YAML, as which W&B reads it.
        values = {name: {"value": value} for name, value in params.items()}
        Path(path).write_text(json.dumps({"wandb_version": 1, **values}))
