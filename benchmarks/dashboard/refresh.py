"""How long the server works when an open page refreshes."""

import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import optuna
from optuna.storages import RDBStorage
from optuna.trial import TrialState, create_trial

from tuner.app.charts.many_curves import CurveAxes
from tuner.app.data.convergence.series import Axis
from tuner.app.data.page_data import Look
from tuner.app.views.convergence import Wish, draw
from tuner.app.views.curves import draw_curves
from tuner.app.views.shell import Shown

_NEW = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Refresh:
    """Milliseconds of the server, medians."""

    page: str
    first_ms: float
    nothing_new_ms: float
    new_reports_ms: float
    new_trials_ms: float
    n_repeats: int
    load_before: float


def measure(path: Path, folder: Path, n_repeats: int) -> list[Refresh]:
    """
    Args:
        path: An SQLite database with one study; it is copied.
        folder: For the copy.
        n_repeats: Of each refresh.
    """
    copy = folder / "refreshed.db"
    shutil.copy(path, copy)
    url = f"sqlite:///{copy}"
    look = Look(url)
    (study,) = look.studies().values()
    shown = Shown(look=look, study=study, objectives=look.objectives(study))
    wish = Wish(
        axis=Axis.TRIALS,
        place=0,
        log_x=False,
        log_y=False,
        all_values=False,
        beside=None,
        is_forecast=False,
    )
    axes = CurveAxes(name="loss", log_x=False, log_y=False)
    stored = optuna.load_study(storage=RDBStorage(url), study_name=study.name)
    pages: dict[str, Callable[[], object]] = {
        "Convergence": lambda: draw(shown, wish, look.trials(study)),
        "Learning curves": lambda: draw_curves(shown, axes, None),
    }
    found = [_measure(name, page, stored, n_repeats) for name, page in pages.items()]
    look.close()
    return found


def _measure(
    name: str, page: Callable[[], object], stored: optuna.Study, n_repeats: int
) -> Refresh:
    load_before = os.getloadavg()[0]
    first_ms = _timed_ms(page)
    nothing = [_timed_ms(page) for _ in range(n_repeats)]
    reports, trials = [], []
    for _ in range(n_repeats):
        running = stored.ask()
        _timed_ms(page)
        for step in range(_NEW):
            running.report(0.5, step)
        reports.append(_timed_ms(page))
        stored.tell(running, state=TrialState.FAIL)
        stored.add_trials([create_trial(value=0.5 + i / 100) for i in range(_NEW)])
        trials.append(_timed_ms(page))
    return Refresh(
        page=name,
        first_ms=first_ms,
        nothing_new_ms=median(nothing),
        new_reports_ms=median(reports),
        new_trials_ms=median(trials),
        n_repeats=n_repeats,
        load_before=load_before,
    )


def _timed_ms(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return (time.perf_counter() - begun) * 1000


def table(refreshes: Sequence[Refresh]) -> str:
    """Markdown."""
    lines = [
        "| server's work (ms) | first | nothing new | 50 new reports | 50 new trials | load |",
        "|---|---|---|---|---|---|",
    ]
    for each in refreshes:
        lines.append(
            f"| {each.page} | {each.first_ms:.0f} | {each.nothing_new_ms:.1f} "
            f"| {each.new_reports_ms:.1f} | {each.new_trials_ms:.1f} | {each.load_before:.1f} |"
        )
    return "\n".join(lines)
