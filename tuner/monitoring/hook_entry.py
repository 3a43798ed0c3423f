"""Starts the program of a hook once the dispatcher says that it can.

    python -I -S hook_entry.py DESCRIPTOR PROGRAM [ARGUMENT ...]

The dispatcher says so after it has told the guardian of the process. Without, a dispatcher that is
killed in between would leave the program behind. The program takes the place of this process, which
imports only the standard library: it starts in some 20 ms.
"""

from __future__ import annotations

import os
import signal
import sys

NOT_STARTED = 127
"""Exit code where the program cannot be started, as in shells."""


def main() -> None:
    descriptor, program = int(sys.argv[1]), sys.argv[2]
    if not os.read(descriptor, 1):
        return  # The dispatcher is gone.
    os.close(descriptor)
    # The interpreter ignores these, and the program would inherit that.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(program, sys.argv[2:])
    except OSError as error:
        print(f"{program} could not be started: {error.strerror}", file=sys.stderr)
        sys.exit(NOT_STARTED)


if __name__ == "__main__":
    main()
