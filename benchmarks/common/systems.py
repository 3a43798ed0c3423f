"""The systems under test as data: the command of each, its environment, its packages."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.peers import python_of

ROOT = Path(__file__).resolve().parents[2]

# One thread per trial for all: 8 trials with a pool of threads each would fight for the cores.
COMMON_ENV = {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}

# Loopback only, no telemetry, no dashboard: what slows a start-up and a user can turn off, is off.
RAY_ENV = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
}


@dataclass(frozen=True, kw_only=True)
class System:
    """How one system is started in the folder of a run.

    `venv` is the peer's environment, or None for the interpreter that runs the benchmark.
    `gap_by` says where the pauses between trials come from.
    """

    title: str
    program: tuple[str, ...]
    packages: tuple[str, ...]
    gap_by: str
    venv: str | None = None
    samplers: frozenset[str] = frozenset({"random"})
    env: Mapping[str, str] = field(default_factory=dict)

    def python(self, venvs: Path) -> Path:
        return Path(sys.executable) if self.venv is None else python_of(venvs, self.venv)

    def command(self, venvs: Path) -> list[str]:
        return [str(self.python(venvs)), *self.program]

    def environment(self, folder: Path) -> dict[str, str]:
        """The caller's environment, with what a system would write into $HOME in `folder`.

        Byte code is cached, as it is by default: else a checkout is compiled again by each run,
        and an installed peer is not.
        """
        kept_here = {"SYNETUNE_FOLDER": str(folder / "syne-tune")}
        env = {**os.environ, **COMMON_ENV, **kept_here, **self.env}
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        return env


SYSTEMS: dict[str, System] = {
    "tuner": System(
        title="tuner",
        program=("-m", "tuner.run", "study.yaml"),
        packages=("tuner", "torch", "optuna"),
        gap_by="device",
        samplers=frozenset({"random", "tpe"}),
        env={
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).strip(":")
        },
    ),
    "optuna": System(
        title="Optuna, one process per slot on SQLite",
        program=("run_optuna.py",),
        packages=("optuna", "torch"),
        gap_by="process",
        samplers=frozenset({"random", "tpe"}),
    ),
    "ray": System(
        title="Ray Tune, a process per trial",
        program=("run_ray.py",),
        packages=("ray", "torch"),
        gap_by="matched",
        venv="ray",
        env=RAY_ENV,
    ),
    "ray-reuse": System(
        title="Ray Tune, reused actors",
        program=("run_ray.py", "--reuse-actors"),
        packages=("ray", "torch"),
        gap_by="process",
        venv="ray",
        env=RAY_ENV,
    ),
    "syne-tune": System(
        title="Syne Tune, local backend",
        program=("run_syne_tune.py",),
        packages=("syne-tune", "torch"),
        gap_by="matched",
        venv="syne-tune",
    ),
}
