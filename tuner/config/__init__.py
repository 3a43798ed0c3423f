"""From study.yaml to frozen, checked values."""

from tuner.config.sections.budget import BudgetConfig
from tuner.config.sections.checkpoints import CheckpointsConfig
from tuner.config.sections.resources import ResourcesConfig
from tuner.config.study import (
    Direction,
    Parallel,
    PrunerConfig,
    SamplerConfig,
    Source,
    StudyConfig,
    TrialConfig,
)
from tuner.config.study_file import load_study_file

__all__ = [
    "BudgetConfig",
    "CheckpointsConfig",
    "Direction",
    "Parallel",
    "PrunerConfig",
    "ResourcesConfig",
    "SamplerConfig",
    "Source",
    "StudyConfig",
    "TrialConfig",
    "load_study_file",
]
