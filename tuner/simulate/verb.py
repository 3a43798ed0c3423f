"""`tuner simulate`: reads the files, plays each pruner with each seed, shows what came out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from search_spaces import SearchSpace
from tuner.budget import Budget
from tuner.config import PrunerConfig, StudyConfig, load_study_file
from tuner.config.study import AUTO
from tuner.errors import ConfigError
from tuner.simulate.compare import speed_of, table_of, write_picture
from tuner.simulate.curves import CurveTable, read_table
from tuner.simulate.run import Simulated, simulate

#: Of the table in a file or a pipe.
_WIDTH = 110
_ALWAYS = (AUTO, "asha", "median", "none")


def simulate_study(
    file: Path,
    curves: Path,
    *,
    n_devices: int,
    n_seeds: int,
    pruners: Sequence[str] | None,
    restart_s: float,
    picture: Path | None,
    environ: Mapping[str, str],
) -> list[Simulated]:
    """
    Args:
        file: The study file.
        curves: The table.
        n_devices: Each takes one trial at a time.
        n_seeds: Repetitions, with seeds from 0.
        pruners: Names; None for the file's own and the common ones.
        restart_s: What an attempt costs before it trains.
        picture: Where the picture goes; None for none.
        environ: Fills the file's variables.

    Raises:
        ConfigError: If the file, the table or a pruner cannot be used.
    """
    config = load_study_file(file, environ=environ)
    table = _table(config, curves)
    budget = Budget(
        trials=config.budget.trials,
        time_s=config.budget.time_s,
        device_hours=config.budget.device_hours,
    )
    console = Console()
    if not console.is_terminal:
        console = Console(width=_WIDTH)
    wanted = _pruners(config, pruners)
    play = partial(simulate, config, table, n_devices=n_devices, restart_s=restart_s, budget=budget)
    with Progress(console=console, transient=True) as progress:
        cases = [(pruner, seed) for pruner in wanted for seed in range(n_seeds)]
        tracked = progress.track(cases, description="simulating")
        runs = [play(pruner=pruner, seed=seed) for pruner, seed in tracked]
    _show(console, runs, next(iter(config.objectives)), picture)
    return runs


def _show(
    console: Console, runs: Sequence[Simulated], objective: str, picture: Path | None
) -> None:
    console.print(table_of(runs, objective))
    n_steps = sum(run.n_reports for run in runs)
    console.print(f"{n_steps:,} steps played, {speed_of(runs):,.0f} a second beside the search")
    if picture is not None:
        write_picture(runs, objective, picture)
        console.print(f"picture: {picture}")


def _table(config: StudyConfig, curves: Path) -> CurveTable:
    if len(config.objectives) != 1:
        raise ConfigError("simulate plays one objective.", file=config.file, key="objectives")
    if not isinstance(config.search_space, SearchSpace):
        raise ConfigError(
            "simulate needs a search_space in the study file.",
            file=config.file,
            key="search_space",
        )
    return read_table(curves, config.search_space)


def _pruners(config: StudyConfig, names: Sequence[str] | None) -> list[PrunerConfig]:
    """By name; the file's own arguments stay with the file's own pruner."""
    own = config.pruner
    if names is None:
        names = list(dict.fromkeys([own.name] if own else [])) + [
            name for name in _ALWAYS if own is None or name != own.name
        ]
    return [
        own if own is not None and own.name == name else PrunerConfig.model_validate({"name": name})
        for name in names
    ]
