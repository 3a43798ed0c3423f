"""From study.yaml to frozen, checked values."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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

_SECTIONS = ("budget", "checkpoints", "resources", "search", "trial")
_MODULES = ("study", "study_file", *(f"sections.{each}" for each in _SECTIONS))

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Imports a name on first use: workers use one module of this package, and no model."""
        if name in __all__:
            for room in _MODULES:
                if hasattr(module := import_module(f"{__name__}.{room}"), name):
                    return getattr(module, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
