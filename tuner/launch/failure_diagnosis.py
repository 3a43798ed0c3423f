"""Why a program ended badly: from its exception, its exit code, and the last lines it wrote."""

from __future__ import annotations

import re
import signal
import sysconfig
import traceback
from collections.abc import Sequence
from itertools import dropwhile
from pathlib import Path

from tuner.domain.attempt import Cause, Ending, Outcome

N_TAIL_LINES = 20
#: Before the lines of a function that ended its own process.
ENDED_ITSELF = "The function called sys.exit:"
_TAIL_BYTES = 64 * 1024
#: Maximum length of the text kept with an attempt; MySQL's TEXT holds 65,535 bytes.
_MAX_DETAIL = 16_000

# Texts of CUDA, cuDNN, cuBLAS (as torch shows them), CUDA itself (as C programs, Numba, RAPIDS and
# XGBoost show it), Triton, CuPy, XLA and TensorFlow.
_DEVICE_MEMORY = re.compile(
    r"CUDA out of memory|CUDA error: out of memory|CUDNN_STATUS_ALLOC_FAILED"
    r"|CUBLAS_STATUS_ALLOC_FAILED|CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation"
    r"|Triton Error \[CUDA\]: out of memory|cupy\.cuda\.memory\.OutOfMemoryError"
    r"|RESOURCE_EXHAUSTED|ResourceExhaustedError"
)
_HOST_MEMORY = re.compile(
    r"^MemoryError|DefaultCPUAllocator: (?:can't|not enough)|Cannot allocate memory"
    r"|std::bad_alloc|Unable to allocate [\d.]+ [KMGT]iB",
    re.MULTILINE,
)

# What gloo, NCCL and torch's store say on a rank whose peer is gone.
_LOST_PEER = re.compile(
    r"Connection (?:reset|closed|refused)|Broken pipe|remote process exited|NCCL|DistNetworkError"
    r"|Socket Timeout|client socket has|connectFullMesh|failed to recv|RendezvousConnectionError",
    re.IGNORECASE,
)
# Of gloo, of NCCL's watchdog, and of a rendezvous.
_WAITED_IN_VAIN = re.compile(
    r"Timed out waiting \d+ ?ms for (?:recv|send)|collective operation timeout"
    r"|waiting for clients\. \d+/\d+ clients joined",
    re.IGNORECASE,
)
# Of a GPU or its driver that is broken, whatever the program does (torch, CUDA, the kernel's log).
_DEVICE_FAULT = re.compile(
    r"uncorrectable ECC|fallen off the bus|GPU is lost|NVRM: Xid|hardware stack error"
    r"|CUDA driver initialization failed|CUDA initialization: CUDA driver"
    r"|no CUDA-capable device|CUDA-capable device\(s\) is/are busy or unavailable"
    r"|CUDA error: (?:initialization error|unknown error|driver shutting down)"
)
_DISK_FULL = re.compile(r"No space left on device|Disk quota exceeded")
# torch's data loaders, Python's shared memory, NCCL; all of them in /dev/shm.
_SHARED_MEMORY_FULL = re.compile(
    r"(?:file|object) </?torch_\d[^>]*>:? .*No space left"
    r"|out of shared memory|/dev/shm\b.*No space left|No space left.*/(?:dev/shm|psm_)"
    r"|Error while creating shared memory segment"
)
_PORT_TAKEN = re.compile(r"EADDRINUSE|address already in use", re.IGNORECASE)

#: Folder at the top of every traceback of a user's program.
_TUNER = Path(__file__).parents[1]
_STANDARD = sysconfig.get_path("stdlib")
_LIBRARIES = frozenset({"site-packages", "dist-packages"})
MACHINERY = frozenset(
    {
        _TUNER / "launch" / "local_host" / "entry.py",
        _TUNER / "trials" / "worker" / "function_worker.py",
        _TUNER / "trials" / "worker" / "command_worker.py",
        _TUNER / "frameworks" / "optuna_programs" / "evaluation.py",
        _TUNER / "frameworks" / "optuna_programs" / "execution.py",
        _TUNER / "frameworks" / "optuna_programs" / "record.py",
    }
)


def memory_cause(text: str) -> Cause | None:
    """Which memory ran out, by the printed text; None if none did."""
    if _DEVICE_MEMORY.search(text):
        return Cause.DEVICE_MEMORY
    return Cause.HOST_MEMORY if _HOST_MEMORY.search(text) else None


def is_lost_peer(text: str) -> bool:
    """Whether a rank failed only because another one had."""
    return _LOST_PEER.search(text) is not None


def has_waited_in_vain(text: str) -> bool:
    """Whether a rank failed because another did not enter a collective."""
    return _WAITED_IN_VAIN.search(text) is not None


def is_device_fault(text: str) -> bool:
    """Whether a GPU or its driver seems to be broken, and not the program."""
    return _DEVICE_FAULT.search(text) is not None


def is_disk_full(text: str) -> bool:
    """Whether a program could not write because there was no room (perhaps in shared memory)."""
    return _DISK_FULL.search(text) is not None


def is_quota_reached(text: str) -> bool:
    """Whether a quota was reached, which a disk's free bytes do not show."""
    return "Disk quota exceeded" in text


def is_shared_memory_full(text: str) -> bool:
    """Whether /dev/shm was full, which is memory of the machine and no disk."""
    return _SHARED_MEMORY_FULL.search(text) is not None


def is_port_taken(text: str) -> bool:
    """Whether a program could not listen on its port."""
    return _PORT_TAKEN.search(text) is not None


def diagnose_exit(exit_code: int, output: str, *, n_oom_kills: int = 0) -> Ending:
    """The ending of an attempt whose program sent no final message.

    Args:
        exit_code: As in `subprocess`: negative for a signal.
        output: The last lines of its output.
        n_oom_kills: Number of OOM kills by the kernel during its life.
    """
    if exit_code == -signal.SIGKILL and n_oom_kills:
        return Ending(
            outcome=Outcome.OUT_OF_MEMORY,
            cause=Cause.HOST_MEMORY,
            detail=f"The kernel killed it for want of memory.\n{output}".rstrip(),
        )
    if cause := memory_cause(output):
        return Ending(outcome=Outcome.OUT_OF_MEMORY, cause=cause, detail=output)
    if exit_code < 0:
        detail = f"Killed by {signal_name(-exit_code)}.\n{output}".rstrip()
        return Ending(outcome=Outcome.FAILED, cause=Cause.SIGNAL, detail=detail)
    if exit_code > 0:
        detail = f"Exit code {exit_code}.\n{output}".rstrip()
        return Ending(outcome=Outcome.FAILED, cause=Cause.EXIT_CODE, detail=detail)
    return Ending(
        outcome=Outcome.FAILED,
        cause=Cause.NO_RESULT,
        detail=(
            "The program exited without an error but reported no result: its process ended "
            f"(os._exit?) before the function returned.\n{output}"
        ).rstrip(),
    )


def nan_detail(names: Sequence[str]) -> str:
    """Why a trial with a value that is NaN has failed."""
    return (
        f"The value of {', '.join(names)} is not a number (NaN). The configuration counts as "
        "infeasible and is avoided."
    )


def user_traceback(error: BaseException, *, is_short: bool = False) -> str:
    """The traceback from the first line of the user's own code on.

    Args:
        error: The exception.
        is_short: Whether to end at the user's own line if the tuner's code refuses a call.
    """
    whole = traceback.TracebackException.from_exception(error)
    part: traceback.TracebackException | None = whole
    while part is not None:
        theirs = dropwhile(_is_machinery, part.stack)
        shown = list(theirs)
        if is_short:
            shown = _without_our_end(shown)
        part.stack = traceback.StackSummary.from_list(shown)
        part = part.__cause__ or part.__context__
    return "".join(whole.format()).rstrip()


def _without_our_end(frames: list[traceback.FrameSummary]) -> list[traceback.FrameSummary]:
    """Frames up to the user's failed call of the tuner; all if it was no such call."""
    n_kept = len(frames)
    while n_kept and _is_of_library(frames[n_kept - 1]):
        n_kept -= 1
    is_ours = any(_is_ours(frame) for frame in frames[n_kept:])
    return frames[:n_kept] if n_kept and is_ours else frames


def _is_ours(frame: traceback.FrameSummary) -> bool:
    return Path(frame.filename).is_relative_to(_TUNER)


def _is_of_library(frame: traceback.FrameSummary) -> bool:
    path = Path(frame.filename)
    is_installed = path.is_relative_to(_STANDARD) or not _LIBRARIES.isdisjoint(path.parts)
    return _is_ours(frame) or is_installed


def import_traceback(error: BaseException) -> str:
    """The traceback of a module that ended the program, up to its own last line."""
    whole = traceback.TracebackException.from_exception(error)
    shown = list(dropwhile(_is_machinery, whole.stack))
    while len(shown) > 1 and _is_of_library(shown[-1]):
        shown.pop()
    whole.stack = traceback.StackSummary.from_list(shown)
    return "".join(whole.format(chain=False)).rstrip()


def _is_machinery(frame: traceback.FrameSummary) -> bool:
    """Whether a frame belongs to the tuner or the import system, at the top of every traceback."""
    path = Path(frame.filename)
    if frame.filename.startswith("<frozen") or path.parent.name == "importlib":
        return True
    return path in MACHINERY


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def readable(text: str) -> str:
    """Program output in a form that every terminal and database accepts.

    At most its last 16,000 characters, without NUL (PostgreSQL refuses it) and lone surrogates
    (which cannot be encoded).
    """
    shown = text[-_MAX_DETAIL:].replace("\0", "\N{REPLACEMENT CHARACTER}")
    return shown.encode(errors="replace").decode()


def last_lines(path: Path, n_lines: int = N_TAIL_LINES) -> str:
    """The end of a log; empty if it does not exist."""
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - _TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    return "\n".join(text.replace("\r", "\n").splitlines()[-n_lines:])
