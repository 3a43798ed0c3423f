"""A package outside of the tuner that registers a pruner, a scheduler and a sampler."""

from __future__ import annotations

from pathlib import Path

_CODE = '''
from optuna.pruners import BasePruner
from optuna.samplers import RandomSampler

from tuner.domain.messages import Action
from tuner.search.scheduler import CONTINUE, Scheduler, Verdict


class OddPruner(BasePruner):
    """Prunes trials of odd number from a step on."""

    def __init__(self, first_step: int = 1) -> None:
        self.first_step = first_step

    def prune(self, study, trial):
        return trial.number % 2 == 1 and trial.last_step >= self.first_step


class FirstOnly(BasePruner):
    """Prunes every trial but the first, by a scheduler of its own."""

    def prune(self, study, trial):
        return False

    def make_scheduler(self, context):
        return FirstOnlyScheduler(context)


class FirstOnlyScheduler(Scheduler):
    def __init__(self, context):
        self.storage = context.storage

    def report(self, trial_id, step, values, *, held_s):
        if self.storage.get_trial_number_from_id(trial_id) == 0:
            return CONTINUE
        return Verdict(action=Action.PRUNE, reason=f"only trial 0 passes step {step}")


class ToySampler(RandomSampler):
    pass
'''

_ENTRY_POINTS = """
[tuner.schedulers]
toy = toy_plugin:OddPruner
toy_scheduler = toy_plugin:FirstOnly
toy_absent = toy_plugin_absent:OddPruner
toy_sampler = toy_plugin:ToySampler
median = toy_plugin:OddPruner

[tuner.samplers]
toy_random = toy_plugin:ToySampler
"""


def install(folder: Path) -> None:
    """Writes the package into a folder, as pip would; the folder has to be on `sys.path`."""
    metadata = folder / "toy_plugin-1.0.dist-info"
    metadata.mkdir(parents=True)
    (folder / "toy_plugin.py").write_text(_CODE)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-plugin\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(_ENTRY_POINTS)
