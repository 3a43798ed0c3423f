"""Ray's part without a cluster: what is asked of it, refusals, a cluster that gives no answer."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.unit.engines.test_submission import folder, refusal, shared
from tuner.config.sections.engine import EngineConfig
from tuner.engines.port import AllocationOrder
from tuner.engines.ray import program
from tuner.engines.ray.engine import RayEngine
from tuner.engines.ray.link import RayLink
from tuner.errors import EngineError

__all__ = ["folder"]


def an_order(folder: Path, **values: object) -> AllocationOrder:
    given = {
        "study": "digits",
        "command": ("python", "-m", "tuner.run", "it's.yaml"),
        "folder": folder,
        "log_folder": folder / "logs",
        "stop_grace_s": 10.0,
    }
    return AllocationOrder(**{**given, **values})  # type: ignore[arg-type]


def an_engine(**ray: object) -> RayEngine:
    return RayEngine(EngineConfig.model_validate({"name": "ray", "ray": ray}))


def a_node(name: str, *, is_alive: bool = True, **resources: float) -> dict[str, object]:
    return {"id": name, "name": name, "is_alive": is_alive, "resources": resources}


def played_ray(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """A package `ray` that comes before a real one."""
    (folder / "ray").mkdir()
    (folder / "ray" / "__init__.py").write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(folder))


def test_a_dry_run_is_a_python_program_that_needs_no_tuner(tmp_path: Path) -> None:
    order = an_order(tmp_path, setup=("module load cuda",), time_s=3600.0, devices=4)
    text = an_engine(address="head:6379", resources={"tpu": 2}).render(order, [0, 1])
    compile(text, "submit.py", "exec")
    assert "import tuner" not in text
    # With the actors made by a stand-in for Ray's part, the program prints two names.
    (tmp_path / "submit.py").write_text(text.replace("    connect('head:6379')\n", PLAYED))
    done = subprocess.run(
        [sys.executable, str(tmp_path / "submit.py")], capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "tuner:digits:0\ntuner:digits:1\n", done.stderr
    assert "'tpu': 2" in text
    assert "head:6379" in text


PLAYED = "    submit = lambda orders: [order['name'] for order in orders]\n"


def test_the_shell_of_a_node_becomes_the_dispatcher(tmp_path: Path) -> None:
    says = 'import os, sys; print(os.getpid(), os.getcwd(), os.environ["A"], len(sys.stdin.read()))'
    order = an_order(
        tmp_path,
        command=(sys.executable, "-c", says),
        setup=("export A=$(cat)b", "cat > /dev/null"),
        environment={"GREETING": "it's me"},
    )
    (data,) = [an_engine()._as_data(order, 3)]
    with subprocess.Popen(["bash", "-s"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        said, _ = process.communicate(data["script"].encode(), timeout=30)
    assert said.decode().split() == [str(process.pid), str(tmp_path), "b", "0"]
    assert data["name"] == "tuner:digits:3"
    assert data["log"] == str(tmp_path / "logs" / "ray-3.log")


@pytest.mark.parametrize(
    ("asked", "demand"),
    [
        ({"cpus": 3, "gpus": 2}, {"CPU": 3.0, "GPU": 2.0}),
        ({"gpus": 4}, {"CPU": 1.0, "GPU": 4.0}),
        ({}, {"CPU": 4.0}),  # a whole node: the smallest one that has CPUs
        ({"memory": 2**30, "resources": {"tpu": 0.5}}, {"CPU": 4.0, "memory": 2.0**30, "tpu": 0.5}),
    ],
)
def test_what_an_allocation_takes(asked: dict[str, object], demand: dict[str, float]) -> None:
    order = {"cpus": None, "gpus": 0, "memory": None, "resources": {}} | asked
    nodes = [a_node("a", CPU=16), a_node("b", CPU=4), a_node("lost", is_alive=False, CPU=2)]
    assert program.demand_of(order, [*nodes, a_node("head")]) == demand


def test_room_is_that_of_nodes_which_are_alive() -> None:
    demand = {"CPU": 1.0, "GPU": 4.0}
    assert program.room_of(a_node("a", CPU=16, GPU=8), demand) == 2
    assert program.room_of(a_node("b", CPU=16, GPU=3), demand) == 0
    assert program.room_of(a_node("c", CPU=16), demand) == 0
    assert program.room_of(a_node("d", is_alive=False, CPU=16, GPU=8), demand) == 0
    assert program.why_pending(demand, [a_node("c", CPU=16)]) == "no node has 1 CPU, 4 GPU"
    assert program.why_pending(demand, [a_node("a", CPU=16, GPU=8)]) == (
        "waits for a node with 1 CPU, 4 GPU"
    )


@pytest.mark.parametrize(
    ("code", "is_asked", "ended"),
    [
        (0, False, ("ended", "")),
        (75, False, ("ended", "")),
        (2, False, ("failed", "exit code 2")),
        (-9, False, ("failed", "killed by signal 9")),
        (-15, True, ("ended", "")),
    ],
)
def test_how_an_allocation_has_ended(code: int, is_asked: bool, ended: tuple[str, str]) -> None:
    assert program.ending(code, is_asked) == ended


def test_names_of_studies_with_colons() -> None:
    assert program.place_of("tuner:a:b:12") == ("tuner:a:b", "a:b/12")


def test_ray_is_not_installed(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared(monkeypatch)
    played_ray(tmp_path, monkeypatch, "raise ModuleNotFoundError(\"No module named 'ray'\")")
    said = refusal(folder, engine="{name: ray}")
    assert said.startswith("engine: ray needs the package ray, in the version of the cluster. Inst")
    assert "pip install 'gpu-tuner[ray]'" in said


def test_no_cluster_at_the_address(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared(monkeypatch)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    said = refusal(folder, engine=f"{{name: ray, ray: {{address: '127.0.0.1:{port}'}}}}")
    assert said.startswith(f"No Ray cluster answers at 127.0.0.1:{port}: ")
    assert "ray start --head" in said


def test_a_file_as_database_of_several_nodes_is_refused_without_ray(folder: Path) -> None:
    said = refusal(folder, storage="sqlite:///digits.db", engine="{name: ray, nodes: 2}")
    assert "is an SQLite file, which one dispatcher at a time can use, but 2 nodes" in said


def test_a_cluster_that_gives_no_answer_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "import time\ninit = lambda **_: None\nnodes = lambda: time.sleep(600)\n"
    played_ray(tmp_path, monkeypatch, text)
    link = RayLink("auto")
    with pytest.raises(EngineError, match=r"at auto gave no answer for 0\.5 s\. Look: ray status"):
        link.ask("nodes", limit_s=0.5)
    # The process is another one then.
    with pytest.raises(EngineError, match="gave no answer"):
        link.ask("nodes", limit_s=0.1)


def test_a_process_that_ray_ends_is_a_lost_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "import os, sys\ndef init(**_):\n    print('GCS is gone', file=sys.stderr, flush=True)\n"
    played_ray(tmp_path, monkeypatch, f"{text}    os.abort()\n")
    with pytest.raises(EngineError, match="The Ray cluster at auto is lost: GCS is gone"):
        RayLink("auto").ask("nodes")


def test_an_own_allocation_is_told_by_the_environment() -> None:
    environ = {"TUNER_ALLOCATION": "tuner:digits:3", "TUNER_ALLOCATION_NUMBER": "3"}
    own = an_engine().own_allocation(environ)
    assert own is not None
    assert (own.name, own.number, own.is_requeued) == ("tuner:digits:3", 3, False)
    assert an_engine().own_allocation(dict(os.environ)) is None


def test_time_that_is_too_short_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        EngineError, match=r"engine\.time is 30 s, but trials are told to save 40 s"
    ):
        an_engine().check(an_order(tmp_path, time_s=30.0))


class PlayedTask:
    """A task of Ray for a node, which answers with the node's name."""

    def __init__(self, function: object, node: str = "") -> None:
        self.node = node

    def options(self, *, scheduling_strategy: str, **others: object) -> PlayedTask:
        return PlayedTask(None, scheduling_strategy)

    def remote(self) -> str:
        return self.node


def test_a_node_that_is_lost_during_a_probe_is_no_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    ray, scheduling = ModuleType("ray"), ModuleType("ray.util.scheduling_strategies")
    ray.remote, ray.wait = PlayedTask, lambda *words, **keywords: None  # type: ignore[attr-defined]
    affinity = lambda node, soft: node  # noqa: E731
    scheduling.NodeAffinitySchedulingStrategy = affinity  # type: ignore[attr-defined]
    modules = {"ray": ray, "ray.util": ModuleType("ray.util"), scheduling.__name__: scheduling}
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    said = {"n1": "", "n2": "no such python", "n3": "The task is not schedulable"}
    monkeypatch.setattr(program, "answer_of", said.get)
    there = [a_node("n1"), a_node("n2"), a_node("n3", is_alive=False)]
    monkeypatch.setattr(program, "nodes", lambda: there)
    assert program.probe("true", list(said), 1.0) == {"n1": "", "n2": "no such python", "n3": None}
