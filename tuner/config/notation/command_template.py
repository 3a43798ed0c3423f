"""`{name}` placeholders in a trial's command and environment, and their values.

Pure text: the study file is checked with `places`, the launcher fills with `render_argv`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from tuner.search_spaces.values import ParamValue, format_value

ENV_SWEEP = "WANDB_SWEEP_PARAM_PATH"
"""Names the file in which `wandb.init` finds the parameters that a sweep has chosen."""

BUILTINS = {
    "trial_number": "number of the trial in its study, from 0",
    "attempt_number": "1 for the first start of the trial, 2 for its first restart, and so on",
    "seed": "seed of this attempt, derived from `sampler.seed`",
    "checkpoint_dir": "folder for the trial's files; it exists, and a restart gets the same one",
    "gpus": "number of devices of the trial, also where they are CPU slots",
}
"""Names that every attempt can use, with their meaning. Parameters of the same name win."""

_PIECE = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


class TemplateError(ValueError):
    """A brace that is neither a place nor doubled; to be read after the key."""


def places(template: str) -> tuple[str, ...]:
    """Names of the `{name}` places in a text; `{{` and `}}` are braces.

    Raises:
        TemplateError: If a brace has no partner.
    """
    names = []
    for match in _PIECE.finditer(template):
        if match[1] is not None:
            names.append(match[1])
        elif match[0] in "{}":
            raise TemplateError(
                f"is {template!r}, which has a lone '{match[0]}'. "
                "Write '{{' or '}}' for a brace that is no place."
            )
    return tuple(names)


def render_argv(
    argv: Sequence[str],
    params: Mapping[str, ParamValue],
    builtins: Mapping[str, ParamValue],
) -> list[str]:
    """Fills the placeholders of a command.

    If a placeholder has no value because the parameter's `when` does not hold, its whole element is
    left out: `--momentum={momentum}` disappears with its flag. The same applies to an element that
    is only a placeholder, `{amp}`, if its value is an empty text.
    """
    values = {**builtins, **params}
    filled = ((element, _fill(element, values)) for element in argv)
    return [text for element, text in filled if text or (text is not None and not places(element))]


def render_env(
    env: Mapping[str, str],
    params: Mapping[str, ParamValue],
    builtins: Mapping[str, ParamValue],
) -> dict[str, str]:
    """Fills the placeholders of environment variables; one with an absent parameter is left out."""
    values = {**builtins, **params}
    filled = {name: _fill(template, values) for name, template in env.items()}
    return {name: text for name, text in filled.items() if text is not None}


def _fill(template: str, values: Mapping[str, ParamValue]) -> str | None:
    if any(name not in values for name in places(template)):
        return None

    def replacement(match: re.Match[str]) -> str:
        name = match[1]
        return match[0][0] if name is None else format_value(values[name])

    return _PIECE.sub(replacement, template)
