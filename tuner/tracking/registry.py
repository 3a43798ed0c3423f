"""Trackers by name: `tensorboard`, `mlflow`, `wandb`, and those of other packages.

Other packages register theirs under the entry point group `tuner.trackers`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from importlib.util import find_spec

from tuner.config.sections.track import TrackerConfig
from tuner.search.by_name import Catalogue, Place, make
from tuner.search_spaces.space import nearest
from tuner.tracking.mlflow_runs import MLflowTracker
from tuner.tracking.port import Tracker
from tuner.tracking.tensorboard_runs import TensorBoardTracker
from tuner.tracking.wandb_runs import WandbTracker

TRACKERS: Catalogue[Tracker] = Catalogue(
    classes={
        "mlflow": MLflowTracker,
        "tensorboard": TensorBoardTracker,
        "wandb": WandbTracker,
    },
    base=Tracker,
    group="tuner.trackers",
)
#: Required packages of built-in trackers; the name of the extra is that of the tracker.
_PACKAGES = {"mlflow": "mlflow", "tensorboard": "tensorboard", "wandb": "wandb"}


def check_trackers(
    configs: Mapping[str, TrackerConfig],
    *,
    file: str | None = None,
    is_installed: Callable[[str], bool] = lambda package: find_spec(package) is not None,
) -> None:
    """Checks `track` before anything starts.

    Args:
        configs: `track` of the study file.
        file: The study file as the user named it.
        is_installed: Tells whether a package can be imported.

    Raises:
        ConfigError: If a tracker is unknown or not installed, or an argument is wrong.
    """
    for name, config in configs.items():
        place = Place(file=file, key=f"track.{name}")
        package = _PACKAGES.get(name)
        if package is not None and not is_installed(package):
            raise place.error(
                f"needs the package {package}. Install it: pip install 'gpu-tuner[{name}]'"
            )
        make_tracker(name, config, place)


def make_tracker(name: str, config: TrackerConfig, place: Place) -> Tracker:
    """Makes a tracker that is not connected yet.

    Args:
        name: Its key below `track`.
        config: Its settings.
        place: Position of the key, for messages.

    Raises:
        ConfigError: If the tracker is unknown, or an argument is wrong.
    """
    if name not in TRACKERS.names:
        meant = nearest(name, TRACKERS.names)
        hint = f" Did you mean '{meant}'?" if meant else ""
        raise place.error(f"is no tracker. Use {', '.join(TRACKERS.names)}.{hint}")
    cls = TRACKERS.load(name, place)
    arguments = dict(config.arguments)
    if config.target is not None:
        arguments = {_first_argument(cls, name, place): config.target}
    return make(cls, arguments, name=name, place=place, parts={})


def _first_argument(cls: type[Tracker], name: str, place: Place) -> str:
    arguments = list(inspect.signature(cls).parameters)
    if not arguments:
        raise place.error(f"must be an empty mapping, because {name} has no arguments: {{}}.")
    return arguments[0]
