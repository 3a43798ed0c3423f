"""A user's folder with a study in it, and the commands that the user types there."""

from __future__ import annotations

import functools
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.e2e.warm_python import Command, WarmProcess, WarmPython

REPOSITORY = Path(__file__).parents[2]
_PATH = str(REPOSITORY)
#: Less than a test may take (pyproject.toml), so that the process that hangs is named.
TIMEOUT_S = 100.0
_POLL_S = 0.02
_RUN = (sys.executable, "-m", "tuner.run")
_BEST = (sys.executable, "-m", "tuner.best")
# What the installed `tuner` script does; the tests run also where the package is not installed.
_TUNER = (
    sys.executable,
    "-c",
    "import sys; sys.argv[0] = 'tuner'; from tuner.cli.entry import tuner; tuner()",
)
#: Of whoever starts the tests; would change what is printed or which devices there are.
_NOT_INHERITED = (
    *("CUDA_VISIBLE_DEVICES", "COLUMNS", "LINES", "FORCE_COLOR", "NO_COLOR", "PYTEST_ADDOPTS"),
    *("TTY_COMPATIBLE", "OMP_NUM_THREADS", "GIT_DIR", "GIT_WORK_TREE"),
)
#: Beginnings of variables that are read when a process begins.
_READ_AT_BEGIN = ("PYTHON", "LD_", "LC_", "LANG", "MALLOC_", "OPENBLAS_", "MKL_")
_ATTEMPTS = """
    select trials.number, a.number, a.state, a.outcome, a.cause, a.detail, a.seed, a.params, a.pid
    from tuner_attempts a join trials on trials.trial_id = a.trial_id
    order by trials.number, a.number
"""


@functools.cache
def _warm_python(begin: tuple[tuple[str, str], ...]) -> WarmPython:
    return WarmPython(dict(begin))


@dataclass(frozen=True, kw_only=True)
class Ended:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        return self.out + self.err


@dataclass(frozen=True, kw_only=True)
class AttemptRecord:
    """A row of `tuner_attempts`."""

    trial: int
    number: int
    state: str
    outcome: str | None
    cause: str | None
    detail: str
    seed: int
    params: str
    pid: int | None


@dataclass(frozen=True, kw_only=True)
class Running:
    """A command that was started and not yet waited for."""

    process: subprocess.Popen[bytes] | WarmProcess
    out_file: Path
    err_file: Path

    @property
    def out(self) -> str:
        """What it has printed so far."""
        return self.out_file.read_text()

    def signal(self, number: signal.Signals) -> None:
        """To this process alone, as `kill` does; a terminal would signal the group."""
        self.process.send_signal(number)

    def wait(self, timeout_s: float = TIMEOUT_S) -> Ended:
        code = self.process.wait(timeout_s)
        return Ended(code=code, out=self.out, err=self.err_file.read_text())

    def end(self) -> None:
        """Ends what a failed test has left running; its guardian ends its workers."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(TIMEOUT_S)


@dataclass(kw_only=True)
class StudyFolder:
    """A folder of its own for one test, with nothing of the tuner in it."""

    path: Path
    env: dict[str, str] = field(default_factory=dict)
    #: Starts a new interpreter for each command, for tests of the start itself.
    is_cold: bool = False
    _started: list[Running] = field(default_factory=list)

    def write(self, name: str, text: str) -> Path:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def study(self, file: str = "study.yaml", **keys: object) -> Path:
        """Writes a study file: a small study, with these keys instead or besides. None: absent."""
        content = {
            "study": "small",
            "trial": {"function": "forecast:train"},
            "search_space": {"x": {"type": "float", "low": 0, "high": 1}},
            "sampler": {"name": "random", "seed": 1},
            "devices": "cpu:2",
            "budget": {"trials": 4},
            **keys,
        }
        content = {key: value for key, value in content.items() if value is not None}
        return self.write(file, yaml.safe_dump(content, sort_keys=False))

    def tune(self, *words: str, file: str = "study.yaml", **options: Any) -> Ended:
        """`python -m tuner.run study.yaml ...`, to its end."""
        return self.start(*words, file=file, **options).wait()

    def start(self, *words: str, file: str = "study.yaml", **options: Any) -> Running:
        return self._start([*_RUN, file, *words], **options)

    def tuner(self, *words: str, **options: Any) -> Ended:
        """`tuner ...`, to its end."""
        return self.start_tuner(*words, **options).wait()

    def tuner_words(self, *words: str) -> list[str]:
        """`tuner ...` for a process that is started otherwise."""
        return [*_TUNER, *words]

    def start_tuner(self, *words: str, **options: Any) -> Running:
        return self._start([*_TUNER, *words], **options)

    def best(self, *words: str) -> Ended:
        """`python -m tuner.best ...`, to its end."""
        return self._start([*_BEST, *words]).wait()

    def run(
        self,
        *words: str,
        env: Mapping[str, str] | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> Ended:
        """Another program, to its end."""
        return self._start(words, env=env).wait(timeout_s)

    def python(self, *words: str) -> Ended:
        return self._start([sys.executable, *words]).wait()

    def start_python(self, *words: str) -> Running:
        return self._start([sys.executable, *words])

    def environment(self, env: Mapping[str, str] | None = None) -> dict[str, str]:
        inherited = {k: v for k, v in os.environ.items() if k not in _NOT_INHERITED}
        ours = {"PYTHONPATH": _PATH, "PYTHONWARNINGS": "default"}
        # As in an activated environment.
        inherited["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        return inherited | ours | self.env | dict(env or {})

    def _start(
        self,
        words: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
    ) -> Running:
        # Files, and not pipes: a test reads what is there while the command runs.
        stem = self.path.with_name(f"command-{len(self._started)}")
        out_file, err_file = stem.with_suffix(".out"), stem.with_suffix(".err")
        process: subprocess.Popen[bytes] | WarmProcess
        if self._is_warm(words) and not (env or prefix):
            process = self._fork(words[1:], out_file, err_file)
        else:
            process = self._spawn([*prefix, *words], env, out_file, err_file)
        self._started.append(Running(process=process, out_file=out_file, err_file=err_file))
        return self._started[-1]

    def _is_warm(self, words: Sequence[str]) -> bool:
        is_ours = tuple(words[:3]) in (_RUN, _BEST, _TUNER)
        has_other_path = self.env.get("PYTHONPATH", _PATH) != _PATH
        return is_ours and not self.is_cold and not has_other_path

    def _fork(self, words: Sequence[str], out_file: Path, err_file: Path) -> WarmProcess:
        command = Command(
            words=words,
            folder=str(self.path),
            env=self.environment(),
            out_file=str(out_file),
            err_file=str(err_file),
        )
        begin = {k: v for k, v in command.env.items() if k.startswith(_READ_AT_BEGIN)}
        return _warm_python(tuple(sorted(begin.items()))).start(command)

    def _spawn(
        self, words: Sequence[str], env: Mapping[str, str] | None, out_file: Path, err_file: Path
    ) -> subprocess.Popen[bytes]:
        with out_file.open("wb") as out, err_file.open("wb") as err:
            return subprocess.Popen(
                words,
                cwd=self.path,
                env=self.environment(env),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )

    def rows(self, query: str, *values: object, database: str = "small.db") -> list[Any]:
        connection = sqlite3.connect(f"file:{self.path / database}?mode=ro", uri=True, timeout=10)
        try:
            return connection.execute(query, values).fetchall()
        finally:
            connection.close()

    def attempts(self, database: str = "small.db") -> list[AttemptRecord]:
        names = ("trial", "number", "state", "outcome", "cause", "detail", "seed", "params", "pid")
        rows = self.rows(_ATTEMPTS, database=database)
        return [AttemptRecord(**dict(zip(names, row, strict=True))) for row in rows]

    def states(self, database: str = "small.db") -> list[str]:
        """States of the trials, in their order."""
        query = "select state from trials order by number"
        return [state for (state,) in self.rows(query, database=database)]

    def execute(self, statement: str, *values: object, database: str = "small.db") -> None:
        connection = sqlite3.connect(self.path / database)
        with connection:
            connection.execute(statement, values)
        connection.close()

    def files(self) -> set[str]:
        """Names in the folder."""
        return {path.name for path in self.path.iterdir()}

    def end_all(self) -> None:
        """Ends what a failed test has left running."""
        for command in self._started:
            command.end()


def wait_until(condition: Callable[[], bool], what: str, timeout_s: float = TIMEOUT_S) -> None:
    """Polls until the condition holds; fails the test after `timeout_s`."""
    give_up_at_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < give_up_at_s, f"waited {timeout_s:g} s in vain until {what}"
        time.sleep(_POLL_S)
