"""What must be true of a study when all is over; each finding is a sentence."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import optuna
import sqlalchemy as sa
from optuna.trial import FrozenTrial, TrialState

import tuner
from tests.chaos.checked import N_STEPS, expected_value
from tests.chaos.keeper import processes_with
from tests.chaos.site import ENV_ID, MAX_DISK_MIB, Site
from tests.chaos.step_log import (
    Line,
    Repeated,
    find_repeated,
    with_uploaded,
    without_forgotten,
    without_late,
)
from tuner.launch.failure_diagnosis import is_disk_full
from tuner.search.rungs.table import RungTable

_MAY_LINGER_S = 15.0
#: Optuna's, followed by the number of the rung.
RUNG_KEY = "completed_rung_"
_OPEN_ATTEMPTS = """
    SELECT count(*) FROM tuner_attempts a JOIN trials t ON t.trial_id = a.trial_id
    WHERE t.study_id = :study AND a.state <> 'finished'
"""
_HELD = """
    SELECT count(*) FROM tuner_leases l JOIN tuner_attempts a ON a.id = l.attempt_id
    JOIN trials t ON t.trial_id = a.trial_id
    WHERE t.study_id = :study AND (l.released_at IS NULL OR l.held_device_id IS NOT NULL)
"""
_COMPLETED = """
    SELECT t.number, count(*) FROM tuner_attempts a JOIN trials t ON t.trial_id = a.trial_id
    WHERE t.study_id = :study AND a.outcome = 'completed' GROUP BY t.number
"""
_PAUSED = """
    SELECT count(*) FROM tuner_attempts a JOIN trials t ON t.trial_id = a.trial_id
    WHERE t.study_id = :study AND a.outcome = 'paused'
"""
_RESUMED = f"""
    {_PAUSED} AND a.trial_id IN (SELECT trial_id FROM tuner_attempts WHERE outcome = 'completed')
"""
_OPEN_DISPATCHERS = """
    SELECT versions FROM tuner_dispatchers WHERE study_id = :study AND ended_at IS NULL
"""
_OUTCOMES = """
    SELECT coalesce(a.outcome, 'none'), coalesce(a.cause, 'none'), count(*)
    FROM tuner_attempts a JOIN trials t ON t.trial_id = a.trial_id
    WHERE t.study_id = :study GROUP BY 1, 2 ORDER BY 3 DESC
"""
#: Ends that may cost a retry.
_FAILED = """
    SELECT t.number, a.detail FROM tuner_attempts a JOIN trials t ON t.trial_id = a.trial_id
    WHERE t.study_id = :study AND a.outcome IN ('failed', 'failed_to_start', 'timed_out')
    AND coalesce(a.cause, '') <> 'device_fault'
"""


@dataclass(frozen=True, kw_only=True)
class Account:
    """One study, after all."""

    study: str
    n_trials: int
    #: By `outcome (cause)`.
    attempts: dict[str, int]
    #: What is wrong; empty where nothing was lost.
    findings: list[str]
    repeated: list[Repeated]
    n_steps_made: int
    #: Values that trials reported and the database does not have.
    n_lost_reports: int
    #: Exit codes of the dispatchers.
    codes: dict[str, int]


def settle(site: Site) -> Account:
    """Compares the study with what its trials did."""
    storage = optuna.storages.RDBStorage(site.url, engine_kwargs={"poolclass": sa.NullPool})
    study = optuna.load_study(study_name=site.study, storage=storage)
    trials = study.get_trials()
    with storage.engine.connect() as connection:
        books = _Books(connection, study._study_id)
        findings = [*_judge_trials(trials, site), *books.judge(trials)]
        findings += books.judge_failures(site.charged)
        attempts = books.outcomes()
        if site.rungs is not None:
            findings += books.judge_pauses()
    storage.engine.dispose()
    repeated = find_repeated(_acknowledged(site), site.torn)
    findings += [*_judge_files(site), *_judge_repeated(repeated), *_judge_outputs(site)]
    codes = [code for keeper in site.keepers for code in keeper.codes]
    return Account(
        study=site.study,
        n_trials=len(trials),
        attempts=attempts,
        findings=findings,
        repeated=repeated,
        n_steps_made=sum(line.what == "step" and line.rank == 0 for line in site.log.lines),
        n_lost_reports=_count_done(site) - sum(len(each.intermediate_values) for each in trials),
        codes={str(code): codes.count(code) for code in sorted(set(codes))},
    )


def _acknowledged(site: Site) -> list[Line]:
    lines = without_late(without_forgotten(site.log.read(), site.forgotten))
    return lines if site.uploaded is None else with_uploaded(lines, site.uploaded)


def find_orphans(chaos_id: str) -> list[int]:
    """Processes of the studies that are still there, after a moment in which they may end."""
    give_up_at_s = time.monotonic() + _MAY_LINGER_S
    while (left := processes_with(ENV_ID, chaos_id)) and time.monotonic() < give_up_at_s:
        time.sleep(0.1)
    return left


def _count_done(site: Site) -> int:
    """Steps of all trials, each once."""
    return len({(line.trial, line.step) for line in site.log.read() if line.what == "step"})


def _judge_trials(trials: list[FrozenTrial], site: Site) -> Iterator[str]:
    if [trial.number for trial in trials] != list(range(site.n_trials)):
        yield f"{len(trials)} trials, where the budget says {site.n_trials}"
    rungs = site.rungs
    for trial in trials:
        if trial.state is TrialState.PRUNED and rungs is not None:
            yield from judge_pruned(trial, rungs)
        elif trial.state is not TrialState.COMPLETE:
            yield f"trial {trial.number} is {trial.state.name}"
        elif trial.value != expected_value(trial.params):
            yield f"trial {trial.number} has {trial.value}, not {expected_value(trial.params)}"
        yield from judge_curve(trial)
    if len({trial.params.get("x") for trial in trials}) != len(trials):
        yield "two trials drew the same numbers"


def judge_curve(trial: FrozenTrial) -> Iterator[str]:
    """A report of a step is what the number was after that step, and after all before it."""
    for step, value in trial.intermediate_values.items():
        if value != (expected := expected_value(trial.params, step + 1)):
            yield f"trial {trial.number} reported {value} at step {step}, not {expected}"


def judge_pruned(trial: FrozenTrial, rungs: RungTable) -> Iterator[str]:
    """It stood at a rung, with the value of the last step that it has done.

    That is the rung's own step, or a later one: the report may have been lost with a dispatcher,
    and a trial that goes on from a checkpoint does not make it again.
    """
    noted = [value for key, value in trial.system_attrs.items() if key.startswith(RUNG_KEY)]
    last = max(trial.intermediate_values, default=-1)
    if not noted:
        yield f"trial {trial.number} was pruned at step {last}, before any rung"
        return
    rung = len(noted) - 1
    if rungs.rung_at(last) != rung:
        yield f"trial {trial.number} was pruned at step {last}, and rung {rung} is its highest"
    value = trial.system_attrs[f"{RUNG_KEY}{rung}"]
    steps = range(rungs.step_of(rung), last + 1)
    if value not in {expected_value(trial.params, step + 1) for step in steps}:
        yield f"trial {trial.number} stands at rung {rung} with {value}, no value of steps {steps}"


@dataclass(frozen=True)
class _Books:
    """The tuner's own tables."""

    connection: sa.Connection
    study_id: int

    def judge(self, trials: Iterable[FrozenTrial]) -> Iterator[str]:
        for query, what in (
            (_OPEN_ATTEMPTS, "attempts are not finished"),
            (_HELD, "leases are held"),
        ):
            if n := self._rows(query)[0][0]:
                yield f"{n} {what}"
        open_ones = [versions for (versions,) in self._rows(_OPEN_DISPATCHERS)]
        if n := sum(map(is_checkable, open_ones)):
            yield f"{n} dispatchers have no end"
        completed = {number: n for number, n in self._rows(_COMPLETED)}
        if completed != {t.number: 1 for t in trials if t.state is TrialState.COMPLETE}:
            wrong = {n: times for n, times in completed.items() if times != 1}
            yield f"attempts and trials disagree on what completed: {wrong or len(completed)}"

    def judge_pauses(self) -> Iterator[str]:
        """Without both of them the run would have shown nothing."""
        for query, what in (
            (_PAUSED, "no trial was ever paused"),
            (_RESUMED, "no trial that was paused has completed"),
        ):
            if not self._rows(query)[0][0]:
                yield what

    def judge_failures(self, charged: Mapping[int, int]) -> Iterator[str]:
        """Only what was done to a trial itself may count as its failure."""
        failed = Counter(n for n, detail in self._rows(_FAILED) if not is_disk_full(str(detail)))
        for number, times in failed.items():
            if times > charged.get(number, 0):
                yield f"trial {number} failed {times} times, struck {charged.get(number, 0)} times"

    def outcomes(self) -> dict[str, int]:
        return {f"{outcome} ({cause})": n for outcome, cause, n in self._rows(_OUTCOMES)}

    def _rows(self, query: str) -> Sequence[Any]:
        return self.connection.execute(sa.text(query), {"study": self.study_id}).all()


def is_checkable(versions: str | Mapping[str, object]) -> bool:
    """Whether a later start can tell at once that a dispatcher is dead.

    The next one in a container has a PID namespace of its own. The record of one that was killed
    there stays open until somebody has watched it for a minute, or for ever where the study ends
    before.
    """
    facts = json.loads(versions) if isinstance(versions, str) else versions
    return str(facts.get("pid_namespace")) == str(os.stat("/proc/self/ns/pid").st_ino)


def _judge_files(site: Site) -> Iterator[str]:
    sizes = [path.stat().st_size for path in _checkpoints(site)]
    if sum(sizes) > MAX_DISK_MIB * 1024**2:
        yield f"checkpoints take {sum(sizes)} bytes, more than {MAX_DISK_MIB} MiB"
    if (site.load_best or partial(_best_step, site))() != N_STEPS:
        yield "the best trial has lost its checkpoint"


def _best_step(site: Site) -> int:
    state = tuner.load_best(site.url, study=site.study).load_checkpoint()
    return 0 if state is None else int(state["step"])


def _checkpoints(site: Site) -> list[Path]:
    return [path for path in site.files.root.glob("trial-*/checkpoints/*") if path.is_file()]


def _judge_repeated(repeated: Iterable[Repeated]) -> Iterator[str]:
    for each in repeated:
        if each.n_saved_steps:
            yield (
                f"trial {each.trial} (attempt {each.attempt}) did {each.n_saved_steps} steps again "
                "whose state was saved"
            )


def _judge_outputs(site: Site) -> Iterator[str]:
    for keeper in site.keepers:
        for path in keeper.outputs:
            text = path.read_text(errors="replace")
            if path.suffix == ".err" and "Traceback" in text:
                yield f"{path.name} has a traceback: {text.strip().splitlines()[-1]}"
