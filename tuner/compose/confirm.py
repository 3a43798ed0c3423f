"""Confirmation runs at the end of a study: its leaders run again with new seeds.

The runs are trials of a second study, `<name>.confirm`, with a second dispatcher on the same
devices. They are thus launched, retried, claimed and counted like all trials, and do not affect the
study's sampler, pruner or budget.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace

import yaml
from optuna.pruners import NopPruner
from optuna.study import StudyDirection
from optuna.trial import TrialState

from tuner.compose.workplace import OpenStudy, Workplace, make_dispatcher, open_study
from tuner.config import BudgetConfig, PrunerConfig, SamplerConfig, StudyConfig
from tuner.config.sections.confirm import ConfirmConfig, confirmation_of
from tuner.dispatch.notices import Notice, Said, Snapshot, View
from tuner.dispatch.terms import Result
from tuner.domain.budget import Budget
from tuner.launch.protocols import Events
from tuner.monitoring.hooks import Hooks
from tuner.queries.results.confirmations import Leader, insert_runs
from tuner.search.study import StudySearch
from tuner.search_spaces.strict_yaml import read_yaml

#: Keys of the study that do not apply to a confirmation run.
_NOT_OF_RUNS = (
    *("confirm", "widen", "prior", "transfer", "sampler", "pruner"),
    *("on_best", "on_failure", "on_finish"),
)


class HookedView:
    """Shows confirmation runs, and keeps the study's hooks running.

    Args:
        view: Shows them.
        hooks: The study's hooks; they receive no events of these runs.
    """

    def __init__(self, view: View, hooks: Hooks) -> None:
        self._view = view
        self._hooks = hooks
        self.refresh_every_s = view.refresh_every_s

    def show(self, notice: Notice) -> None:
        self._view.show(notice)

    def refresh(self, snapshot: Snapshot) -> None:
        self._view.refresh(snapshot)
        self._hooks.look()


def confirm(
    study: OpenStudy,
    wanted: ConfirmConfig,
    workplace: Workplace,
    view: View,
    events: Events,
    result: Result,
) -> Result:
    """Runs the missing confirmation runs of the leaders.

    Args:
        study: The finished study.
        wanted: Number of leaders and of runs.
        workplace: The study's devices and launcher.
        view: Shows notices and progress.
        events: Source of all events.
        result: The study's result.

    Returns:
        The same result, marked as interrupted if the user ends the runs.

    Raises:
        TunerError: As for a study.
    """
    leaders = leaders_of(study.search, wanted.top)
    if not leaders:
        return result
    runs = _open_runs(study, wanted, leaders, workplace, view)
    numbers = ", ".join(str(each.number) for each in leaders)
    view.show(
        Said(
            text=f"The leaders (trials {numbers}) run again, {wanted.seeds} times each with fresh "
            f"seeds, as trials of study {runs.config.study!r}."
        )
    )
    if runs.folder is not None and runs.folder.note:
        view.show(Said(text=runs.folder.note))
    dispatcher = make_dispatcher(runs, workplace, view)
    ended = dispatcher.run(events)
    dispatcher.keep_house()
    if runs.folder is not None:
        runs.folder.close()
    if ended.is_interrupted:
        return replace(result, is_interrupted=True, reason="interrupted while leaders ran again")
    return result


def _open_runs(
    study: OpenStudy,
    wanted: ConfirmConfig,
    leaders: Sequence[Leader],
    workplace: Workplace,
    view: View,
) -> OpenStudy:
    """Opens the study that holds the runs, with a waiting trial for each run that is missing."""
    seed = _fresh(study.seed)
    runs = open_study(
        _config(study.config, wanted.top * wanted.seeds, seed),
        workplace.database,
        NopPruner(),
        workplace.host,
        lambda text: view.show(Said(text=text)),
    )
    runs.recorder.add_devices(workplace.leasing.supply.devices)
    runs.recorder.commands.follow(study.recorder.commands)
    n_runs = workplace.database.access.run(
        lambda c: insert_runs(c, runs.search.study_id, leaders, wanted.seeds)
    )
    workplace.database.storage.look_again()
    runs.search.sync()
    # No more than that: a further run would repeat no trial.
    runs.recorder.allow(Budget(trials=n_runs))
    return replace(runs, config=_config(study.config, n_runs, seed))


def leaders_of(search: StudySearch, n: int) -> list[Leader]:
    """The best configurations that have completed, the best first, each once."""
    study = search.study
    trials = [
        each
        for each in study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        if all(value <= 0 for value in each.constraints.values())
    ]
    is_maximized = study.direction is StudyDirection.MAXIMIZE
    ranked = sorted(trials, key=lambda each: each.values[0], reverse=is_maximized)
    leaders: list[Leader] = []
    for trial in ranked:
        if all(trial.params != each.params for each in leaders):
            leaders.append(Leader(number=trial.number, params=trial.params))
        if len(leaders) == n:
            break
    return leaders


def _fresh(seed: int) -> int:
    """Trials of the study have drawn from its own seed."""
    return int.from_bytes(hashlib.sha256(f"{seed}/confirm".encode()).digest()[:4], "big") >> 1


def _config(config: StudyConfig, n_runs: int, seed: int) -> StudyConfig:
    """The study of the runs: as the file, except for its sampler, pruner and budget."""
    found = config.model_copy(
        update={
            "study": confirmation_of(config.study),
            "sampler": SamplerConfig.model_validate({"name": "random", "seed": seed}),
            "pruner": PrunerConfig.model_validate("none"),
            "budget": BudgetConfig(trials=n_runs),
            "prior": None,
            "transfer": (),
            "confirm": None,
            # Runs that are compared are alike.
            "widen": False,
        }
    )
    document = read_yaml(config.text)
    if isinstance(document, dict):
        kept = {key: each for key, each in document.items() if key not in _NOT_OF_RUNS}
        own = {
            "study": found.study,
            "sampler": {"name": "random", "seed": seed},
            "pruner": "none",
            "budget": {"trials": n_runs},
        }
        found = found.with_text(yaml.safe_dump(kept | own, sort_keys=False))
    return found
