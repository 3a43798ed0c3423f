"""A trial as environment variables, for the program and for what it starts."""

from __future__ import annotations

from collections.abc import Mapping

from tuner.config.notation.command_template import render_env
from tuner.launch.request import trial_environment
from tuner.search_spaces import ParamValue
from tuner.trials.context import TrialContext


def builtins_of(context: TrialContext) -> dict[str, ParamValue]:
    """What a `{place}` of the study file may name beside the parameters."""
    return {
        "trial_number": context.number,
        "attempt_number": context.attempt_number,
        "seed": context.seed,
        "checkpoint_dir": str(context.checkpoint_path),
        "gpus": len(context.device_labels),
    }


def environment_of(context: TrialContext, templates: Mapping[str, str]) -> dict[str, str]:
    """The variables that we set, and those of the study file's `trial.env`."""
    builtins = builtins_of(context)
    return trial_environment(
        context.params,
        number=context.number,
        attempt_number=context.attempt_number,
        seed=context.seed,
        checkpoint_dir=str(context.checkpoint_path),
    ) | render_env(templates, context.params, builtins)
