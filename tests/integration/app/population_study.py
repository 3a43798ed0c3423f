"""A population that has come to its end: eight members, of whom the weak were replaced."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from random import Random

from optuna.distributions import BaseDistribution, FloatDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial

from tests.integration.stored_studies import seeded
from tuner.store.records.population_rows import (
    COPY_KEY,
    MEMBER_KEY,
    REPLACED_KEY,
    Origin,
    Replacement,
)

N_STEPS, INTERVAL, N_WEAK = 40, 5, 2
SPACE: dict[str, BaseDistribution] = {
    "lr": FloatDistribution(1e-4, 1.0, log=True),
    "dropout": FloatDistribution(0.0, 0.5),
}
STUDY_FILE = f"pruner: {{name: pbt, population: 8, interval: {INTERVAL}, max_resource: {N_STEPS}}}"


@dataclass(kw_only=True)
class _Member:
    number: int
    params: dict[str, float]
    accuracy: float = 0.0
    origin: Origin | None = None
    replaced: Replacement | None = None
    has_failed: bool = False
    curve: dict[int, float] = field(default_factory=dict)

    def train(self, step: int, random: Random) -> None:
        # The best learning rate falls as the training goes on.
        away = abs(math.log10(self.params["lr"]) + 1 + 2 * step / N_STEPS)
        gain = 0.09 * math.exp(-away) - 0.02 * abs(self.params["dropout"] - 0.2)
        self.accuracy += gain * (1 - self.accuracy) + random.gauss(0, 0.002)
        self.curve[step] = self.accuracy

    def stored(self) -> FrozenTrial:
        attributes: dict[str, object] = {MEMBER_KEY: True}
        if self.origin is not None:
            attributes = {COPY_KEY: self.origin.as_json()}
        state = TrialState.COMPLETE
        if self.replaced is not None:
            attributes[REPLACED_KEY] = self.replaced.as_json()
            state = TrialState.FAIL if self.has_failed else TrialState.PRUNED
        return create_trial(
            state=state,
            value=None if self.has_failed else self.curve[max(self.curve)],
            params=self.params,
            distributions=SPACE,
            intermediate_values=self.curve,
            system_attrs=attributes,
        )


def add_population(url: str, name: str = "population") -> None:
    """One member fails before anything is saved, and a new configuration takes its place."""
    random = Random(5)
    members = [_Member(number=number, params=_drawn(random)) for number in range(8)]
    ended: list[_Member] = []
    for step in range(1, N_STEPS + 1):
        for each in members:
            if each.number != 6 or step < 3:
                each.train(step, random)
        if step == 3:
            members[6].has_failed = True
            _replace(members, ended, members[6], None, step, random)
        if step % INTERVAL == 0 and step < N_STEPS:
            in_order = sorted(members, key=lambda each: each.accuracy)
            for weak, strong in zip(in_order[:N_WEAK], in_order[::-1][:N_WEAK], strict=True):
                _replace(members, ended, weak, strong, step, random)
    trials = [each.stored() for each in sorted([*members, *ended], key=lambda each: each.number)]
    seeded.add_study(url, name, trials)
    seeded.add_dispatcher(url, name, is_ended=True, study_file=STUDY_FILE)


def _drawn(random: Random) -> dict[str, float]:
    return {"lr": 10 ** random.uniform(-4, 0), "dropout": random.uniform(0.0, 0.5)}


def _replace(
    members: list[_Member],
    ended: list[_Member],
    gone: _Member,
    parent: _Member | None,
    step: int,
    random: Random,
) -> None:
    params, accuracy, begun_at, number = _drawn(random), 0.0, 0, None
    if parent is not None:
        factor = random.choice((1.5, 1 / 1.5))
        params = parent.params | {"lr": min(1.0, max(1e-4, parent.params["lr"] * factor))}
        accuracy, begun_at, number = parent.accuracy, step, parent.number
    gone.replaced = Replacement(parent=number, step=begun_at, params=params, host="here")
    origin = Origin(parent=number, step=begun_at, replaces=gone.number)
    new = _Member(number=len(members) + len(ended), params=params, accuracy=accuracy, origin=origin)
    for each in range(1, step + 1) if parent is None else ():
        new.train(each, random)
    ended.append(gone)
    members[members.index(gone)] = new
