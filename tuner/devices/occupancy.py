"""Describes the processes that use a device."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.devices.device import DeviceStatus, Holder

#: A container does not show the processes outside of it, so memory without a visible owner counts
#: as in use above this. Less may be the driver or a desktop.
HIDDEN_USE_BYTES = 1024**3

_MAX_NAMED_HOLDERS = 3
#: NVIDIA's MPS server stays on a GPU after its clients, which are listed with their own pids.
_MPS = "nvidia-cuda-mps"


def use_by_others(status: DeviceStatus, *, own_pids: frozenset[int] = frozenset()) -> str | None:
    """The users of a device: `python (pid 4242, user ann) holds 8.1 GiB of it`; None if unused."""
    others = [
        holder
        for holder in status.holders
        if holder.pid not in own_pids and not (holder.command or "").startswith(_MPS)
    ]
    if others:
        return holders_text(others)
    used_bytes = status.memory_used_bytes or 0
    if not status.holders and used_bytes > HIDDEN_USE_BYTES:
        return f"{size_text(used_bytes)} of it is held by processes that cannot be seen from here"
    return None


def other_tuner(pid: int | None) -> str:
    """Text for a device that another tuner has claimed; `pid` is its process, if known."""
    return f"another tuner{'' if pid is None else f' (pid {pid})'} uses it"


def holders_text(holders: Sequence[Holder]) -> str:
    named = [_holder_text(holder) for holder in holders[:_MAX_NAMED_HOLDERS]]
    n_more = len(holders) - len(named)
    return ", ".join(named) + (f" and {n_more} more" if n_more else "")


def size_text(size_bytes: int) -> str:
    """A size as text: `312 MiB`, `8.1 GiB`."""
    if size_bytes < 1024**3:
        return f"{round(size_bytes / 1024**2)} MiB"
    return f"{size_bytes / 1024**3:.1f} GiB"


def _holder_text(holder: Holder) -> str:
    user = f", user {holder.user}" if holder.user else ""
    who = f"{holder.command or 'a process'} (pid {holder.pid}{user})"
    if holder.memory_bytes is None:
        return f"{who} uses it"
    return f"{who} holds {size_text(holder.memory_bytes)} of it"
