"""Client of Ray: starts, lists and ends actors, each of which runs one dispatcher.

It needs only the standard library and Ray. Ray receives the actor by value, so the nodes' Python
needs no tuner, and `tuner submit --dry-run` prints this file completely. The tuner runs it in a
process of its own and sends requests over stdin: Ray ends a process whose cluster is gone, and some
of its calls block without a limit.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

#: Namespace in Ray's key-value store, where records of allocations outlive their actors.
KEYS = b"tuner"
#: Nodes may be lost so often before an allocation counts as failed.
MAX_RESTARTS = 20
LOOK_EVERY_S = 1.0
CONNECT_WITHIN_S = 5.0
#: Seconds without a request after which it disconnects from the cluster.
UNASKED_FOR_S = 60.0
OVER = ("ended", "failed")
#: The exit code after which the rest of the study's work waits for another dispatcher.
COME_BACK = 75
#: Starts bash so that it gets SIGTERM when the actor dies with the node's Ray.
BIND = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGTERM)
if os.getppid() != int(sys.argv[1]):
    sys.exit(1)
os.execvp("bash", ["bash", "-s"])
"""


# --- records of allocations ---


def read_record(key: str) -> dict[str, Any]:
    from ray.experimental import internal_kv

    found = internal_kv._internal_kv_get(key, namespace=KEYS)
    return json.loads(found) if found else {}


def write_record(key: str, record: object, *, is_first: bool = False) -> None:
    from ray.experimental import internal_kv

    internal_kv._internal_kv_put(key, json.dumps(record), not is_first, namespace=KEYS)


def remove_record(key: str) -> None:
    from ray.experimental import internal_kv

    internal_kv._internal_kv_del(key, namespace=KEYS)


def keys_of(study: str) -> list[str]:
    from ray.experimental import internal_kv

    found = internal_kv._internal_kv_list(f"{study}/", namespace=KEYS)
    return [key.decode() for key in found if key.count(b"/") == 1]


def asked_key(key: str) -> str:
    """The key that marks an allocation to be ended."""
    return f"{key}/asked"


def place_of(name: str) -> tuple[str, str]:
    """The namespace of an allocation's actor, and the key of its record."""
    namespace, _, number = name.rpartition(":")
    return namespace, f"{namespace.partition(':')[2]}/{number}"


# --- the actor ---


class Allocation:
    """Runs the dispatcher of one allocation, and removes itself when that has ended.

    The constructor does everything: Ray calls it again when it restarts a lost actor, and no method
    has to be called over a network that may fail.
    """

    def __init__(self, order: dict[str, Any]) -> None:
        import ray

        context = ray.get_runtime_context()
        self._actor = context.current_actor
        self._order = order
        _, self._key = place_of(order["name"])
        self._record = read_record(self._key)
        self._asked_at_s: float | None = None
        self._process: subprocess.Popen[bytes] | None = None
        # It ended, but its node was lost before Ray noticed.
        if self._record.get("state") not in OVER:
            self._begin(context.get_node_id())
        threading.Thread(target=self._watch, daemon=True).start()

    def _begin(self, node_id: str) -> None:
        now_s, time_s = time.time(), self._order["time_s"]
        self._note(
            "running",
            name=self._order["name"],
            node_id=node_id,
            started_at=now_s,
            deadline=now_s + time_s if time_s is not None else None,
        )
        if read_record(asked_key(self._key)):
            return self._note("ended")
        try:
            self._process = self._start()
        except OSError as error:
            self._note("failed", reason=f"the dispatcher cannot be started: {error}")

    def _start(self) -> subprocess.Popen[bytes]:
        log = Path(self._order["log"])
        log.parent.mkdir(parents=True, exist_ok=True)
        # SIGTERM comes when the thread that starts it ends: Ray calls constructors in the main one.
        with log.open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, "-c", BIND, str(os.getpid())],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                env=environment_of_node(),
                start_new_session=True,
            )
        assert process.stdin is not None
        with process.stdin:
            process.stdin.write(self._order["script"].encode())
        return process

    def _watch(self) -> None:
        while self._process is not None and self._process.poll() is None:
            # The head may be busy, or be started again.
            with contextlib.suppress(Exception):
                self._tell(self._process)
            time.sleep(LOOK_EVERY_S)
        while True:
            with contextlib.suppress(Exception):
                self._leave()
            time.sleep(LOOK_EVERY_S)

    def _leave(self) -> None:
        import ray

        if self._process is not None:
            state, reason = ending(self._process.returncode, self._asked_at_s is not None)
            self._note(state, reason=reason)
        ray.kill(self._actor, no_restart=True)

    def _tell(self, process: subprocess.Popen[bytes]) -> None:
        """Ends the dispatcher if requested; kills it if it does not end."""
        now_s = time.monotonic()
        if self._asked_at_s is None:
            if read_record(asked_key(self._key)):
                self._asked_at_s = now_s
                process.send_signal(signal.SIGTERM)
        elif now_s - self._asked_at_s > self._order["notice_s"]:
            process.kill()

    def _note(self, state: str, **values: object) -> None:
        self._record |= {"state": state, "reason": "", **values}
        write_record(self._key, self._record)


def ending(code: int, is_asked: bool) -> tuple[str, str]:
    """State and reason of an allocation whose dispatcher has ended."""
    if code in (0, COME_BACK) or is_asked:
        return "ended", ""
    return "failed", f"exit code {code}" if code > 0 else f"killed by signal {-code}"


def environment_of_node() -> dict[str, str]:
    """Variables of the node's Ray, and those that name the devices of this actor.

    Ray gives its workers more, such as OMP_NUM_THREADS, which trials must not inherit.
    """
    own = dict(os.environ)
    try:
        text = Path(f"/proc/{os.getppid()}/environ").read_bytes()
    except OSError:
        return own
    pairs = (os.fsdecode(pair).partition("=") for pair in text.split(b"\0") if pair)
    given = {name: value for name, _, value in pairs}
    devices = {name: value for name, value in own.items() if "VISIBLE" in name}
    return {name: value for name, value in given.items() if "VISIBLE" not in name} | devices


# --- what the tuner asks for ---


def connect(address: str) -> None:
    """Connects to a cluster.

    Raises:
        ConnectionError: If there is none.
    """
    place = address.rpartition("://")[2]
    if place != "auto":
        host, _, port = place.rpartition(":")
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_WITHIN_S).close()
    import ray

    ray.init(address=address, log_to_driver=False, logging_level="ERROR")


def nodes() -> list[dict[str, Any]]:
    """The nodes of the cluster, lost ones too."""
    import ray

    return [
        {
            "id": node["NodeID"],
            "name": node.get("NodeName") or node["NodeManagerAddress"],
            "address": node["NodeManagerAddress"],
            "is_alive": node["Alive"],
            "resources": node["Resources"],
        }
        for node in ray.nodes()
    ]


def demand_of(order: dict[str, Any], there: list[dict[str, Any]]) -> dict[str, float]:
    """The resources of an allocation.

    Without a word on CPUs or devices it takes a whole node: all CPUs of the smallest one.
    """
    cpus = order["cpus"]
    if cpus is None:
        counts = [node["resources"].get("CPU", 0.0) for node in there if node["is_alive"]]
        cpus = 1 if order["gpus"] else min((count for count in counts if count), default=1)
    wanted = {"CPU": cpus, "GPU": order["gpus"], "memory": order["memory"] or 0}
    wanted |= order["resources"]
    return {name: float(value) for name, value in wanted.items() if value}


def room_of(node: dict[str, Any], demand: dict[str, float]) -> int:
    """Number of allocations for which an empty node has room."""
    if not node["is_alive"]:
        return 0
    return min(int(node["resources"].get(name, 0.0) / value) for name, value in demand.items())


def submit(orders: list[dict[str, Any]]) -> list[str]:
    """Creates an actor for each missing allocation; all of them, or none."""
    import ray

    there = nodes()
    names = actor_names()
    made: list[Any] = []
    try:
        for order in orders:
            if order["name"] not in names:
                made.append(make_actor(order, demand_of(order, there)))
    except Exception:
        for actor in made:
            ray.kill(actor, no_restart=True)
        raise
    # A client that disconnects at once cancels requests that have not arrived yet.
    if made:
        ray.wait([actor.__ray_ready__.remote() for actor in made], num_returns=len(made), timeout=2)
    return [order["name"] for order in orders]


def make_actor(order: dict[str, Any], demand: dict[str, float]) -> Any:
    import ray

    namespace, key = place_of(order["name"])
    remove_record(asked_key(key))
    remove_record(key)
    left = {name: value for name, value in demand.items() if name not in ("CPU", "GPU", "memory")}
    options = {
        "name": order["name"],
        "namespace": namespace,
        "lifetime": "detached",
        "max_restarts": MAX_RESTARTS,
        "num_cpus": demand.get("CPU", 0),
        "num_gpus": demand.get("GPU", 0),
        "memory": demand.get("memory"),
        "resources": left,
        "scheduling_strategy": "SPREAD",
    }
    actor = ray.remote(Allocation).options(**options).remote(order)
    record = {"name": order["name"], "state": "pending", "demand": demand, "reason": ""}
    write_record(key, record, is_first=True)
    return actor


def actor_names() -> set[str]:
    """Names of all actors that run, wait or are being restarted."""
    import ray

    return {each["name"] for each in ray.util.list_named_actors(all_namespaces=True)}


def listed(study: str) -> list[dict[str, Any]]:
    """The known allocations of a study."""
    # Names first: an allocation that has ended writes its record before its name goes.
    names = actor_names()
    by_id = {node["id"]: node for node in nodes()}
    return [record_now(key, names, by_id) for key in keys_of(study)]


def record_now(key: str, names: set[str], by_id: dict[str, dict[str, Any]]) -> dict[str, Any]:
    record = read_record(key) | {"number": int(key.rpartition("/")[2])}
    node = by_id.get(record.get("node_id", ""), {})
    record["node"] = node.get("name")
    if record["state"] in OVER:
        return record
    if record["name"] not in names:
        reason = f"its actor is gone: killed, or lost with {MAX_RESTARTS + 1} nodes"
        return record | {"state": "failed", "reason": reason}
    if record["state"] == "pending":
        return record | {"reason": why_pending(record["demand"], list(by_id.values()))}
    if not node.get("is_alive"):
        reason = f"node {record['node']} is lost; Ray starts the allocation on another one"
        return record | {"state": "pending", "reason": reason, "node": None}
    return record | {"state": "ending" if read_record(asked_key(key)) else "running"}


def why_pending(demand: dict[str, float], there: list[dict[str, Any]]) -> str:
    wanted = ", ".join(f"{value:g} {name}" for name, value in demand.items())
    if any(room_of(node, demand) for node in there):
        return f"waits for a node with {wanted}"
    return f"no node has {wanted}"


def cancel(names: list[str]) -> None:
    """Asks running allocations to end, and takes waiting ones away."""
    import ray

    known = actor_names()
    by_id = {node["id"]: node for node in nodes()}
    for name in names:
        namespace, key = place_of(name)
        if name not in known:
            continue
        # An actor that starts now writes its record, and reads this key after that.
        write_record(asked_key(key), True)
        record = record_now(key, known, by_id)
        if record["state"] == "pending":
            ray.kill(ray.get_actor(name, namespace=namespace), no_restart=True)
            write_record(key, read_record(key) | {"state": "ended", "reason": ""})


def wait_for(names: list[str]) -> int:
    """Waits until allocations are over, and prints how they ended; 1 if one has failed."""
    study = place_of(names[0])[1].rpartition("/")[0]
    found = listed(study)
    while not all(record["state"] in OVER for record in found):
        time.sleep(LOOK_EVERY_S)
        found = listed(study)
    print(*(f"{each['name']}: {each['state']} {each['reason']}" for each in found), sep="\n")
    return int(any(record["state"] == "failed" for record in found))


def probe(script: str, ids: list[str], limit_s: float) -> dict[str, str | None]:
    """Runs a script on nodes: its output if it failed, else "".

    None for a node that is lost, or did not reply in time.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    def run() -> str:
        done = subprocess.run(
            ["bash", "-s"],
            input=script,
            capture_output=True,
            text=True,
            env=environment_of_node(),
            timeout=limit_s,
        )
        said = (done.stderr.strip() or done.stdout.strip())[-2000:]
        return "" if done.returncode == 0 else said or f"exit code {done.returncode}"

    task = ray.remote(run)
    tasks = {
        node: task.options(
            num_cpus=0,
            max_retries=0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
        ).remote()
        for node in ids
    }
    ray.wait(list(tasks.values()), num_returns=len(tasks), timeout=limit_s)
    answers = {node: answer_of(ref) for node, ref in tasks.items()}
    lost = {node["id"] for node in nodes() if not node["is_alive"]}
    return {node: None if node in lost else said for node, said in answers.items()}


def answer_of(ref: Any) -> str | None:
    import ray

    try:
        return str(ray.get(ref, timeout=1))
    except ray.exceptions.GetTimeoutError:
        return None
    except ray.exceptions.RayError as error:
        return str(error)


# --- one question a line, one answer a line ---

ANSWERS: dict[str, Callable[..., Any]] = {
    "connect": connect,
    "nodes": nodes,
    "demand": demand_of,
    "submit": submit,
    "list": listed,
    "cancel": cancel,
    "probe": probe,
}


def serve() -> None:
    """Serves requests until stdin is closed, or none arrives for some time."""
    # Ray prints; answers go where nothing else does.
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)
        while select.select([sys.stdin], [], [], UNASKED_FOR_S)[0]:
            line = sys.stdin.readline()
            if not line:
                return
            print(json.dumps(answer(json.loads(line))), file=answers, flush=True)


def answer(question: list[Any]) -> dict[str, Any]:
    name, *arguments = question
    try:
        return {"answer": ANSWERS[name](*arguments)}
    except Exception as error:  # It is for the other side to judge.
        return {"error": type(error).__name__, "text": str(error)}


if __name__ == "__main__":
    serve()
