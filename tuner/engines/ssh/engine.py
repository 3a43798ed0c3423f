"""A dispatcher on each of a list of hosts, started, listed and ended over ssh."""

from __future__ import annotations

import ipaddress
import secrets
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner.config.sections.engine import EngineConfig
from tuner.domain.allocation import Allocation, AllocationState, OwnAllocation
from tuner.engines.command import require_program, run_command
from tuner.engines.environment import own_allocation, read_deadline
from tuner.engines.names import plain_name
from tuner.engines.port import AllocationOrder
from tuner.engines.setup_lines import setup_lines
from tuner.engines.ssh.script import (
    SEPARATOR,
    cancel_script,
    log_script,
    look_script,
    on_host,
    start_script,
)
from tuner.errors import EXIT_COME_BACK, EngineError

_OPTIONS = ("-o", "BatchMode=yes", "-o", "ConnectTimeout=10")
_AT = "/"
#: Exit code of ssh itself, as for a host that does not answer or a key that it refuses.
_NO_LOGIN = 255


@dataclass(frozen=True, slots=True, kw_only=True)
class _Remote:
    """An order with the paths that it has on a host."""

    command: tuple[str, ...]
    folder: str


class SshEngine:
    """Runs at most one dispatcher of a study on each host.

    Args:
        config: `engine` of the study file.
    """

    name = "ssh"

    def __init__(self, config: EngineConfig) -> None:
        self._config = config.ssh
        if not config.ssh.hosts:
            raise EngineError(
                "engine.ssh.hosts is missing. Name the hosts: ssh: {hosts: [gpu01, me@gpu02]}"
            )
        self._hosts: tuple[str, ...] = config.ssh.hosts
        self.copies_files = config.ssh.copy_to is not None

    def check(self, order: AllocationOrder) -> None:
        """Checks each host for a login, the folder and the interpreter."""
        self._check_programs()
        if order.time_s is not None and order.time_s <= order.notice_s:
            raise EngineError(
                f"engine.time is {order.time_s:g} s, but trials are told to save "
                f"{order.notice_s} s before the end. Give it more time."
            )
        if not self.copies_files:
            self._check_shared(order)
        setup = "\n".join(setup_lines(order.setup))
        python = on_host(self._python(order))
        for host in self._hosts:
            self._run(host, f"{setup}\n{python} -c 'import tuner'\n", "The tuner cannot run there")

    def render(self, order: AllocationOrder, numbers: Sequence[int]) -> str:
        """A script for this machine, which starts one dispatcher on each host."""
        if len(numbers) > len(self._hosts):
            raise self._too_few(len(numbers), len(self._hosts))
        remote = self._as_remote(order, str(self._config.copy_to or ""))
        parts = [
            f"{shlex.join([*self._ssh, host])} bash -s <<'TUNER_NODE'\n"
            f"{self._start(order, remote, host, number)}TUNER_NODE\n"
            for host, number in zip(self._hosts, numbers, strict=False)
        ]
        return "#!/bin/bash\n" + "".join(parts)

    def submit(self, order: AllocationOrder, numbers: Sequence[int]) -> tuple[Allocation, ...]:
        """Starts dispatchers on hosts without one of the study."""
        self._check_programs()
        there = [each for each in self.allocations(order.study) if not each.state.is_over]
        missing = [number for number in numbers if number not in {a.number for a in there}]
        busy = {each.name.partition(_AT)[0] for each in there}
        free = [host for host in self._hosts if host not in busy]
        if len(missing) > len(free):
            raise self._too_few(len(missing), len(free))
        begun: list[str] = []
        try:
            for host, number in zip(free, missing, strict=False):
                self._begin(order, host, number)
                begun.append(f"{host}{_AT}{plain_name(order.study)}{_AT}{number}")
        except EngineError:
            self.cancel(begun)
            raise
        return tuple(each for each in self.allocations(order.study) if each.number in numbers)

    def allocations(self, study: str) -> tuple[Allocation, ...]:
        """The allocations of all hosts; an error names a host that does not respond."""
        found: dict[int, Allocation] = {}
        for host in self._hosts:
            text = self._run(host, look_script(study, host), "Its dispatchers cannot be listed")
            for each in _rows(text, host, plain_name(study)):
                found[each.number] = each
        return tuple(found[number] for number in sorted(found))

    def cancel(self, names: Sequence[str]) -> None:
        """SIGTERM to each dispatcher: trials save, and it ends."""
        for name in names:
            host, _, rest = name.partition(_AT)
            study, _, number = rest.partition(_AT)
            if host in self._hosts and number.isdecimal():
                script = cancel_script(study, host, [int(number)])
                self._run(host, script, "Its dispatcher cannot be asked to end")

    def log_of(self, name: str, log_folder: Path) -> Path | str:
        """The output, read from the host."""
        host, _, rest = name.partition(_AT)
        study, _, number = rest.partition(_AT)
        if host not in self._hosts or not number.isdecimal():
            raise EngineError(f"There is no allocation {name}. The hosts: {', '.join(self._hosts)}")
        return self._run(host, log_script(study, host, int(number)), f"No output of {name}")

    def own_allocation(self, environ: Mapping[str, str]) -> OwnAllocation | None:
        """From the variables that the start script sets."""
        return own_allocation(self.name, environ, is_requeued=False)

    def show_progress(self, name: str, text: str) -> None:
        """Nowhere: ssh has no list of its own."""

    def look_command(self, study: str) -> str:
        """The newest output on the first host."""
        folder = f"~/.tuner/allocations/{plain_name(study)}"
        return f"ssh {self._hosts[0]} 'tail {folder}/*/*/log'"

    def nodes_are_here(self) -> bool:
        """Whether every host is a loopback address."""
        return all(_is_loopback(host.rpartition("@")[2]) for host in self._hosts)

    @property
    def _ssh(self) -> list[str]:
        return ["ssh", *_OPTIONS, *self._config.options]

    def _check_programs(self) -> None:
        require_program("ssh", "Install the OpenSSH client.")
        if self.copies_files:
            require_program("rsync", "engine.ssh.copy_to needs it: install rsync.")

    def _check_shared(self, order: AllocationOrder) -> None:
        """A file that is written here has to be on each host."""
        order.log_folder.mkdir(parents=True, exist_ok=True)
        mark = order.log_folder / f".shared-{secrets.token_hex(8)}"
        mark.touch()
        try:
            for host in self._hosts:
                found = self._run(
                    host, f"[ -e {shlex.quote(str(mark))} ] && echo yes || true\n", "No answer"
                )
                if found.strip() != "yes":
                    raise EngineError(
                        f"{host} does not see {order.log_folder}: the folder of the study is not "
                        "shared. Move the study to a shared folder, or let the tuner copy the "
                        "code: ssh: {copy_to: ~/tuner}"
                    )
        finally:
            mark.unlink(missing_ok=True)

    def _begin(self, order: AllocationOrder, host: str, number: int) -> None:
        target = self._copy(order, host) if self.copies_files else ""
        script = self._start(order, self._as_remote(order, target), host, number)
        self._run(host, script, "The dispatcher cannot be started")

    def _start(self, order: AllocationOrder, remote: _Remote, host: str, number: int) -> str:
        return start_script(
            order.study,
            host,
            number,
            name=f"{host}{_AT}{plain_name(order.study)}{_AT}{number}",
            command=remote.command,
            folder=remote.folder,
            environment=order.environment,
            setup=order.setup,
            time_s=order.time_s,
        )

    def _copy(self, order: AllocationOrder, host: str) -> str:
        """Copies the snapshot of the code; returns its folder on the host."""
        if order.code is None:
            raise EngineError(
                "engine.ssh.copy_to copies the snapshot of a git working tree, but the study is in "
                "no git repository. Make one with git init, or use a shared folder."
            )
        folder = f"{on_host(self._config.copy_to or '')}/{plain_name(order.study)}"
        made = f"mkdir -p {folder}/code && cd {folder} && pwd\n"
        target = self._run(host, made, "The folder cannot be made").strip()
        words = ["rsync", "--archive", "--safe-links", "-e", shlex.join(self._ssh)]
        source = f"{order.code}/"
        run_command(
            [*words, source, f"{host}:{target}/code/{order.code.name}/"],
            refused=f"The code cannot be copied to {host}",
            limit_s=600.0,
        )
        return target

    def _as_remote(self, order: AllocationOrder, target: str) -> _Remote:
        """The command with the interpreter and the paths of the host."""
        words = [self._python(order), *order.command[1:]]
        folder = str(order.folder)
        if target and order.code is not None:
            remote = f"{target}/code/{order.code.name}"
            words = [_moved(word, str(order.code), remote) for word in words]
            words = [target if word == str(order.home) else word for word in words]
            folder = _moved(folder, str(order.code), remote)
        return _Remote(command=tuple(words), folder=folder)

    def _python(self, order: AllocationOrder) -> str:
        return self._config.python or order.command[0]

    def _run(self, host: str, script: str, refused: str) -> str:
        words = [*self._ssh, host, "bash -s"]

        def advice(code: int) -> str:
            login = shlex.join(["ssh", *self._config.options, host, "true"])
            return f"It must log in without a question: {login}" if code == _NO_LOGIN else ""

        return run_command(words, given=script, refused=f"{host}: {refused}", advice=advice)

    def _too_few(self, n_wanted: int, n_free: int) -> EngineError:
        return EngineError(
            f"{n_wanted} nodes are asked for, but {n_free} of the hosts in engine.ssh.hosts "
            f"({', '.join(self._hosts)}) are free. Ask for fewer nodes, or name more hosts."
        )


def _rows(text: str, host: str, study: str) -> Iterator[Allocation]:
    for line in text.splitlines():
        number, alive, asked, code, started, deadline = line.split(SEPARATOR)
        state, reason = _state(bool(alive), bool(asked), code)
        yield Allocation(
            number=int(number),
            name=f"{host}{_AT}{study}{_AT}{number}",
            state=state,
            reason=reason,
            node=host,
            started_at=read_deadline(started),
            deadline=read_deadline(deadline),
        )


def _state(is_alive: bool, is_asked: bool, code: str) -> tuple[AllocationState, str]:
    if is_alive:
        return (AllocationState.ENDING if is_asked else AllocationState.RUNNING), ""
    if not code:
        return AllocationState.FAILED, "gone without an exit code: killed, or the host restarted"
    if code in ("0", str(EXIT_COME_BACK)) or is_asked:
        return AllocationState.ENDED, ""
    return AllocationState.FAILED, f"exit code {code}"


def _moved(word: str, old: str, new: str) -> str:
    return new + word[len(old) :] if word == old or word.startswith(f"{old}/") else word


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
