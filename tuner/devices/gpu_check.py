"""A small program that tests whether a GPU works: `python -m tuner.devices.gpu_check`.

It creates a context on the first visible GPU, fills some memory, reads it back and compares. It
needs only the driver's own library, neither torch nor a CUDA toolkit, and runs as a process of its
own, because a broken GPU may hang or kill its user. Exit code 0: the GPU works. With its parent's
pid as an argument, it ends when the parent does.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

#: Another one than the system's, for tests.
ENV_LIBRARY = "TUNER_CUDA_LIBRARY"

#: prctl(2): sends this process a signal when the thread that started it ends.
_PR_SET_PDEATHSIG = 1
_N_WORDS = 16 * 1024 * 1024
_PATTERN = 0x5AA5C33C


class CudaError(Exception):
    """The driver refused something."""


def main() -> int:
    if len(sys.argv) > 1:
        _end_with(int(sys.argv[1]))
    try:
        test_first_gpu(ctypes.CDLL(os.environ.get(ENV_LIBRARY, "libcuda.so.1")))
    except (CudaError, OSError, AttributeError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _end_with(parent: int) -> None:
    """Ends a test that hangs on a broken GPU when its dispatcher ends."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "prctl"):  # Linux
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)  # It went before the kernel was told.


def test_first_gpu(cuda: ctypes.CDLL) -> None:
    """Tests the first GPU.

    Raises:
        CudaError: With the function that failed and its code.
    """

    def call(name: str, *arguments: object) -> None:
        code = getattr(cuda, name)(*arguments)
        if code:
            raise CudaError(f"{name} gave error {code}.")

    device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
    call("cuInit", 0)
    call("cuDeviceGet", ctypes.byref(device), 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)
    call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(4 * _N_WORDS))
    call("cuMemsetD32_v2", memory, ctypes.c_uint(_PATTERN), ctypes.c_size_t(_N_WORDS))
    words = (ctypes.c_uint32 * _N_WORDS)()
    call("cuMemcpyDtoH_v2", words, memory, ctypes.c_size_t(4 * _N_WORDS))
    if bytes(words) != _PATTERN.to_bytes(4, sys.byteorder) * _N_WORDS:
        raise CudaError("Its memory does not hold what was written.")
    call("cuMemFree_v2", memory)
    call("cuDevicePrimaryCtxRelease_v2", device)


if __name__ == "__main__":
    sys.exit(main())
