"""A study that runs while a browser looks at it: it stands still until a test lets a trial end.

Three trials are always held after their first report, so that what a page says can be compared
with the database; `release` lets the oldest of them complete, as the best so far.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import optuna

from tests.e2e.study_folder import StudyFolder, wait_until
from tuner.store.optuna_tables.statements import OBJECTIVES_ATTR

if TYPE_CHECKING:
    from playwright.sync_api import Page

N_FREE, N_STEPS, N_DEVICES, N_TRIALS = 24, 8, 3, 90
TOKEN = "correct horse battery"
#: What becomes of these trials, whatever their parameters are.
OUT_OF_MEMORY, NOT_A_NUMBER, FAILED, FAR_OFF = 2, 4, 6, 8
_PROGRAM = f"""
import math, time
from pathlib import Path
import optuna

def train(trial):
    number, p = trial.number, trial.params
    state = trial.load_checkpoint()
    done = state["step"] if state else 0
    print(f"trial {{number}} begins at step {{done}}")
    print("\\x1b[31mred warning\\x1b[0m")
    print("progress 10 %\\rprogress 100 %", flush=True)
    if number == {OUT_OF_MEMORY}:
        raise MemoryError("out of memory")
    if number == {FAILED}:
        raise RuntimeError("no data in <b>here</b>")
    end = 0.8 - (math.log10(p.lr) + 3) ** 2 / 10 - 0.1 * (p.optimizer == "sgd")
    if number >= {N_FREE}:
        end = 0.85 + 0.001 * number
    if number == {FAR_OFF}:
        end = -1000.0
    trial.set_user_attr("size_mb", p.width / 2)
    for step in range(done + 1, {N_STEPS} + 1):
        while number >= {N_FREE} and step > 1 and not Path(f"go-{{number}}").exists():
            time.sleep(0.02)
        value = end * (1 - math.exp(-step / 3))
        print("step", step, flush=True)
        trial.report(value, step, latency_ms=p.width / step)
        trial.save_checkpoint({{"step": step}}, step)
        if trial.should_prune():
            raise optuna.TrialPruned
    return float("nan") if number == {NOT_A_NUMBER} else value
"""
_SPACE = {
    "lr": {"type": "float", "low": 1e-5, "high": 1e-1, "log": True},
    "width": {"type": "int", "low": 16, "high": 512, "log": True},
    "optimizer": {"type": "categorical", "choices": ["sgd", "adamw"]},
    "momentum": {"type": "float", "low": 0.0, "high": 0.99, "when": {"optimizer": "sgd"}},
}
_HELD = """
    select t.number from tuner_attempts a join trials t using (trial_id)
    join trial_intermediate_values v using (trial_id)
    where a.outcome is null and t.number >= ? group by t.number order by t.number
"""
#: Trials that a budget counts: one that was suggested ahead of time as well.
BEGUN = "state <> 'WAITING' or trial_id in (select trial_id from tuner_attempts)"
#: Grows with each attempt that begins or ends, each report and each trial that ends.
_N_CHANGES = """
    select (select count(*) + count(outcome) from tuner_attempts),
        (select count(*) from trial_intermediate_values),
        (select count(*) from trials where state in ('COMPLETE', 'PRUNED', 'FAIL'))
"""


@dataclass(frozen=True, kw_only=True)
class LiveStudy:
    """The study `live`, in a database with others of Optuna alone, and its dashboard."""

    folder: StudyFolder
    address: str

    @property
    def url(self) -> str:
        return f"sqlite:///{self.folder.path}/small.db"

    def rows(self, query: str, *values: object) -> list[Any]:
        return self.folder.rows(query, *values)

    def numbers(self, condition: str) -> list[int]:
        """Trials of the study, in the order of their numbers."""
        query = f"""
            select number from trials join studies using (study_id)
            where study_name = 'live' and ({condition}) order by number
        """
        return [number for (number,) in self.rows(query)]

    def completed(self) -> list[int]:
        return self.numbers("state = 'COMPLETE'")

    def paused(self) -> dict[int, tuple[int, float]]:
        """Step and value of the last report of each paused trial."""
        query = """
            select number, step, intermediate_value from trials
            join trial_system_attributes a using (trial_id)
            join trial_intermediate_values using (trial_id)
            where state = 'WAITING' and a.key = 'tuner:paused' and a.value_json <> 'null'
            order by step
        """
        return {number: (step, value) for number, step, value in self.rows(query)}

    def values(self) -> dict[int, float]:
        """Of completed trials."""
        query = """
            select number, value from trials join trial_values using (trial_id)
            join studies using (study_id) where study_name = 'live' and state = 'COMPLETE'
        """
        return dict(self.rows(query))

    def held(self) -> list[int]:
        """Trials that run and wait for `release`."""
        return [number for (number,) in self.rows(_HELD, N_FREE)]

    def release(self) -> int:
        """Lets a trial complete, waits until another one is held in its place; its number."""
        number = self.held()[0]
        self.folder.write(f"go-{number}", "")
        wait_until(lambda: number in self.completed(), f"trial {number} has completed")
        self.wait_until_held()
        return number

    def wait_until_held(self) -> None:
        """Until every device is held by a trial that waits, and the database says no more."""
        seen: list[Any] = []

        def is_still() -> bool:
            nonlocal seen
            before, seen = seen, self.rows(_N_CHANGES)
            return before == seen and len(self.held()) == N_DEVICES

        wait_until(lambda: _holds_after_a_second(is_still), "all devices are held")


def _holds_after_a_second(condition: Callable[[], bool]) -> bool:
    """The dispatcher writes what it has heard within half a second."""
    condition()
    time.sleep(1.2)
    return condition()


def begin(folder: StudyFolder) -> None:
    """Starts the study; its first trials have ended, failed or paused."""
    folder.write("forecast.py", _PROGRAM)
    folder.study(
        study="live",
        storage="sqlite:///small.db",
        objectives={"accuracy": "maximize"},
        search_space={**_SPACE, "epochs": N_STEPS},
        sampler={"name": "random", "seed": 5},
        pruner={"name": "asha", "min_resource": 1, "reduction_factor": 2},
        devices=f"cpu:{N_DEVICES}",
        budget={"trials": N_TRIALS, "device_hours": 100},
    )
    folder.start()
    there = "select count(*) from sqlite_master where name = 'tuner_usage'"
    wait_until(lambda: (folder.path / "small.db").exists(), "there is a database")
    wait_until(lambda: folder.rows(there) == [(1,)], "it has tables")
    LiveStudy(folder=folder, address="").wait_until_held()


def add_study_of_optuna(
    url: str, name: str, values: list[float], *, direction: str, metric: str = "accuracy"
) -> optuna.Study:
    """A study whose trials have these values, in their order."""
    study = optuna.create_study(storage=url, study_name=name, direction=direction)
    study.set_user_attr(OBJECTIVES_ATTR, [metric])
    for value in values:
        trial = study.ask({"lr": optuna.distributions.FloatDistribution(0, 1)})
        study.tell(trial, value)
    return study


#: Of each trace of the figure with a name: what it shows.
_TRACES = """key => {
  const div = [...document.querySelectorAll(".js-plotly-plot[data-drawn=plotly]")][key];
  const list = each => each == null ? null : Array.from(each);
  return (div?._fullData ?? []).map(each => ({
    name: each.name, type: each.type, mode: each.mode, shape: each.line?.shape,
    x: list(each.x), y: list(each.y), numbers: list(each.customdata),
    hover: each.hovertemplate, colour: each.marker?.color,
  }));
}"""


def traces(page: Page, place: int = 0) -> list[dict[str, Any]]:
    """Of a figure that is drawn; none before that."""
    found: list[dict[str, Any]] = page.evaluate(_TRACES, place)
    return found


def points(page: Page, name: str, place: int = 0) -> dict[int, tuple[float, float]]:
    """x and y by the number of the trial, of one trace of a figure."""
    found = [each for each in traces(page, place) if each["name"] == name and each["numbers"]]
    return {
        number: (x, y)
        for each in found
        for number, x, y in zip(each["numbers"], each["x"], each["y"], strict=True)
    }


def line_of(page: Page, name: str) -> list[float]:
    """Values of a line of the first figure from left to right; empty where it is not drawn."""
    found: list[list[float]] = [each["y"] for each in traces(page) if each["name"] == name]
    return found[0] if found else []


#: The visible part of a table; cells as they are written.
_CELLS = """place => {
  const table = document.querySelectorAll('[data-testid="stDataFrame"] table')[place];
  const text = each => each.innerText ?? each.textContent;
  return !table ? [] : [...table.querySelectorAll('[role=row]')].map(
    row => [...row.querySelectorAll('[role=columnheader], [role=gridcell]')].map(text));
}"""


def table(page: Page, place: int = 0) -> list[dict[str, str]]:
    """What a table shows: cells by their titles, of the rows and columns in sight."""
    head, *rows = page.evaluate(_CELLS, place) or [[]]
    return [dict(zip(head, row, strict=False)) for row in rows]


def follows(page: Page, shown: Callable[[], Any], known: Callable[[], Any]) -> None:
    """Waits until a page says what the database says; fails with both where it never does."""
    for _ in itertools.repeat(None, 150):
        if shown() == known():
            return
        page.wait_for_timeout(200)
    said, stored = shown(), known()
    assert said == stored, f"the page says {said}, the database {stored}"
