"""A Gaussian process over a small space, as a study file names it."""

from __future__ import annotations

from optuna.distributions import BaseDistribution, FloatDistribution
from optuna.samplers import BaseSampler

from tuner.config import SamplerConfig
from tuner.search.samplers.registry import build_sampler

DISTRIBUTIONS: dict[str, BaseDistribution] = {
    "x": FloatDistribution(0.0, 1.0),
    "y": FloatDistribution(0.0, 1.0),
}


def gaussian(n_startup_trials: int, name: str = "gp") -> BaseSampler:
    config = SamplerConfig.model_validate({"name": name, "n_startup_trials": n_startup_trials})
    return build_sampler(config, None, seed=0)
