"""Wall clocks of machines, which can be set: a namespace has only the kernel's own."""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.compiling import compile_library

_SOURCE = Path(__file__).with_name("clock.c")


@dataclass(frozen=True, kw_only=True)
class Clock:
    """The clock of one machine.

    Args:
        library: `clock.c`, compiled.
        file: Read by every process of the machine.
    """

    library: Path
    file: Path

    @property
    def env(self) -> Mapping[str, str]:
        return {"LD_PRELOAD": str(self.library), "CHAOS_CLOCK": str(self.file)}

    def set(self, offset_s: float) -> None:
        """Sets it so many seconds ahead of the right time."""
        # In one write of the file that is mapped: no process sees half of it.
        file = os.open(self.file, os.O_WRONLY | os.O_CREAT, 0o644)
        os.write(file, struct.pack("d", offset_s))
        os.close(file)


def make_clock(folder: Path, name: str) -> Clock:
    """A clock that is right."""
    library = folder / "libclock.so"
    if not library.exists():
        compile_library(_SOURCE, library)
    clock = Clock(library=library, file=folder / f"clock-{name}")
    clock.set(0.0)
    return clock
