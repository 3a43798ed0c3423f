"""Engines by name. The module of an engine is imported when the engine is used."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import cast

from tuner.config.sections.engine import EngineConfig, EngineName
from tuner.engines.port import Engine
from tuner.errors import EngineError

_CLASSES = {
    EngineName.SLURM: "tuner.engines.slurm.engine:SlurmEngine",
    EngineName.KUBERNETES: "tuner.engines.kubernetes.engine:KubernetesEngine",
    EngineName.RAY: "tuner.engines.ray.engine:RayEngine",
    EngineName.SSH: "tuner.engines.ssh.engine:SshEngine",
}
#: Required packages; the name of the extra is that of the engine.
_PACKAGES = {EngineName.KUBERNETES: "kubernetes"}


def open_engine(
    config: EngineConfig,
    *,
    is_installed: Callable[[str], bool] = lambda package: find_spec(package) is not None,
) -> Engine:
    """Makes the engine of a study file, not connected yet.

    Args:
        config: `engine` of the study file.
        is_installed: Whether a package can be imported.

    Raises:
        EngineError: If the package of the engine is not installed.
    """
    package = _PACKAGES.get(config.name)
    if package is not None and not is_installed(package):
        raise EngineError(
            f"engine: {config.name.value} needs the package {package}. Install it: "
            f"pip install 'gpu-tuner[{config.name.value}]'"
        )
    module, _, name = _CLASSES[config.name].partition(":")
    make = cast("Callable[[EngineConfig], Engine]", getattr(import_module(module), name))
    return make(config)
