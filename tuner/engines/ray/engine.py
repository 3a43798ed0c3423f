"""A detached actor for each allocation, which runs a dispatcher on a node of a Ray cluster."""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from tuner.config.sections.engine import EngineConfig
from tuner.domain.allocation import Allocation, AllocationState, OwnAllocation
from tuner.engines.environment import own_allocation
from tuner.engines.names import plain_name
from tuner.engines.port import AllocationOrder
from tuner.engines.ray.kuberay import POD_OUTPUT, NoLink, render_ray_job
from tuner.engines.ray.link import RayLink
from tuner.engines.ray.program import demand_of, room_of
from tuner.engines.ray.script import node_script, probe_script, submit_program
from tuner.errors import EngineError

_PROBE_LIMIT_S = 60.0


class RayEngine:
    """Uses a running Ray cluster; it starts none.

    Args:
        config: `engine` of the study file.
    """

    name = "ray"
    copies_files = False

    def __init__(self, config: EngineConfig) -> None:
        self._config = config.ray
        self._whole_config = config
        #: The command then runs in the working directory of the image.
        self.code_is_in_image = config.ray.kuberay
        is_there = not config.ray.kuberay
        self._link = RayLink(config.ray.address) if is_there else NoLink()

    def check(self, order: AllocationOrder) -> None:
        """Checks the nodes for the folder and the interpreter."""
        if order.time_s is not None and order.time_s <= order.notice_s:
            raise EngineError(
                f"engine.time is {order.time_s:g} s, but trials are told to save "
                f"{order.notice_s} s before the end. Give it more time."
            )
        wanted = self._as_data(order, 0)
        nodes = self._link.ask("nodes")
        self._check_room(wanted, nodes, 1)
        demand = demand_of(wanted, nodes)
        fit = {node["id"]: node["name"] for node in nodes if room_of(node, demand)}
        with _mark(order.log_folder) as mark:
            script = probe_script(self._on_node(order), mark)
            limits = _PROBE_LIMIT_S / 2, _PROBE_LIMIT_S
            found = self._link.ask("probe", script, list(fit), limits[0], limit_s=limits[1])
        for node, said in found.items():
            if said:
                raise EngineError(f"Node {fit[node]}: the tuner cannot run there: {said}")
        if fit and all(said is None for said in found.values()):
            raise EngineError(
                f"None of the nodes {', '.join(fit.values())} gave an answer for "
                f"{_PROBE_LIMIT_S / 2:g} s. Look: ray status"
            )

    def render(self, order: AllocationOrder, numbers: Sequence[int]) -> str:
        """A Python program, to be run on a machine of the cluster; for KubeRay a manifest."""
        orders = [self._as_data(order, number) for number in numbers]
        if self._config.kuberay:
            return render_ray_job(self._whole_config, order, orders)
        return submit_program(self._config.address, orders)

    def submit(self, order: AllocationOrder, numbers: Sequence[int]) -> tuple[Allocation, ...]:
        """Makes the actors that are not there."""
        orders = [self._as_data(order, number) for number in numbers]
        there = [each for each in self.allocations(order.study) if not each.state.is_over]
        n_all = len({each.number for each in there} | set(numbers))
        if orders:
            self._check_room(orders[0], self._link.ask("nodes"), n_all)
            self._link.ask("submit", orders)
        return tuple(each for each in self.allocations(order.study) if each.number in numbers)

    def allocations(self, study: str) -> tuple[Allocation, ...]:
        """The records that actors write, as far as actors and nodes are still there."""
        records = self._link.ask("list", plain_name(study))
        found = [_allocation(record) for record in records]
        return tuple(sorted(found, key=lambda each: each.number))

    def cancel(self, names: Sequence[str]) -> None:
        """Waiting ones are taken away; in running ones trials save first."""
        if names:
            self._link.ask("cancel", list(names))

    def log_of(self, name: str, log_folder: Path) -> Path | str:
        """The file that the actor writes."""
        number = name.rpartition(":")[2]
        path = _log_path(log_folder, number)
        if not (number.isdecimal() and path.is_file()):
            raise EngineError(
                f"There is no output of {name}: {path} does not exist. The allocation has not "
                "started, or has another name."
            )
        return path

    def own_allocation(self, environ: Mapping[str, str]) -> OwnAllocation | None:
        """From the variables that the script of the node sets."""
        return own_allocation(self.name, environ, is_requeued=False)

    def show_progress(self, name: str, text: str) -> None:
        """Does nothing: Ray's lists have no field for it."""

    def look_command(self, study: str) -> str:
        """Ray's list of actors."""
        if self._config.kuberay:
            return "kubectl get rayjobs"
        return f"ray list actors --filter ray_namespace={_namespace(study)}"

    def nodes_are_here(self) -> bool:
        """Whether every node has an address of this machine."""
        own = {each.address for addresses in psutil.net_if_addrs().values() for each in addresses}
        nodes = [node["address"] for node in self._link.ask("nodes") if node["is_alive"]]
        return all(address in own or _is_loopback(address) for address in nodes)

    def _check_room(self, wanted: Mapping[str, Any], nodes: Sequence[Any], n_all: int) -> None:
        """Checks that the cluster has room for all allocations if nothing else runs on it."""
        if self._config.autoscaling:
            return
        demand = demand_of(dict(wanted), list(nodes))
        n_room = sum(room_of(node, demand) for node in nodes)
        if n_room < n_all:
            each = ", ".join(f"{value:g} {name}" for name, value in demand.items())
            n_alive = sum(node["is_alive"] for node in nodes)
            raise EngineError(
                f"{n_all} nodes with {each} are asked for, but the cluster of {n_alive} nodes has "
                f"room for {n_room}. Ask for fewer nodes or less of each (engine.devices, "
                "engine.cpus, engine.memory). If the cluster adds nodes that are waited for, say "
                "so: ray: {autoscaling: true}"
            )

    def _on_node(self, order: AllocationOrder) -> AllocationOrder:
        command = (self._config.python or order.command[0], *order.command[1:])
        return replace(order, command=command)

    def _as_data(self, order: AllocationOrder, number: int) -> dict[str, Any]:
        """The arguments of an actor."""
        name = f"{_namespace(order.study)}:{number}"
        in_image = self.code_is_in_image
        return {
            "name": name,
            "cpus": order.cpus,
            "gpus": order.devices,
            # A pod has it to itself.
            "memory": None if in_image else order.memory_bytes,
            "resources": dict(self._config.resources),
            "time_s": order.time_s,
            "notice_s": order.notice_s,
            "log": POD_OUTPUT if in_image else str(_log_path(order.log_folder, str(number))),
            "script": node_script(self._on_node(order), name, number, is_in_image=in_image),
        }


def _namespace(study: str) -> str:
    return f"tuner:{plain_name(study)}"


def _log_path(log_folder: Path, number: str) -> Path:
    return log_folder / f"ray-{number}.log"


@contextmanager
def _mark(folder: Path) -> Iterator[Path]:
    """A file that nodes see if the folder is shared."""
    folder.mkdir(parents=True, exist_ok=True)
    mark = folder / f".shared-{secrets.token_hex(8)}"
    mark.touch()
    try:
        yield mark
    finally:
        mark.unlink(missing_ok=True)


def _allocation(record: Mapping[str, Any]) -> Allocation:
    return Allocation(
        number=record["number"],
        name=record["name"],
        state=AllocationState(record["state"]),
        reason=record["reason"],
        node=record["node"],
        started_at=_at(record.get("started_at")),
        deadline=_at(record.get("deadline")),
    )


def _at(seconds: float | None) -> datetime | None:
    return datetime.fromtimestamp(seconds, UTC) if seconds is not None else None


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
