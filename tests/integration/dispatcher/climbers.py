"""A population whose members climb: each step adds a parameter to what a checkpoint holds."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest
from optuna.trial import FrozenTrial

from tests.integration.dispatcher.world import FakeWorker, Program
from tuner.checkpoints.layout import file_of, newest_whole
from tuner.domain.attempt import Cause, Outcome
from tuner.domain.messages import Action
from tuner.search.population.pbt import PbtPruner
from tuner.store.records.population_rows import Origin

LAST_STEP = 12
INTERVAL = 3


def pbt(**changes: object) -> PbtPruner:
    arguments = {"population": 4, "interval": INTERVAL, "max_resource": LAST_STEP, "seed": 1}
    return PbtPruner(**{**arguments, **changes})  # type: ignore[arg-type]


def climbing(
    *,
    saves: bool = True,
    counts_on: bool = True,
    seen: list[tuple[int, int]] | None = None,
) -> Program:
    """Each step adds the parameter to a total, which is its state and its value."""

    def program(worker: FakeWorker) -> None:
        folder = Path(worker.request.assign.checkpoint_dir)
        done, total = read_state(folder) if counts_on else (0, 0.0)
        state = {"total": total}

        def step(number: int) -> None:
            told = worker.verdicts[-1].action if worker.verdicts else Action.CONTINUE
            if told is not Action.CONTINUE:
                is_stopped = told is Action.STOP
                outcome = Outcome.CANCELLED if is_stopped else Outcome.PRUNED
                cause = Cause.INTERRUPTED if is_stopped else Cause.PRUNER
                worker.finish(outcome, cause=cause, detail=worker.verdicts[-1].reason)
                worker.exit(0)
                return
            if number > LAST_STEP:
                worker.complete(state["total"])
                return
            state["total"] += float(worker.request.assign.params["x"])
            if saves:
                write_state(folder, number, state["total"])
            if seen is not None:
                seen.append((worker.trial_number, number))
            worker.report(number, state["total"])
            worker.later(1.0, lambda: step(number + 1))

        worker.later(0.1, worker.hello)
        worker.later(0.5, lambda: step(done + 1))

    return program


def read_state(folder: Path) -> tuple[int, float]:
    newest = newest_whole(folder)
    if newest is None:
        return 0, 0.0
    with zipfile.ZipFile(newest) as file:
        state = json.loads(file.read("state"))
    return state["step"], state["total"]


def write_state(folder: Path, step: int, total: float) -> None:
    """The newest two stay, as with `save_checkpoint`."""
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / "partial"
    with zipfile.ZipFile(partial, "w") as file:
        file.writestr("state", json.dumps({"step": step, "total": total}))
    partial.replace(file_of(folder, step))
    file_of(folder, step - 2).unlink(missing_ok=True)


def total_of(trials: list[FrozenTrial], number: int, last: int) -> float:
    """What the lineage of a trial has added up to."""
    origin = Origin.of(trials[number].system_attrs)
    before, begun_at = 0.0, 0
    if origin is not None and origin.step:
        before, begun_at = total_of(trials, origin.parent, origin.step), origin.step
    return before + (last - begun_at) * float(trials[number].params["x"])


def check_states(trials: list[FrozenTrial]) -> None:
    """What is reported follows from the lineage: every copy began from the state it names."""
    for each in trials:
        for step, value in each.intermediate_values.items():
            assert value == pytest.approx(total_of(trials, each.number, step))
