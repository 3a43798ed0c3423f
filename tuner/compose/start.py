"""Starts a study: the workers' fork server first, then everything else while it imports torch."""

from __future__ import annotations

import gc
import logging
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from tuner.checkpoints.paths import StudyFiles
from tuner.compose.programs.program_text import import_remarks
from tuner.compose.programs.unused_calls import unused_calls
from tuner.compose.sharing.devices import open_locks, open_seat, waits_text
from tuner.compose.study_plan import (
    DevicesTaken,
    HostDevices,
    check_study,
    find_devices,
    import_path_of,
    most_devices,
    program_of,
    program_variables,
    reselection_of,
    rule_of,
    widening_of,
    widths_of,
    worker_environment,
)
from tuner.config import StudyConfig
from tuner.config.machine_checks import interpreter_line, remarks, what_is_left_to_others
from tuner.devices.allocation.width import Devices, LearnedWidth
from tuner.devices.device import DeviceKind
from tuner.devices.nvidia.mps import mps_is_running
from tuner.errors import ConfigError
from tuner.launch.descriptors import ENV_SOFT_LIMIT, raised_limit
from tuner.launch.inbox import Inbox
from tuner.launch.local_host.launcher import LocalLauncher, modules_of
from tuner.launch.local_host.leftover_workers import Remains
from tuner.launch.protocols import StudyLauncher
from tuner.store.records.provenance import package_versions

if TYPE_CHECKING:
    from tuner.compose.allocations.lent import Lent
    from tuner.compose.wiring import StudyEnd
    from tuner.dispatch.notices import View
    from tuner.monitoring.prometheus import MetricsServer


def run_study(
    config: StudyConfig,
    console: Console,
    environ: Mapping[str, str],
    serve_at: tuple[str, int] | None = None,
    view: AbstractContextManager[View] | None = None,
    lent: Lent | None = None,
) -> StudyEnd:
    """Runs a study to the end of its budget, or until the user stops it.

    Args:
        config: The study.
        console: Shows progress: live in a terminal, else as lines.
        environ: The process's environment.
        serve_at: Host and port of the Prometheus metrics; None to serve none.
        view: Shows progress instead of the console; entered while trials run.
        lent: The allocation in which this process runs; None outside of one.

    Raises:
        TunerError: With a message for the user; by then everything is stopped and recorded.
    """
    pruner = check_study(config)
    files = StudyFiles(folder=config.home, study=config.study)
    with ExitStack() as stack:
        metrics = _serve_metrics(stack, config, console, serve_at)
        remains = Remains(files.dispatchers, partial(_say, console))
        remains.wait()
        seat = open_seat(config, environ) if lent is None else None
        locks = stack.enter_context(open_locks(stack, seat))
        inbox = Inbox()
        stack.callback(inbox.close)

        @cache
        def take() -> DevicesTaken:
            host = find_devices(config, environ, locks)
            stack.callback(host.probe.close)
            if seat is not None and not host.devices:
                _say(console, waits_text(seat))
            _announce(console, config, host, environ, lent)
            reselection = reselection_of(config, host, environ, locks)
            stack.callback(reselection.close)
            return DevicesTaken(host=host, reselection=reselection)

        if seat is None:
            n_devices = len(take().host.devices)
        else:
            n_devices = most_devices(config, environ, seat)
        opened = open_launcher(config, n_devices, inbox, environ, remains)
        launcher = stack.enter_context(opened)
        _log_to(files.dispatcher_log)
        # SQLAlchemy and Alembic take half a second, in which the fork server imports torch.
        with _kept_for_good():
            from tuner.compose.wiring import dispatch
        return dispatch(config, console, take, locks, inbox, launcher, pruner, metrics, view, lent)


def _announce(
    console: Console,
    config: StudyConfig,
    host: HostDevices,
    environ: Mapping[str, str],
    lent: Lent | None,
) -> None:
    """Shows the devices and remarks on the study before its first trial."""
    _announce_devices(console, host)
    if line := _sharing_line(config, host, environ):
        _say(console, line)
    if line := interpreter_line(config):
        _say(console, line)
    for line in (*remarks(config), *import_remarks(config), *unused_calls(config)):
        _say(console, line)
    if line := what_is_left_to_others(config, host.all_devices):
        _say(console, f"resources: {line}")
    if line := widening_of(config, len(host.all_devices)):
        _say(console, f"widen: {line}")
    if lent is not None:
        _say(console, _lent_line(lent))
    if config.budget.is_open:
        console.print("budget: open; the study runs until Ctrl-C")


@contextmanager
def _kept_for_good() -> Iterator[None]:
    """Excludes objects that exist or are imported meanwhile from garbage collection.

    Modules live as long as this process. To scan them repeatedly took a tenth of the dispatcher's
    time with short trials.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


@contextmanager
def open_launcher(
    config: StudyConfig,
    n_devices: int,
    inbox: Inbox,
    environ: Mapping[str, str],
    remains: Remains | None = None,
) -> Iterator[StudyLauncher]:
    """Starts the fork server with the user's modules; ends all remaining workers.

    Args:
        config: The study.
        n_devices: Maximum number of devices of the study.
        inbox: Receives exits.
        environ: The process's environment.
        remains: Makes later starts wait for remaining workers; None if no trial runs here.
    """
    files = StudyFiles(folder=config.home, study=config.study)
    _make_folder(files, config)
    program = program_of(config)
    with raised_limit() as soft_limit:
        launcher = LocalLauncher(
            inbox,
            modules=modules_of(program),
            environment=worker_environment(n_devices, environ)
            | program_variables(config)
            | {ENV_SOFT_LIMIT: str(soft_limit)},
            log_path=files.preload_log,
            import_path=import_path_of(config),
            n_spares=n_devices,
            max_log_bytes=config.trial.max_log_bytes,
            remains=remains,
        )
        try:
            yield launcher
        finally:
            launcher.close()


def _serve_metrics(
    stack: ExitStack, config: StudyConfig, console: Console, serve_at: tuple[str, int] | None
) -> MetricsServer | None:
    if serve_at is None:
        return None
    try:
        from tuner.monitoring.prometheus import MetricsAddress, MetricsServer
    except ModuleNotFoundError as error:
        problem = "needs the package prometheus-client: pip install 'gpu-tuner[metrics]'."
        raise ConfigError(problem, key="--metrics-port") from error
    about = {
        "study": config.study,
        "host": socket.gethostname(),
        "pid": str(os.getpid()),
        "version": package_versions().get("tuner", "unknown"),
    }
    host, port = serve_at
    server = MetricsServer(MetricsAddress(host=host, port=port), about)
    stack.callback(server.close)
    console.print(f"metrics: {server.url}", highlight=False, markup=False, soft_wrap=True)
    return server


def _say(console: Console, text: str) -> None:
    console.print(text, highlight=False, markup=False, soft_wrap=True)


def _log_to(path: Path) -> None:
    handler = logging.FileHandler(path, delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.getLogger("tuner").addHandler(handler)


def _announce_devices(console: Console, host: HostDevices) -> None:
    names = ", ".join(device.label for device in host.devices) or "none yet"
    left_out = (one.reason for one in host.selection.left_out)
    for line in (f"devices: {names}", *left_out, *host.selection.warnings):
        # Unchanged: the names of other users' processes are no markup, and a log has no width.
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _lent_line(lent: Lent) -> str:
    deadline = lent.terms.deadline
    until = f" until {deadline:%Y-%m-%d %H:%M:%S} UTC" if deadline is not None else ""
    return f"allocation: {lent.terms.place}{until}"


def _sharing_line(config: StudyConfig, host: HostDevices, environ: Mapping[str, str]) -> str:
    """How trials on one GPU share it, as text; empty if none do."""
    is_shared = isinstance(rule_of(config), LearnedWidth) or any(
        not isinstance(width, Devices) for width in widths_of(config)
    )
    if not is_shared or host.all_devices[0].kind is DeviceKind.CPU:
        return ""
    if mps_is_running(environ):
        return "sharing: NVIDIA's MPS runs, so trials on one GPU compute at the same time"
    return "sharing: trials on one GPU take turns; under NVIDIA's MPS they compute at the same time"


def _make_folder(files: StudyFiles, config: StudyConfig) -> None:
    try:
        files.root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"Logs go to {files.root}, which cannot be made: {error.strerror}. "
            "Make the study file's folder writable, or copy the file to one that is.",
            file=config.file,
        ) from error
