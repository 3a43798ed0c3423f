"""How soon trials of a lost node run on another one: the tuner beside Ray Tune.

    python -m benchmarks.node_lost --systems tuner ray --ways killed frozen

Four nodes of two slots, six trials that save each step of a second; one node is idle. Then all
processes of a node with two trials are killed or frozen. A node of the tuner has PID and host
names of its own (`unshare`, which needs root), so that no other one can look at its processes; the
database and the folder stay.
"""

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import psutil

from benchmarks.common.machine import package_versions, this_machine
from benchmarks.common.processes import started
from benchmarks.common.results import write_json
from benchmarks.common.systems import RAY_ENV, SYSTEMS
from benchmarks.common.workload import PROGRAMS
from benchmarks.database.fleet import ray_nodes
from benchmarks.database.servers import POSTGRESQL, new_database, run_postgresql

N_NODES, N_SLOTS, N_TRIALS = 4, 2, 6
_LIMIT_S = 240.0
STUDY = """\
study: lost
storage: {url}
objectives: {{value: minimize}}
trial: {{function: lost_node_trial:train, stop_grace: 2s}}
search_space: {{x: {{type: float, low: 0.0, high: 1.0}}}}
sampler: random
pruner: none
devices: cpu:{slots}
budget: {{trials: {trials}}}
"""


@dataclass(frozen=True, kw_only=True)
class Lost:
    """One run."""

    system: str
    way: str
    #: Seconds from the loss to the end of each lost trial's first step elsewhere.
    after_s: tuple[float, ...]
    #: Steps of these trials that were trained twice.
    n_repeated: int
    load_before: float


def measure(system: str, way: str) -> Lost:
    with tempfile.TemporaryDirectory(prefix="lost-", dir="/tmp") as name, ExitStack() as stack:
        folder, log = Path(name), Path(name) / "steps.jsonl"
        for program in ("lost_node_trial", "run_ray_lost_node"):
            shutil.copy(PROGRAMS / f"{program}.py", folder)
        log.touch()
        own = {"LOST_NODE_LOG": str(log), "PYTHONPATH": f"{folder}:{os.environ['PYTHONPATH']}"}
        env = SYSTEMS["tuner"].environment(folder) | RAY_ENV | own
        load = os.getloadavg()[0]
        lose = stack.enter_context(_SYSTEMS[system](folder, env, log))
        _until(lambda: len(_first_steps(log, 0)) == N_TRIALS, "all trials run")
        time.sleep(5)
        at_ns, lost = lose(way)
        _until(lambda: lost <= set(_first_steps(log, at_ns + 2_000_000_000)), "they run again")
        first = _first_steps(log, at_ns + 2_000_000_000)
        return Lost(
            system=system,
            way=way,
            after_s=tuple(round((first[trial] - at_ns) / 1e9, 1) for trial in sorted(lost)),
            n_repeated=sum(_n_repeated(log, trial) for trial in lost),
            load_before=load,
        )


Loss = Callable[[str], tuple[int, set[str]]]


@contextmanager
def _tuner(folder: Path, env: Mapping[str, str], log: Path) -> Iterator[Loss]:
    with ExitStack() as stack:
        url = stack.enter_context(new_database(POSTGRESQL, stack.enter_context(run_postgresql())))
        text = STUDY.format(url=url, slots=N_SLOTS, trials=N_TRIALS)
        (folder / "study.yaml").write_text(text)
        nodes: dict[str, int] = {}
        for number in range(N_NODES):
            name = f"node{number}"
            run = f"hostname {name} && exec {sys.executable} -m tuner.run study.yaml"
            space = ["unshare", "--pid", "--uts", "--mount-proc", "--fork", "--kill-child"]
            output = folder / name
            output.mkdir()
            nodes[name] = stack.enter_context(
                started([*space, "sh", "-c", f"cd {folder} && {run}"], folder=output, env=env)
            ).pid
            # One after the other: the last one finds all trials taken.
            n_running = min(N_SLOTS * (number + 1), N_TRIALS)
            _until(partial(_run_at_least, log, n_running), "its trials run")
        time.sleep(10)  # The idle node has joined by then.
        yield lambda way: _lose(nodes["node1"], way, _trials_on(log, "node1"))


@contextmanager
def _ray(folder: Path, env: Mapping[str, str], log: Path) -> Iterator[Loss]:
    with ExitStack() as stack:
        address = stack.enter_context(ray_nodes(folder, env, N_NODES, N_SLOTS))
        words = [sys.executable, "run_ray_lost_node.py", address, str(N_TRIALS)]
        stack.enter_context(started(words, folder=folder, env=env))

        def lose(way: str) -> tuple[int, set[str]]:
            pids = {_node_id(each): each.pid for each in _raylets(folder)}
            head = _head(pids)
            nodes = [node for node in pids if len(_trials_on(log, node)) == N_SLOTS]
            chosen = next(node for node in nodes if node != head)
            return _lose(pids[chosen], way, _trials_on(log, chosen))

        yield lose


_SYSTEMS = {"tuner": _tuner, "ray": _ray}


def _raylets(folder: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            is_ours = process.environ().get("LOST_NODE_LOG") == str(folder / "steps.jsonl")
            if is_ours and process.name() == "raylet":
                found.append(process)
        except psutil.Error:
            continue
    return found


def _node_id(raylet: psutil.Process) -> str:
    words = raylet.cmdline()
    return next(word.partition("=")[2] for word in words if word.startswith("--node_id="))


def _head(pids: Mapping[str, int]) -> str | None:
    for node, pid in pids.items():
        if "--head" in psutil.Process(pid).cmdline():
            return node
    return None


def _lose(pid: int, way: str, trials: set[str]) -> tuple[int, set[str]]:
    """Every process below one, and itself."""
    number = signal.SIGKILL if way == "killed" else signal.SIGSTOP
    root = psutil.Process(pid)
    all_of_it = [root, *root.children(recursive=True)]
    at_ns = time.monotonic_ns()
    for each in all_of_it:
        try:
            each.send_signal(number)
        except psutil.NoSuchProcess:
            continue
    return at_ns, trials


def _lines(log: Path) -> list[dict[str, object]]:
    # The last line may be half written.
    return [json.loads(line) for line in log.read_text().split("\n")[:-1]]


def _first_steps(log: Path, after_ns: int) -> dict[str, int]:
    """When each trial ended its first step after an instant, in nanoseconds."""
    found: dict[str, int] = {}
    for line in _lines(log):
        at_ns = int(str(line["at_ns"]))
        if at_ns > after_ns:
            found.setdefault(str(line["trial"]), at_ns)
    return found


def _trials_on(log: Path, node: str) -> set[str]:
    where = {str(line["trial"]): line["node"] for line in _lines(log)}
    return {trial for trial, place in where.items() if place == node}


def _run_at_least(log: Path, n_trials: int) -> bool:
    return len(_first_steps(log, 0)) >= n_trials


def _n_repeated(log: Path, trial: str) -> int:
    steps = [line["step"] for line in _lines(log) if line["trial"] == trial]
    return len(steps) - len(set(map(str, steps)))


def _until(is_so: Callable[[], bool], what: str) -> None:
    give_up_at_s = time.monotonic() + _LIMIT_S
    while not is_so():
        if time.monotonic() > give_up_at_s:
            raise SystemExit(f"Not within {_LIMIT_S:g} s: {what}.")
        time.sleep(0.05)


def table(runs: Sequence[Lost]) -> str:
    lines = [
        "| system | node | its trials run elsewhere after | steps repeated |",
        "|---|---|---|---|",
    ]
    for run in runs:
        after = ", ".join(f"{each:.1f}" for each in run.after_s)
        lines.append(f"| {run.system} | {run.way} | {after} s | {run.n_repeated} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--systems", nargs="+", choices=list(_SYSTEMS), default=list(_SYSTEMS))
    parser.add_argument("--ways", nargs="+", choices=["killed", "frozen"], default=["killed"])
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--output", type=Path, default=Path("benchmark-node-lost.json"))
    args = parser.parse_args()
    print(f"{this_machine()}, load {os.getloadavg()[0]:.1f}", flush=True)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path.cwd()), os.environ.get("PYTHONPATH", "")])
    runs = []
    for _ in range(args.repeats):
        for system in args.systems:
            for way in args.ways:
                runs.append(measure(system, way))
                print(runs[-1], file=sys.stderr, flush=True)
    print(table(runs))
    packages = package_versions(Path(sys.executable), ["ray", "optuna"])
    write_json(args.output, packages=packages, figures=[asdict(run) for run in runs])


if __name__ == "__main__":
    main()
