"""Checks that given configurations fit a search space: all of them, or none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from optuna.distributions import BaseDistribution

from tuner.actions.config_input import Given
from tuner.errors import ConfigError
from tuner.search_spaces import ParamValue, SearchSpace
from tuner.search_spaces.fit import Misfits, fit, fit_distributions

_MAX_LINES = 20


def fit_all(
    given: Sequence[Given], fit: Callable[[Given], dict[str, ParamValue]]
) -> list[dict[str, ParamValue]]:
    """Fits all configurations, or raises an error.

    Raises:
        ConfigError: With a line for each mistake.
    """
    fitting, lines = [], []
    for each in given:
        try:
            fitting.append(fit(each))
        except Misfits as error:
            lines += [f"{each.place}: {mistake}" for mistake in error.mistakes]
    if lines:
        rest = len(lines) - _MAX_LINES
        more = [f"... and {rest} more mistakes."] if rest > 0 else []
        raise ConfigError("\n".join([*lines[:_MAX_LINES], *more]))
    return fitting


def fitted(given: Given, space: SearchSpace) -> dict[str, ParamValue]:
    """The values to try, of the types that the space has, without its constants.

    Raises:
        Misfits: If the space has no such configuration.
    """
    return fit(space, given.params, is_text=given.is_text)


def fitted_freely(
    given: Given, distributions: Mapping[str, BaseDistribution]
) -> dict[str, ParamValue]:
    """Like `fitted` for a define-by-run space: checked as far as trials have shown it.

    Raises:
        Misfits: If trials could not have had a value.
    """
    return fit_distributions(distributions, given.params, is_text=given.is_text)
