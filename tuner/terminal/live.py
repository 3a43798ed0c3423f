"""The live view in a terminal: progress, the best so far and every device."""

from __future__ import annotations

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tuner.dispatch.notices import Notice, RunningTrial, Snapshot
from tuner.terminal import wording

#: More devices than this are counted, not drawn.
_MAX_ROWS = 32


class LiveView:
    """Draws snapshots in place, with important notices above. Entered while it shows.

    Args:
        console: The terminal.
        study: Name of the study.
    """

    refresh_every_s = 0.25

    def __init__(self, console: Console, study: str) -> None:
        self._study = study
        self._console = console
        self._live = Live(console=console, auto_refresh=False)

    def __enter__(self) -> LiveView:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self, notice: Notice) -> None:
        if wording.is_loud(notice):
            self._console.print(Text(wording.line(notice)))

    def refresh(self, snapshot: Snapshot) -> None:
        self._live.update(draw(snapshot, self._study), refresh=True)


def draw(snapshot: Snapshot, study: str) -> RenderableType:
    parts: list[RenderableType] = [_progress(snapshot), _counts(snapshot)]
    if snapshot.best:
        parts.append(_best(snapshot))
    parts.append(_devices(snapshot))
    state = " (stopping)" if snapshot.is_stopping else ""
    return Panel(Group(*parts), title=f"study {study}{state}", title_align="left")


def _progress(snapshot: Snapshot) -> RenderableType:
    row = Table.grid(padding=(0, 2), expand=True)
    row.add_column(ratio=1)
    row.add_column(justify="right", no_wrap=True)
    elapsed = wording.duration(snapshot.elapsed_s)
    if snapshot.fraction is None:
        row.add_row(Text("no budget: until Ctrl-C"), Text(elapsed))
        return row
    left = "" if snapshot.left_s is None else f", about {wording.duration(snapshot.left_s)} left"
    bar = ProgressBar(total=1.0, completed=snapshot.fraction)
    row.add_row(bar, Text(f"{snapshot.fraction:.0%}  {elapsed}{left}"))
    return row


def _counts(snapshot: Snapshot) -> Text:
    count = wording.trials_text(
        n_finished=snapshot.n_finished,
        n_begun=snapshot.n_begun,
        n_paused=snapshot.n_paused,
        limit=snapshot.n_trials,
    )
    words = Text(f"{count}  ")
    words.append(f"{snapshot.n_completed} completed", style="green")
    words.append(f"  {snapshot.n_pruned} pruned", style="yellow")
    words.append(f"  {snapshot.n_failed} failed", style="red" if snapshot.n_failed else "dim")
    if snapshot.n_waiting:
        words.append(f"  {snapshot.n_waiting} waiting", style="cyan")
    return words


def _best(snapshot: Snapshot) -> Text:
    assert snapshot.best is not None
    words = Text()
    words.append("best  ", style="bold")
    words.append(wording.values_text(snapshot.best.values), style="bold green")
    words.append(f"  trial {snapshot.best.number}: {wording.settings(snapshot.best.params)}", "dim")
    return words


def _devices(snapshot: Snapshot) -> RenderableType:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", expand=True)
    rows = sorted(snapshot.running, key=lambda running: _natural(running.devices))
    unused = {device: "idle" for device in snapshot.idle_devices} | dict(snapshot.left_to_others)
    names = [", ".join(running.devices) for running in rows] + list(unused)
    table.add_column("device", no_wrap=True, min_width=max(map(len, names), default=0))
    for column, width in (("trial", 5), ("for", 4), ("step", 4), ("value", 7)):
        table.add_column(column, no_wrap=True, min_width=width)
    # The rest of the line; what does not fit is cut.
    table.add_column("settings", no_wrap=True, overflow="ellipsis", ratio=1)
    for running in rows[:_MAX_ROWS]:
        # As text: a name such as `[/a]` is no markup.
        table.add_row(*map(Text, _row(running)))
    for device in list(unused)[: max(0, _MAX_ROWS - len(rows))]:
        is_idle = device in snapshot.idle_devices
        # This reason may be long; the last column is the one that is truncated.
        words = (Text("idle", "dim"),) if is_idle else ("", "", "", "", Text(unused[device], "dim"))
        table.add_row(Text(device), *words)
    n_hidden = len(rows) + len(unused) - _MAX_ROWS
    if n_hidden > 0:
        table.add_row(f"... and {n_hidden} more")
    return table


def _row(running: RunningTrial) -> tuple[str, ...]:
    number = str(running.number)
    if running.attempt_number > 1:
        number += f" (attempt {running.attempt_number})"
    return (
        ", ".join(running.devices),
        number if running.state == "running" else f"{number} {running.state}",
        wording.duration(running.elapsed_s),
        "" if running.step is None else str(running.step),
        " ".join(f"{value:.4g}" for value in running.values.values()),
        wording.settings(running.params),
    )


def _natural(devices: tuple[str, ...]) -> tuple[tuple[str, int], ...]:
    """Sorts `cpu:10` after `cpu:9`."""
    return tuple(
        (
            device.rstrip("0123456789"),
            int(device[len(device.rstrip("0123456789")) :] or 0),
        )
        for device in devices
    )
