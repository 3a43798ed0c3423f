"""Why a program ended badly, from texts that real programs print."""

from __future__ import annotations

import signal

import pytest

from tuner.domain.attempt import Cause, Outcome
from tuner.launch.failure_diagnosis import diagnose_exit, memory_cause, readable, signal_name

TORCH_CUDA = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total "
    "capacity of 79.11 GiB of which 10.00 GiB is free."
)
MEMORY_TEXTS = [
    (TORCH_CUDA, Cause.DEVICE_MEMORY),
    ("RuntimeError: CUDA error: out of memory\nCUDA kernel errors might", Cause.DEVICE_MEMORY),
    ("cuDNN error: CUDNN_STATUS_ALLOC_FAILED", Cause.DEVICE_MEMORY),
    ("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate", Cause.DEVICE_MEMORY),
    ("XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying", Cause.DEVICE_MEMORY),
    # Of a C program, Numba, CuPy and XGBoost.
    ("CUDA_ERROR_OUT_OF_MEMORY: out of memory", Cause.DEVICE_MEMORY),
    (
        "CudaAPIError: [<CUresult.CUDA_ERROR_OUT_OF_MEMORY: 2>] Call to cuMemAlloc results in "
        "CUDA_ERROR_OUT_OF_MEMORY",
        Cause.DEVICE_MEMORY,
    ),
    (
        "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 429,496,729,600 bytes",
        Cause.DEVICE_MEMORY,
    ),
    ("std::bad_alloc: cudaErrorMemoryAllocation: out of memory", Cause.DEVICE_MEMORY),
    ("RuntimeError: Triton Error [CUDA]: out of memory", Cause.DEVICE_MEMORY),
    ("Traceback (most recent call last):\n  ...\nMemoryError", Cause.HOST_MEMORY),
    ("numpy._core._exceptions._ArrayMemoryError: Unable to allocate 7.45 GiB", Cause.HOST_MEMORY),
    ("DefaultCPUAllocator: can't allocate memory: you tried", Cause.HOST_MEMORY),
    ("OSError: [Errno 12] Cannot allocate memory", Cause.HOST_MEMORY),
    ("terminate called after throwing 'std::bad_alloc'", Cause.HOST_MEMORY),
    ("", None),
    ("ValueError: shapes do not fit", None),
    ("loss 0.3, memory 12 GiB", None),
    ("NotAMemoryError", None),
]


@pytest.mark.parametrize(("text", "cause"), MEMORY_TEXTS, ids=[t[:40] for t, _ in MEMORY_TEXTS])
def test_memory_cause(text, cause):
    assert memory_cause(text) is cause


@pytest.mark.parametrize(
    ("exit_code", "output", "n_oom_kills", "outcome", "cause", "begins"),
    [
        (-9, "step 3", 1, "out_of_memory", "host_memory", "The kernel killed it"),
        (-9, "step 3", 0, "failed", "signal", "Killed by SIGKILL.\nstep 3"),
        (-15, "", 1, "failed", "signal", "Killed by SIGTERM."),
        (-11, "", 0, "failed", "signal", "Killed by SIGSEGV."),
        (1, TORCH_CUDA, 0, "out_of_memory", "device_memory", "torch.OutOfMemoryError"),
        (-6, "std::bad_alloc", 0, "out_of_memory", "host_memory", "std::bad_alloc"),
        (3, "", 0, "failed", "exit_code", "Exit code 3."),
        (
            0,
            "fine",
            0,
            "failed",
            "no_result",
            "The program exited without an error but reported no result: its process ended "
            "(os._exit?) before the function returned.\nfine",
        ),
    ],
)
def test_diagnose_exit(exit_code, output, n_oom_kills, outcome, cause, begins):
    ending = diagnose_exit(exit_code, output, n_oom_kills=n_oom_kills)
    assert (ending.outcome, ending.cause) == (Outcome(outcome), Cause(cause))
    assert ending.detail.startswith(begins)
    assert ending.detail == ending.detail.rstrip()


@pytest.mark.parametrize(("number", "name"), [(signal.SIGINT, "SIGINT"), (250, "signal 250")])
def test_signal_name_of_any_number(number, name):
    assert signal_name(number) == name


@pytest.mark.parametrize(
    ("text", "readable_text"),
    [
        ("plain ü", "plain ü"),
        ("a\x00b", "a�b"),
        ("name \udcff", "name ?"),
    ],
)
def test_readable_text_can_be_stored_by_every_database(text, readable_text):
    assert readable(text) == readable_text


def test_readable_keeps_the_end_of_a_long_text():
    text = readable("x" * 100_000 + "the error")
    assert text.endswith("the error")
    assert len(text.encode()) < 65_535
