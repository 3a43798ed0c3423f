"""Whether memory ran out for us: told by the own cgroup, and not by what others on the host do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.study_folder import REPOSITORY
from tuner.launch.local_host.oom_kills import count_oom_kills

V2 = "0::/user.slice/job\n"
V1 = "5:cpu,cpuacct:/job\n4:memory:/job\n1:name=systemd:/\n0::/\n"
VMSTAT = {"proc/vmstat": "oom_kill 77\nnr_free_pages 5\n"}
EVENTS = "low 0\nmax 9\noom 4\noom_kill 3\noom_group_kill 0\n"
CONTROL = "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param(VMSTAT, 77, id="no-cgroups"),
        pytest.param({}, 0, id="nothing"),
        pytest.param(
            {"proc/self/cgroup": V2, "sys/fs/cgroup/user.slice/job/memory.events": EVENTS},
            3,
            id="v2",
        ),
        pytest.param(
            {"proc/self/cgroup": V2, "sys/fs/cgroup/user.slice/memory.events": EVENTS},
            3,
            id="v2-controller-of-the-parent",
        ),
        pytest.param(
            {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.events": EVENTS},
            3,
            id="v2-in-a-container",
        ),
        pytest.param(
            {"proc/self/cgroup": "0::/../../x\n", "sys/fs/cgroup/x/memory.events": EVENTS},
            77,
            id="v2-outside-of-the-namespace",
        ),
        pytest.param(
            {
                "proc/self/cgroup": V1,
                "sys/fs/cgroup/memory/job/memory.oom_control": CONTROL,
                "sys/fs/cgroup/memory/memory.oom_control": "oom_kill 50\n",
            },
            3,
            id="v1",
        ),
        pytest.param(
            {"proc/self/cgroup": V1, "sys/fs/cgroup/memory/memory.oom_control": CONTROL},
            3,
            id="v1-in-a-container",
        ),
        pytest.param(
            {
                "proc/self/cgroup": V1,
                "sys/fs/cgroup/memory/job/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\n",
            },
            77,
            id="v1-of-a-kernel-that-does-not-count",
        ),
        pytest.param(
            {"proc/self/cgroup": V2, "sys/fs/cgroup/unified/user.slice/job/memory.events": EVENTS},
            3,
            id="hybrid",
        ),
    ],
)
def test_the_own_cgroup_tells_first(tmp_path: Path, files: dict[str, str], expected: int) -> None:
    for name, text in {**(VMSTAT if files else {}), **files}.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    assert count_oom_kills(tmp_path) == expected


#: Joins a cgroup, has a child killed for want of memory there, and tells how the count rose.
GREEDY = """
import os, subprocess, sys
from pathlib import Path
from tuner.launch.local_host.oom_kills import count_oom_kills

Path(sys.argv[1], "cgroup.procs").write_text(str(os.getpid()))
before = count_oom_kills()
child = "b = []\\nwhile True: b.append(bytearray(b'x') * 2**20)"
code = subprocess.run([sys.executable, "-c", child]).returncode
print(code, count_oom_kills() - before)
"""
_LIMITS = {"memory.limit_in_bytes", "memory.max"}


def _own_memory_cgroup() -> Path | None:
    mounts = Path("/sys/fs/cgroup")
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "memory":
            return mounts / "memory" / path.lstrip("/")
        if not controllers and (mounts / "cgroup.controllers").exists():
            return mounts / path.lstrip("/")
    return None


@pytest.fixture
def small_cgroup() -> Iterator[Path]:
    """One of 48 MiB."""
    own = _own_memory_cgroup()
    if own is None:
        pytest.skip("this machine has no memory cgroups")
    folder = own / f"tuner-test-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup can be made here: {error}")
    try:
        limits = [folder / name for name in _LIMITS if (folder / name).exists()]
        if not limits:
            pytest.skip("the memory controller is not for cgroups below this one")
        limits[0].write_text(str(48 * 2**20))
        if (swap := folder / "memory.swap.max").exists():
            swap.write_text("0")
        yield folder
    finally:
        folder.rmdir()


def test_a_kill_in_another_cgroup_is_not_ours(small_cgroup: Path) -> None:
    ours = count_oom_kills()
    done = subprocess.run(
        [sys.executable, "-c", GREEDY, str(small_cgroup)],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )
    assert done.stdout.split() == [str(-signal.SIGKILL), "1"], done.stderr
    if "memory.limit_in_bytes" in {each.name for each in small_cgroup.iterdir()}:
        # In v2 the count of a cgroup includes those below it, such as this one.
        assert count_oom_kills() == ours
