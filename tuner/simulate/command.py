"""`tuner simulate`: reads the files, simulates each pruner with each seed, shows the results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from tuner.compose.transfer import NOTHING, begins_with, told
from tuner.config import PrunerConfig, StudyConfig, load_study_file
from tuner.config.sections.search import AUTO
from tuner.errors import ConfigError, TunerError
from tuner.queries.locate import Place, find_place, is_sqlite, place_of
from tuner.search.pruners.registry import is_population_based
from tuner.search.samplers.transfer import Transferred
from tuner.search_spaces import SearchSpace
from tuner.simulate.compare import recorded_lines, speed_of, table_of, write_picture
from tuner.simulate.curves import CurveTable, read_table
from tuner.simulate.processes import play_all
from tuner.simulate.recorded import RecordedCurves, read_recorded
from tuner.simulate.run import Simulated, simulate

_TABLE = ".npz"
#: Width of the table in a file or a pipe.
_WIDTH = 110
_ALWAYS = (AUTO, "asha", "median", "none")


def simulate_study(
    file: Path,
    curves: str,
    *,
    n_devices: int,
    n_seeds: int,
    pruners: Sequence[str] | None,
    restart_s: float,
    picture: Path | None,
    environ: Mapping[str, str],
    whole_only: bool = False,
    n_processes: int = 1,
) -> list[Simulated]:
    """Simulates a study.

    Args:
        file: The study file.
        curves: The path of a table, an earlier study of the study file's database, or another
            database with one study.
        n_devices: Number of devices; each runs one trial at a time.
        n_seeds: Repetitions, with seeds from 0.
        pruners: Names; None for the file's own and the common ones.
        restart_s: Seconds that an attempt takes before it trains.
        picture: Path of the plot; None for none.
        environ: Values of the file's variables.
        whole_only: Whether to use only completed trials of an earlier study.
        n_processes: Number of parallel simulations.

    Raises:
        TunerError: If the file, the curves or a pruner cannot be used.
    """
    config = load_study_file(file, environ=environ)
    table = _table(config, curves, environ, whole_only=whole_only)
    budget = config.budget.limits
    if budget.energy_kwh is not None:
        problem = "is given, but curves tell of no energy. Simulate with another budget."
        raise ConfigError(problem, file=config.file, key="budget.energy")
    console = Console()
    if not console.is_terminal:
        console = Console(width=_WIDTH)
    wanted = _pruners(config, pruners)
    earlier, told_of_earlier = _earlier(config, curves)
    play = partial(
        simulate,
        config,
        table,
        n_devices=n_devices,
        restart_s=restart_s,
        budget=budget,
        transferred=earlier.configurations,
    )
    with Progress(console=console, transient=True) as progress:
        cases = [(pruner, seed) for pruner in wanted for seed in range(n_seeds)]
        played = play_all(play, cases, n_processes=n_processes)
        runs = list(progress.track(played, total=len(cases), description="simulating"))
    _show(console, runs, next(iter(config.objectives)), picture, n_processes)
    lines = list(recorded_lines(table, runs)) if isinstance(table, RecordedCurves) else []
    for line in [*told_of_earlier, *lines]:
        console.print(line, soft_wrap=True, highlight=False)
    return runs


def _earlier(config: StudyConfig, curves: str) -> tuple[Transferred, list[str]]:
    """The initial configurations from `transfer` for each simulation, and notes to show.

    Earlier studies that cannot be read are skipped: the curves may come from another machine.
    """
    if curves in config.transfer:
        # Its best are the answer that a simulation is to find.
        problem = f"transfer: is left out, because {curves} is what is played"
        return NOTHING, [problem]
    try:
        found = begins_with(config)
    except TunerError as error:
        return NOTHING, [f"transfer: is left out: {error}"]
    return found, told(found, config).splitlines() if config.transfer else []


def _show(
    console: Console,
    runs: Sequence[Simulated],
    objective: str,
    picture: Path | None,
    n_processes: int,
) -> None:
    console.print(table_of(runs, objective))
    n_steps, n_at_a_time = sum(run.n_reports for run in runs), min(n_processes, len(runs))
    speed = speed_of(runs) * n_at_a_time
    by = f" by {n_at_a_time} processes" if n_at_a_time > 1 else ""
    console.print(f"{n_steps:,} steps played{by}, {speed:,.0f} a second, without the search")
    if picture is not None:
        write_picture(runs, objective, picture)
        console.print(f"picture: {picture}")


def _table(
    config: StudyConfig, curves: str, environ: Mapping[str, str], *, whole_only: bool
) -> CurveTable | RecordedCurves:
    if len(config.objectives) != 1:
        raise ConfigError("simulate plays one objective.", file=config.file, key="objectives")
    if not isinstance(config.search_space, SearchSpace):
        raise ConfigError(
            "simulate needs a search_space in the study file.",
            file=config.file,
            key="search_space",
        )
    if curves.endswith(_TABLE):
        if whole_only:
            raise ConfigError("--whole is for curves of an earlier study, not of a table.")
        return read_table(Path(curves), config.search_space)
    (direction,) = config.objectives.values()
    place = _place(config, curves, environ)
    return read_recorded(place, config.search_space, direction, whole_only=whole_only)


def _place(config: StudyConfig, curves: str, environ: Mapping[str, str]) -> Place:
    """A database, or a study of the study file's own."""
    if "://" in curves or is_sqlite(Path(curves)):
        return find_place(curves, None, environ)
    return replace(place_of(config), study=curves)


def _pruners(config: StudyConfig, names: Sequence[str] | None) -> list[PrunerConfig]:
    """By name; the file's own arguments stay with the file's own pruner."""
    own = config.pruner
    if names is None:
        names = list(dict.fromkeys([own.name] if own else [])) + [
            name for name in _ALWAYS if own is None or name != own.name
        ]
    pruners = [
        own if own is not None and own.name == name else PrunerConfig.model_validate({"name": name})
        for name in names
    ]
    if any(map(is_population_based, pruners)):
        raise ConfigError(
            "is 'pbt', which cannot be simulated: a recorded curve is of one configuration, and "
            "pbt changes parameters on the way. Name others with --pruner.",
            file=config.file if own is not None and is_population_based(own) else None,
            key="pruner.name" if own is not None and is_population_based(own) else "--pruner",
        )
    return pruners
