"""Slurm through its own commands: sbatch, squeue, scancel, scontrol."""

from __future__ import annotations

import math
import re
import socket
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path

from tuner.config.sections.engine import EngineConfig
from tuner.domain.allocation import Allocation, AllocationState, OwnAllocation
from tuner.engines.command import require_program, run_command
from tuner.engines.environment import read_deadline
from tuner.engines.port import AllocationOrder
from tuner.engines.slurm.script import (
    RELEASED,
    SIGNAL_RESOLUTION_S,
    batch_script,
    job_name,
    log_path,
)
from tuner.errors import EngineError

_WITHOUT = (
    "Use tuner submit where Slurm's commands work, such as a login node, or print the script with "
    "--dry-run and apply it there."
)
_SEE_PARTITIONS = (
    "Compare engine.devices, cpus and memory with what there is: "
    "sinfo -o '%P %l %c %m %G' (partition, time limit, CPUs, MB, GPUs). Your accounts and qos: "
    "sacctmgr show user $USER withassoc format=account,qos. "
    "Limits of each qos: sacctmgr show qos format=name,maxsubmitjobsperuser,maxtresperuser"
)
_FEWER = (
    "If it is a limit of jobs, ask for fewer nodes (--nodes 1), or wait until others have ended. "
    "Limits: sacctmgr show qos format=name,maxsubmitjobsperuser,maxtresperuser"
)
_FIELDS = "%F|%K|%A|%T|%N|%S|%e|%k|%r"
_STATES = {
    "PENDING": AllocationState.PENDING,
    "CONFIGURING": AllocationState.PENDING,
    "REQUEUED": AllocationState.PENDING,
    "REQUEUE_FED": AllocationState.PENDING,
    "REQUEUE_HOLD": AllocationState.PENDING,
    "SPECIAL_EXIT": AllocationState.PENDING,
    "RUNNING": AllocationState.RUNNING,
    "SUSPENDED": AllocationState.RUNNING,
    "STOPPED": AllocationState.RUNNING,
    "RESIZING": AllocationState.RUNNING,
    "COMPLETING": AllocationState.ENDING,
    "SIGNALING": AllocationState.ENDING,
    "STAGE_OUT": AllocationState.ENDING,
    "FAILED": AllocationState.FAILED,
    "BOOT_FAIL": AllocationState.FAILED,
    "NODE_FAIL": AllocationState.FAILED,
    "OUT_OF_MEMORY": AllocationState.FAILED,
}
#: squeue shows so for a field without a value.
_NONE = ("", "(null)", "None", "N/A")
#: Errors for jobs that have ended, or belong to another engine. If a job ends while scancel runs,
#: scancel prints nothing and exits with the last byte of Slurm's error 2021 (ESLURM_ALREADY_DONE):
#: 229.
_OVER = ("Invalid job id", "already finished", "already completing", "exit code 229")
#: Beginnings of variables that a job has.
_OF_A_JOB = (
    *("SLURM_ARRAY", "SLURM_CPUS", "SLURM_GPUS", "SLURM_GTIDS", "SLURM_JOB", "SLURM_MEM"),
    *("SLURM_NNODES", "SLURM_NODE", "SLURM_NPROCS", "SLURM_NTASKS", "SLURM_PROCID"),
    *("SLURM_STEP", "SLURM_SUBMIT", "SLURM_TASK", "TUNER_ALLOCATION", "TUNER_CODE"),
)
_EPOCH = {"SLURM_TIME_FORMAT": "%s"}


class SlurmEngine:
    """Submits an array of one-node jobs, and queries their states from Slurm.

    Args:
        config: `engine` of the study file.
    """

    name = "slurm"
    copies_files = False

    def __init__(self, config: EngineConfig) -> None:
        self._config = config.slurm

    def check(self, order: AllocationOrder) -> None:
        """Lets Slurm judge the script (`sbatch --test-only`), and the time that trials have."""
        require_program("sbatch", _WITHOUT)
        _check_time(order)
        self._check_kill_wait(order)
        self._check_limit(order)
        words = ["sbatch", "--test-only"]
        run_command(
            words,
            given=self.render(order, [0]),
            refused="Slurm refuses the allocation",
            advice=lambda code: _SEE_PARTITIONS,
        )

    def render(self, order: AllocationOrder, numbers: Sequence[int]) -> str:
        """The batch script."""
        return batch_script(order, numbers, self._config)

    def submit(self, order: AllocationOrder, numbers: Sequence[int]) -> tuple[Allocation, ...]:
        """One array for all missing numbers: Slurm accepts all of it, or none."""
        require_program("sbatch", _WITHOUT)
        there = {each.number for each in self.allocations(order.study) if not each.state.is_over}
        if missing := [number for number in numbers if number not in there]:
            order.log_folder.mkdir(parents=True, exist_ok=True)
            script = self.render(order, missing)
            # Jobs get the variables of this process, which may be in a job itself.
            run_command(
                ["sbatch", "--parsable"],
                given=script,
                refused="Slurm refuses the script",
                advice=lambda code: _FEWER,
                without=_is_of_a_job,
            )
        return tuple(each for each in self.allocations(order.study) if each.number in numbers)

    def allocations(self, study: str) -> tuple[Allocation, ...]:
        """Allocations in `squeue`, which shows ended ones for some minutes."""
        words = ["squeue", "--noheader", "--me", "--array", "--states=all"]
        words += [f"--name={job_name(study)}", f"--format={_FIELDS}"]
        text = run_command(words, refused="Slurm's queue cannot be read", environ=_EPOCH)
        return _newest(text)

    def cancel(self, names: Sequence[str]) -> None:
        """Pending ones are taken out of the queue; in running ones trials save first."""
        for name in names:
            # The script ends with code 0 then, and Slurm does not start it again.
            _run_if_known(["scontrol", "update", f"JobId={name}", f"Comment={RELEASED}"])
            _run_if_known(["scancel", "--state=RUNNING", "--signal=USR1", "--batch", name])
            _run_if_known(["scancel", "--state=PENDING", name])

    def log_of(self, name: str, log_folder: Path) -> Path | str:
        """The file that the batch script writes."""
        path = log_path(log_folder, name)
        if not path.is_file():
            known = sorted(
                file.stem.removeprefix("slurm-") for file in log_folder.glob("slurm-*.log")
            )
            others = f" There are logs of: {', '.join(known)}." if known else ""
            raise EngineError(
                f"There is no output of {name}: {path} does not exist. The allocation has not "
                f"started, or has another name.{others}"
            )
        return path

    def own_allocation(self, environ: Mapping[str, str]) -> OwnAllocation | None:
        """The job or array task, from Slurm's variables and the end that the script adds."""
        job = environ.get("SLURM_ARRAY_JOB_ID") or environ.get("SLURM_JOB_ID")
        if not job:
            return None
        task = environ.get("SLURM_ARRAY_TASK_ID", "")
        return OwnAllocation(
            engine=self.name,
            name=f"{job}_{task}" if task else job,
            number=int(task) if task.isdecimal() else None,
            deadline=read_deadline(environ.get("SLURM_JOB_END_TIME")),
        )

    def nodes_are_here(self) -> bool:
        """Whether the cluster has no other machine than this one."""
        try:
            text = run_command(["scontrol", "show", "node", "--oneliner"], refused="No nodes")
        except EngineError:
            return False
        hosts = set(re.findall(r"\bNodeHostName=(\S+)", text))
        return hosts == {socket.gethostname().partition(".")[0]}

    def show_progress(self, name: str, text: str) -> None:
        """As the comment of the job, for `squeue -o %k`."""
        words = ["scontrol", "update", f"JobId={name}", f"Comment={text}"]
        run_command(words, refused="Slurm does not take the comment", limit_s=10.0)

    def look_command(self, study: str) -> str:
        """`squeue` with the progress of the study."""
        return f"squeue --me --name={job_name(study)} --format='%.14i %.12P %.9T %.10M %.10l %R %k'"

    def _check_kill_wait(self, order: AllocationOrder) -> None:
        """Checks KillWait, in which preempted jobs save; the cluster's value is known here."""
        words = ["scontrol", "show", "config"]
        text = run_command(words, refused="Slurm cannot be reached", advice=lambda code: _WITHOUT)
        settings = dict(re.findall(r"^(\w+)\s*=\s*(.*?)\s*$", text, re.MULTILINE))
        wait = re.match(r"\d+", settings.get("KillWait", ""))
        if wait is None or settings.get("PreemptMode", "OFF") == "OFF":
            return
        if order.stop_grace_s >= int(wait[0]):
            raise EngineError(
                f"trial.stop_grace is {order.stop_grace_s:g} s, but this Slurm kills a preempted "
                f"job {wait[0]} s after SIGTERM (KillWait). Give trials less time to save: "
                f"stop_grace: {max(1, int(wait[0]) - 2)}s"
            )

    def _check_limit(self, order: AllocationOrder) -> None:
        """Slurm would take a job that is longer than its partition allows, and never start it."""
        if order.time_s is None:
            return
        text = run_command(
            ["scontrol", "show", "partition", "--oneliner"], refused="Slurm shows no partitions"
        )
        limits_s = _limits_s(text, self._config.partition)
        if limits_s and max(limits_s.values()) < order.time_s:
            known = ", ".join(f"{name} {value / 60:g}m" for name, value in limits_s.items())
            raise EngineError(
                f"engine.time is {order.time_s / 60:g}m, but the partition allows less ({known}). "
                "Give it less time, or name another partition: slurm: {partition: NAME}"
            )


def _limits_s(text: str, named: str | None) -> dict[str, float]:
    """Time limits of the partitions in which a job may run, in seconds.

    Args:
        text: What `scontrol show partition --oneliner` prints.
        named: Partitions of the study file; None: the default of the cluster.
    """
    wanted = named.split(",") if named is not None else None
    found = {}
    for line in text.splitlines():
        values = dict(word.split("=", 1) for word in line.split() if "=" in word)
        name = values.get("PartitionName", "")
        is_wanted = values.get("Default") == "YES" if wanted is None else name in wanted
        if is_wanted and (limit_s := _seconds(values.get("MaxTime", ""))) is not None:
            found[name] = limit_s
    return found


def _seconds(limit: str) -> float | None:
    """`1-12:00:00` in seconds, infinity for `UNLIMITED`; None where it is no time."""
    if limit == "UNLIMITED":
        return math.inf
    time = re.fullmatch(r"(?:(\d+)-)?(\d+):(\d+):(\d+)", limit)
    if time is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in time.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def _is_of_a_job(variable: str) -> bool:
    return variable.startswith(_OF_A_JOB)


def _check_time(order: AllocationOrder) -> None:
    least_s = order.notice_s + 2 * SIGNAL_RESOLUTION_S
    if order.time_s is not None and order.time_s < least_s:
        raise EngineError(
            f"engine.time is {order.time_s:g} s, but trials are told to save up to "
            f"{order.notice_s + SIGNAL_RESOLUTION_S} s before the end. Give it at least "
            f"{-(-least_s // 60)}m, or a shorter trial.stop_grace."
        )


def _run_if_known(words: Sequence[str]) -> None:
    """Ignores job ids of other names, and of jobs that Slurm has forgotten."""
    try:
        run_command(words, refused="Slurm does not cancel")
    except EngineError as error:
        if not any(word in str(error) for word in _OVER):
            raise


def _newest(text: str) -> tuple[Allocation, ...]:
    """The last job of each number: a number may have been submitted again."""
    found: dict[int, tuple[bool, int, Allocation]] = {}
    for job, each in _rows(text):
        place = (not each.state.is_over, job, each)
        if each.number not in found or place[:2] > found[each.number][:2]:
            found[each.number] = place
    return tuple(found[number][2] for number in sorted(found))


def _rows(text: str) -> Iterator[tuple[int, Allocation]]:
    for line in text.splitlines():
        array, task, job, state, node, start, end, comment, reason = line.split("|", 8)
        if not task.isdecimal():
            continue
        known = _STATES.get(state, AllocationState.ENDED)
        if known is AllocationState.RUNNING and comment == RELEASED:
            known = AllocationState.ENDING  # Its trials save.
        has_begun = known is not AllocationState.PENDING
        yield (
            int(job),
            Allocation(
                number=int(task),
                name=f"{array}_{task}",
                state=known,
                reason=_reason(state, reason, known),
                node=node if node not in _NONE else None,
                started_at=_at(start) if has_begun else None,
                deadline=_at(end) if known is AllocationState.RUNNING else None,
            ),
        )


def _reason(state: str, reason: str, known: AllocationState) -> str:
    """Slurm's reason; and its state if it is more specific, such as PREEMPTED or TIMEOUT."""
    words = [] if reason in _NONE else [reason]
    if known.value != state.lower() and known is not AllocationState.ENDING:
        words.insert(0, state.lower())
    return ", ".join(words)


def _at(text: str) -> datetime | None:
    return read_deadline(text)
