"""The batch script: an array of one-node jobs, each with a dispatcher."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from tuner.config.sections.engine import SlurmConfig
from tuner.engines.names import plain_name
from tuner.engines.port import AllocationOrder
from tuner.engines.setup_lines import setup_lines

_PREFIX = "tuner:"
#: Comment of a job that is not needed any more.
RELEASED = "released"
_MIB = 1024**2
#: Slurm checks time limits once a minute: a signal may be this much early.
SIGNAL_RESOLUTION_S = 60
_WAIT = """\
pid= released=
leave() {
    [ "$1" = USR1 ] && released=1
    if [ -n "$pid" ]; then kill -TERM "$pid" 2>/dev/null; else exit 0; fi
}
# SIGTERM: the node is taken back for now. SIGUSR1: the allocation is not needed any more.
trap 'leave TERM' TERM
trap 'leave USR1' USR1
task="${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}${SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}"
# A signal is lost while a job starts: the comment stays.
[ "$(squeue -h -j "$task" -o %k 2>/dev/null)" = RELEASED ] && exit 0
if [ -z "${SLURM_JOB_END_TIME:-}" ]; then  # set by Slurm from 23.02 on
    SLURM_JOB_END_TIME=$(SLURM_TIME_FORMAT=%s squeue -h -j "$task" -o %e 2>/dev/null)
fi
export SLURM_JOB_END_TIME
""".replace("RELEASED", RELEASED)
_END = """\
pid=$!
wait "$pid"; code=$?
while kill -0 "$pid" 2>/dev/null; do wait "$pid"; code=$?; done
[ -n "$released" ] && exit 0
# 75: trials have saved, and the job is to run again. Not after scancel, where it is COMPLETING.
if [ "$code" = 75 ] && [ "$(squeue -h -j "$task" -o %T 2>/dev/null)" = RUNNING ]; then
    scontrol requeue "$task"
fi
exit "$code"
"""


def job_name(study: str) -> str:
    """The name of a study's jobs: the study's, as far as Slurm's commands can show it."""
    return _PREFIX + plain_name(study)


def log_path(log_folder: Path, name: str) -> Path:
    """The file with the output of an allocation, such as `slurm-4711_3.log`."""
    return log_folder / f"slurm-{name}.log"


def batch_script(order: AllocationOrder, numbers: Sequence[int], config: SlurmConfig) -> str:
    """The whole script, for `sbatch`."""
    options = "\n".join(f"#SBATCH {option}" for option in _options(order, numbers, config))
    exports = "".join(
        f"export {name}={shlex.quote(value)}\n" for name, value in order.environment.items()
    )
    setup = "".join(f"{line}\n" for line in setup_lines(order.setup))
    command = f"{shlex.join(order.command)} &\n"
    return f"#!/bin/bash\n{options}\n\n{_WAIT}{exports}{setup}{command}{_END}"


def _options(order: AllocationOrder, numbers: Sequence[int], config: SlurmConfig) -> Iterator[str]:
    yield f"--job-name={job_name(order.study)}"
    yield f"--array={_array(numbers)}"
    yield "--nodes=1"
    yield "--ntasks=1"
    if order.devices:
        yield f"--gpus-per-node={order.devices}"
    if order.cpus is not None:
        yield f"--cpus-per-task={order.cpus}"
    if order.memory_bytes is not None:
        yield f"--mem={math.ceil(order.memory_bytes / _MIB)}M"
    if order.time_s is not None:
        yield f"--time={_minutes(order.time_s)}"
    yield f"--signal=B:TERM@{order.notice_s}"
    yield "--requeue"
    yield "--open-mode=append"
    yield f"--output={_quoted(log_path(order.log_folder, '%A_%a'), keeps='%A_%a')}"
    yield f"--chdir={_quoted(order.folder)}"
    for key in ("partition", "qos", "account"):
        if (value := getattr(config, key)) is not None:
            yield f"--{key}={_quoted(value)}"
    yield from config.options


def _array(numbers: Sequence[int]) -> str:
    """`0-15`, or `3,5,6` if some are missing."""
    in_order = sorted(numbers)
    first, last = in_order[0], in_order[-1]
    if len(in_order) > 1 and in_order == list(range(first, last + 1)):
        return f"{first}-{last}"
    return ",".join(map(str, in_order))


def _minutes(time_s: float) -> int:
    return max(1, math.floor(time_s / 60))


def _quoted(value: object, keeps: str = "") -> str:
    """A value as the options in a script take it; `%` is a place in names of files."""
    text = str(value)
    if keeps:
        text = text.removesuffix(f"{keeps}.log").replace("%", "%%") + f"{keeps}.log"
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
