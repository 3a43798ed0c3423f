"""From study.yaml to frozen, checked values."""

from tuner.config.sections.budget import BudgetConfig
from tuner.config.sections.checkpoints import CheckpointsConfig
from tuner.config.sections.resources import ResourcesConfig
from tuner.config.sections.search import PrunerConfig, SamplerConfig
from tuner.config.sections.trial import Parallel, TrialConfig
from tuner.config.study import Direction, Source, StudyConfig
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
