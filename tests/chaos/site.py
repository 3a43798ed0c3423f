"""A study in a folder of its own: its file, its dispatchers, what its trials leave behind."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import sqlalchemy as sa

from tests.chaos import checked
from tests.chaos.keeper import Keeper, in_container, on_host
from tests.chaos.step_log import StepLog
from tests.e2e.study_folder import StudyFolder
from tests.nvml_stub import NvmlStub, StubGpu
from tests.proxy import Proxy
from tuner.checkpoints.paths import StudyFiles
from tuner.search.pruners.asha import AshaPruner
from tuner.search.pruners.freeze_thaw import FreezeThawPruner
from tuner.search.rungs.table import RungTable

ENV_ID = "CHAOS_ID"
#: What a user may set who lives with machines that misbehave.
RETRIES = 3
MAX_DISK_MIB = 6
#: Whose trials pause and are resumed, at the reports of steps 1, 3 and 9, where a state was saved:
#: with `asha` one in three goes on, with `freeze_thaw` those of whom a model expects the most.
_PAUSING: Mapping[str, AshaPruner | FreezeThawPruner] = {
    "asha": AshaPruner(min_resource=1, reduction_factor=3),
    "freeze_thaw": FreezeThawPruner(min_resource=1, growth=3),
}
PRUNERS = ("none", *_PAUSING)
#: Two pages for the log and the identity of each of a thousand trials, and the checkpoints.
_DISK = "size=48m"
N_GPUS = 3
#: Number of the dispatcher whose network can be cut.
_BEHIND_PROXY = 1


@dataclass(kw_only=True)
class Site:
    """One study, and all that works on it.

    Args:
        study: Its name.
        folder: The user's folder.
        keepers: Of its dispatchers.
        has_own_disk: Whether its files are on a small disk, which can be filled.
        gpus: The stand-in GPUs; None for CPU slots.
        pruner: One of `PRUNERS`.
        stop_grace: In which a trial has to save.
    """

    study: str
    folder: StudyFolder
    keepers: list[Keeper]
    has_own_disk: bool
    gpus: NvmlStub | None = None
    pruner: str = "none"
    stop_grace: str = "3s"
    #: Keys of the study file besides those that all have.
    keys: Mapping[str, object] = field(default_factory=dict)
    #: What loads the best trial's checkpoint where this process cannot; gives its step.
    load_best: Callable[[], int] | None = None
    #: Trial, step and time of states that an object store has acknowledged; None without one.
    uploaded: list[tuple[int, int, float]] | None = None
    #: Times of which the database has forgotten all, to when that was noticed.
    forgotten: list[tuple[float, float]] = field(default_factory=list)
    n_trials: int = 0
    #: While its database is not there, and nobody types the command again.
    is_held: bool = False
    #: By trial: ends that count against its retries, at most.
    charged: Counter[int] = field(default_factory=Counter)
    #: Trial and step of checkpoints that were cut off.
    torn: set[tuple[int, int]] = field(default_factory=set)
    lost_gpus: set[int] = field(default_factory=set)
    #: Since the dispatcher's start, which takes no lost one up again.
    withdrawn_gpus: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.log = StepLog(self.folder.path.parent / "steps.log")

    @property
    def files(self) -> StudyFiles:
        return StudyFiles(folder=self.folder.path, study=self.study)

    @property
    def url(self) -> str:
        return self.folder.env["STORAGE"]

    @property
    def database_file(self) -> Path | None:
        """Of SQLite; None where a server has the database."""
        path = sa.make_url(self.url).database
        return Path(path) if path and self.url.startswith("sqlite") else None

    def rescued_files(self) -> list[Path]:
        """Databases that dispatchers wrote when theirs was gone."""
        file = self.database_file
        return sorted(file.parent.glob(f"{file.stem}*rescued*.db")) if file else []

    def put_in_place(self, rescued: Collection[Path]) -> None:
        """Makes the newest of them the study's database again."""
        file = self.database_file
        if file is None or not rescued:
            raise RuntimeError(f"{self.study}: its database was taken away, and nothing was saved")
        for suffix in ("-wal", "-shm"):
            file.with_name(file.name + suffix).unlink(missing_ok=True)
        max(rescued, key=lambda path: path.stat().st_mtime_ns).replace(file)

    @property
    def rungs(self) -> RungTable | None:
        """Where trials pause; None where they all train to their end."""
        return rungs_of(self.pruner) if self.pruner in _PAUSING else None

    @property
    def first_aim(self) -> int:
        """The step to which some trial gets soon."""
        return checked.N_STEPS if self.rungs is None else checked.SAVE_EVERY

    def allow(self, n_trials: int) -> None:
        """Writes the study file anew with a larger budget."""
        self.n_trials = n_trials
        width = {"cpus": "{ranks}"} if self.gpus is None else {"gpus": 1}
        ranks = {"ranks": {"type": "categorical", "choices": [1, 2]}}
        self.folder.study(
            study=self.study,
            storage="${STORAGE}",
            trial={
                "function": "checked:train",
                "resources": width,
                "retries": RETRIES,
                "stall_timeout": "6s",
                "stop_grace": self.stop_grace,
            },
            search_space={
                "x": {"type": "float", "low": 0, "high": 1},
                **({} if self.gpus else ranks),
            },
            sampler={"name": "random", "seed": 1},
            pruner=self._pruner_in_file(),
            budget={"trials": n_trials},
            **{
                "devices": "cpu:3" if self.gpus is None else "all",
                "checkpoints": {"keep": "best 30", "newest": 3, "max_disk": f"{MAX_DISK_MIB}MiB"},
                **self.keys,
            },
        )

    def _pruner_in_file(self) -> object:
        pruner = _PAUSING.get(self.pruner)
        if pruner is None:
            return "none"
        factor = "growth" if isinstance(pruner, FreezeThawPruner) else "reduction_factor"
        return {
            "name": self.pruner,
            "min_resource": pruner.least_rung,
            factor: pruner.reduction_factor,
        }

    def start(self) -> None:
        for keeper in self.keepers:
            keeper.start()

    def keep(self) -> bool:
        """Starts again what has ended too early; says whether all have reached the budget."""
        if self.is_held:
            return False
        for keeper in self.keepers:
            if keeper.poll() not in (None, 0):
                self.withdrawn_gpus = set(self.lost_gpus)
                keeper.start()
        return all(keeper.poll() == 0 for keeper in self.keepers)

    def show_gpus(self) -> None:
        """Tells the stand-in library which GPUs there are, and which are lost."""
        assert self.gpus is not None
        lost = frozenset({"lost"})
        self.gpus.write(
            [
                StubGpu(
                    uuid=f"GPU-{number}aaa",
                    flags=lost if number in self.lost_gpus else frozenset(),
                )
                for number in range(N_GPUS)
            ]
        )

    def close(self) -> None:
        for keeper in self.keepers:
            keeper.end()
            if keeper.proxy is not None:
                keeper.proxy.__exit__()
        if self.has_own_disk:
            subprocess.run(["umount", "--lazy", str(self.files.root.parent)], check=True)


def make_site(
    parent: Path,
    *,
    study: str,
    url: str,
    chaos_id: str,
    n_dispatchers: int = 1,
    gpus: NvmlStub | None = None,
    cuda_library: Path | None = None,
    pruner: str = "none",
) -> Site:
    """Lays out a study's folder.

    Where root does it, the second dispatcher is on a host of another name, behind a network that
    can be cut, and the third in a container that has the first one's host name.
    """
    folder_path = parent / study / "user"
    temporary = parent / study / "tmp"
    folder_path.mkdir(parents=True)
    temporary.mkdir()
    env = {
        "STORAGE": url,
        ENV_ID: chaos_id,
        checked.ENV_LOG: str(parent / study / "steps.log"),
        "TMPDIR": str(temporary),
        "OMP_NUM_THREADS": "1",
    }
    if gpus is not None:
        env |= gpus.env | {"TUNER_CUDA_LIBRARY": str(cuda_library)}
    folder = StudyFolder(path=folder_path, env=env)
    folder.write("checked.py", Path(checked.__file__).read_text())
    keepers = [_keeper(folder, study, number) for number in range(n_dispatchers)]
    has_own_disk = gpus is None and is_root()
    site = Site(
        study=study,
        folder=folder,
        keepers=keepers,
        has_own_disk=has_own_disk,
        gpus=gpus,
        pruner=pruner,
    )
    if has_own_disk:
        mount_point = site.files.root.parent
        mount_point.mkdir()
        disk = ["mount", "-t", "tmpfs", "-o", _DISK, "tuner-chaos", str(mount_point)]
        subprocess.run(disk, check=True)
    if gpus is not None:
        site.show_gpus()
    return site


def _keeper(folder: StudyFolder, study: str, number: int) -> Keeper:
    env = folder.environment()
    prefixes = ((), on_host(f"{study}-host-{number}"), in_container())
    proxy = None
    if number == _BEHIND_PROXY:
        url = sa.make_url(env["STORAGE"])
        assert url.port is not None
        proxy = Proxy(url.port).__enter__()
        through = url.set(port=proxy.port)
        env = {**env, "STORAGE": through.render_as_string(hide_password=False)}
    return Keeper(
        name=f"dispatcher-{number}",
        folder=folder.path,
        env=env,
        prefix=prefixes[number] if is_root() else (),
        proxy=proxy,
    )


def rungs_of(pruner: str) -> RungTable:
    """Where the trials of a pruner pause."""
    return _PAUSING[pruner].new_table(_PAUSING[pruner].least_rung)


def is_root() -> bool:
    """Who may mount a disk and be another host."""
    return os.geteuid() == 0
