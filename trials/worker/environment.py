"""A trial as environment variables, for the program and its child processes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from tuner.config.notation.command_template import ENV_SWEEP, render_env
from tuner.launch.request import trial_environment
from tuner.search_spaces import ParamValue
from tuner.trials.context import TrialContext


def builtins_of(context: TrialContext) -> dict[str, ParamValue]:
    """Values for `{name}` placeholders of the study file, in addition to parameters."""
    return {
        "trial_number": context.number,
        "attempt_number": context.attempt_number,
        "seed": context.seed,
        "checkpoint_dir": str(context.checkpoint_path),
        "gpus": len(context.device_labels),
    }


def environment_of(context: TrialContext, templates: Mapping[str, str]) -> dict[str, str]:
    """The tuner's variables, and those of the study file's `trial.env`."""
    builtins = builtins_of(context)
    return trial_environment(
        context.params,
        number=context.number,
        attempt_number=context.attempt_number,
        seed=context.seed,
        checkpoint_dir=str(context.checkpoint_path),
    ) | render_env(templates, context.params, builtins)


def write_sweep_parameters(context: TrialContext, environment: Mapping[str, str]) -> None:
    """Writes parameters for `wandb.config`, as W&B's sweep agent does.

    Args:
        context: The trial.
        environment: Environment of the program; without the variable with the file's name nothing
            is written.
    """
    if path := environment.get(ENV_SWEEP):
        # JSON is YAML, as which W&B reads it.
        values = {name: {"value": value} for name, value in context.params.items()}
        Path(path).write_text(json.dumps({"wandb_version": 1, **values}))
