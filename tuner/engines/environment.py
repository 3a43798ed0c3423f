"""The allocation that the environment names, for engines without variables of their own."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from tuner.domain.allocation import OwnAllocation
from tuner.engines.port import ENV_ALLOCATION, ENV_DEADLINE, ENV_NUMBER


def own_allocation(
    engine: str, environ: Mapping[str, str], *, is_requeued: bool
) -> OwnAllocation | None:
    """Reads the variables that `submit` sets for the dispatcher.

    Args:
        engine: Name of the engine.
        environ: Variables of the process.
        is_requeued: Whether the engine restarts the dispatcher after exit code 75.
    """
    name = environ.get(ENV_ALLOCATION)
    if not name:
        return None
    number = environ.get(ENV_NUMBER, "")
    return OwnAllocation(
        engine=engine,
        name=name,
        number=int(number) if number.isdecimal() else None,
        deadline=read_deadline(environ.get(ENV_DEADLINE)),
        is_requeued=is_requeued,
    )


def read_deadline(seconds: str | None) -> datetime | None:
    """Seconds since 1970 as a time; None for anything else, such as Slurm's `Unknown`."""
    try:
        return datetime.fromtimestamp(float(seconds or ""), UTC)
    except (ValueError, OverflowError, OSError):
        return None
