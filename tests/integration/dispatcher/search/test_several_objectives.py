"""A study of two objectives with the sampler and the pruner that are picked where none is named."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.integration.dispatcher.world import FakeWorker, Program, World
from tuner.checkpoints.layout import file_of
from tuner.config import StudyConfig, load_study_file
from tuner.domain.attempt import Cause, Outcome
from tuner.domain.messages import Action, Report
from tuner.search.defaults import choose, pruner_of, sampler_of
from tuner.search_spaces import SearchSpace
from tuner.store.schema.models import AttemptRow

LAST_STEP, N_TRIALS = 9, 18
STUDY = """
study: study
trial: {function: "m:f"}
objectives: {accuracy: maximize, latency_ms: minimize}
search_space: {x: {type: float, low: 0.0, high: 1.0}}
"""


@pytest.fixture
def config(tmp_path: Path) -> StudyConfig:
    file = tmp_path / "study.yaml"
    file.write_text(STUDY)
    return load_study_file(file, environ={})


def values_of(number: int) -> dict[str, float]:
    """The first of three is on the front, the second behind it, the third far behind."""
    place, behind = divmod(number, 3)
    return {"accuracy": place / 10 - behind, "latency_ms": place + 20.0 * behind}


def training(
    seen: list[tuple[int, int]],
    *,
    saves: bool = True,
    reports: bool = True,
    counts_on: bool = True,
) -> Program:
    """Nine steps, each of which is saved and reported with both objectives."""

    def program(worker: FakeWorker) -> None:
        folder = Path(worker.request.assign.checkpoint_dir)
        saved = [int(path.stem.removeprefix("step-")) for path in folder.glob("step-*.pt")]
        values = values_of(worker.trial_number)

        def step(number: int) -> None:
            if {verdict.action for verdict in worker.verdicts} - {Action.CONTINUE}:
                worker.finish(Outcome.PRUNED, cause=Cause.PRUNER, detail="told")
                worker.exit(0)
            elif number > LAST_STEP:
                worker.finish(Outcome.COMPLETED, values=values)
                worker.exit(0)
            else:
                seen.append((worker.trial_number, number))
                if saves:
                    folder.mkdir(parents=True, exist_ok=True)
                    zipfile.ZipFile(file_of(folder, number), "w").close()
                if reports:
                    worker.say(Report(attempt_id=worker.id, step=number, values=values))
                worker.later(1.0, lambda: step(number + 1))

        worker.later(0.1, worker.hello)
        worker.later(0.5, lambda: step(max(saved, default=0) + 1 if counts_on else 1))

    return program


def a_world(config: StudyConfig, folder: Path, program: Program) -> World:
    assert isinstance(config.search_space, SearchSpace)
    return World(
        folder,
        program,
        n_trials=N_TRIALS,
        space=config.search_space,
        objectives=config.objectives,
        sampler=sampler_of(config, seed=0),
        pruner=pruner_of(config),
    )


def states_of(world: World) -> Mapping[int, str]:
    return {trial.number: trial.state.name for trial in world.stored_trials()}


def test_weak_trials_pause_and_those_of_the_front_go_on(
    config: StudyConfig, tmp_path: Path
) -> None:
    assert choose(config).pruner.name == "asha"
    seen: list[tuple[int, int]] = []
    world = a_world(config, tmp_path, training(seen))
    result = world.run()
    assert len(seen) == len(set(seen)), "a step was done twice"
    assert result.n_completed + result.n_pruned == N_TRIALS
    completed = [number for number, state in states_of(world).items() if state == "COMPLETE"]
    assert completed
    assert all(number % 3 == 0 for number in completed), "nobody who is far behind was trained"
    assert len(seen) < 0.6 * N_TRIALS * LAST_STEP
    outcomes = [row.outcome.value for row in world.rows(AttemptRow)]
    assert outcomes.count("paused") > N_TRIALS / 2
    front = world.search.study.best_trials
    assert {trial.number for trial in front} <= set(completed)


def test_a_stop_costs_no_step(config: StudyConfig, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    world = a_world(config, tmp_path, training(seen))
    world.turn_until(lambda: world.search.counts.n_paused >= 3)
    world.interrupt()
    assert world.run().is_interrupted
    n_paused = world.search.counts.n_paused
    world.close()
    again = a_world(config, tmp_path, training(seen))
    assert again.search.counts.n_paused == n_paused
    result = again.run()
    assert result.n_completed + result.n_pruned == N_TRIALS
    assert len(seen) == len(set(seen)), "a step was done twice"


def test_programs_without_checkpoints_are_stopped(config: StudyConfig, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    world = a_world(config, tmp_path, training(seen, saves=False))
    result = world.run()
    assert result.n_completed + result.n_pruned == N_TRIALS
    assert result.n_completed >= 1
    assert max(step for number, step in seen if number == 0) > 1, "the first was not thrown away"
    assert world.search.counts.n_paused == 0
    assert len(seen) < 0.8 * N_TRIALS * LAST_STEP


def test_programs_that_report_nothing_on_their_way_are_all_trained(
    config: StudyConfig, tmp_path: Path
) -> None:
    world = a_world(config, tmp_path, training([], reports=False))
    assert world.run().n_completed == N_TRIALS


def test_a_program_that_counts_anew_after_a_resume_is_noticed(
    config: StudyConfig, tmp_path: Path
) -> None:
    world = a_world(config, tmp_path, training([], counts_on=False))
    result = world.run()
    assert result.n_completed + result.n_pruned == N_TRIALS
    told = [text for text in world.said if "was resumed and reports step 1 again" in text]
    assert len(told) == 1
    assert "set mode: stop (pruner)" in told[0]
