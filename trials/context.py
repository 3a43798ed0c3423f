"""What training code holds in its hand: the trial, its parameters, its device, its reports.

`TrialContext` does all that `optuna.Trial` does, so that an Optuna objective runs unmodified, and
adds what a program on its own device needs.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import BaseTrial

from trials.checkpoints import CheckpointFolder
from trials.determinism import make_deterministic, seed_generators, seed_of_rank
from trials.params import Params
from trials.worker.link import Link
from trials.worker.metrics import MAX_STEP, as_number
from tuner.messages import MAX_KEY, MAX_METRIC_NAME, Assign, name_problem

if TYPE_CHECKING:
    import torch


class TrialContext(BaseTrial):
    """One trial, as the program that evaluates it sees it.

    Args:
        assign: What the dispatcher assigned: number, parameters, seed, folder for checkpoints.
        link: Where reports go and verdicts come from.
    """

    def __init__(self, assign: Assign, link: Link) -> None:
        self._assign = assign
        self._link = link
        self._params = Params(assign.params)
        self._distributions: dict[str, BaseDistribution] = {}
        self._user_attrs: dict[str, Any] = {}
        self._constraints: dict[str, float] = {}
        self._started_at = datetime.datetime.now()
        #: For the worker; training code has the methods below.
        self.checkpoints = CheckpointFolder(
            Path(assign.checkpoint_dir),
            assign.n_newest_kept,
            attempt_number=assign.attempt_number,
        )
        self.checkpoints.on_damage = link.states_damaged
        #: What was reported last, by objective; a program that returns None is judged by it.
        self.last_values: Mapping[str, float] = {}

    # -- what optuna.Trial has ---------------------------------------------------------------

    @property
    def number(self) -> int:
        """Number of the trial in its study, from 0."""
        return self._assign.trial_number

    @property
    def params(self) -> Params:
        """The parameters: those of the study file and those suggested so far."""
        return self._params

    @property
    def distributions(self) -> dict[str, BaseDistribution]:
        return dict(self._distributions)

    @property
    def user_attrs(self) -> dict[str, Any]:
        return dict(self._user_attrs)

    @property
    def constraints(self) -> dict[str, float]:
        return dict(self._constraints)

    @property
    def datetime_start(self) -> datetime.datetime:
        return self._started_at

    def suggest_float(
        self, name: str, low: float, high: float, *, step: float | None = None, log: bool = False
    ) -> float:
        """A float parameter; one that the study file declares has the value from there."""
        return float(self._suggest(name, FloatDistribution(low, high, log=log, step=step)))

    def suggest_int(
        self, name: str, low: int, high: int, *, step: int = 1, log: bool = False
    ) -> int:
        """An integer parameter; one that the study file declares has the value from there."""
        return int(self._suggest(name, IntDistribution(low, high, log=log, step=step)))

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        """One of the choices; a parameter that the study file declares has its value from there."""
        return self._suggest(name, CategoricalDistribution(choices))

    def suggest_uniform(self, name: str, low: float, high: float) -> float:
        return self.suggest_float(name, low, high)

    def suggest_loguniform(self, name: str, low: float, high: float) -> float:
        return self.suggest_float(name, low, high, log=True)

    def suggest_discrete_uniform(self, name: str, low: float, high: float, q: float) -> float:
        return self.suggest_float(name, low, high, step=q)

    def report(self, value: float | Mapping[str, float], step: int, **metrics: float) -> None:
        """Hands over how good the trial is at a step. Never waits.

        Args:
            value: The objective's value; with several objectives a mapping by name.
            step: What the curve is drawn over, such as the epoch; a whole number from 0.
            **metrics: Further values of this step, kept as curves beside the objective's.

        Raises:
            TypeError: If a value is not a number.
            ValueError: If the step is negative, the objectives' names are others, a metric's name
                is above 255 characters, or all of it together is above 16 MiB.
        """
        if not 0 <= step <= MAX_STEP:
            raise ValueError(f"report: step is {step}, but steps are from 0 to {MAX_STEP}.")
        self.last_values = self._by_objective(value)
        for name in metrics:
            _check_name("report", name, MAX_METRIC_NAME)
        numbers = {name: as_number(name, metric) for name, metric in metrics.items()}
        self._link.report(int(step), self.last_values, numbers)

    def should_prune(self) -> bool:
        """Whether to end now: the pruner gave this trial up, or the study is being stopped.

        Waits for the verdict on the last report, a few milliseconds. Where several ranks evaluate
        the trial, each must ask equally often: all get the answer that rank 0 got, which a rank
        that is ahead of it waits for.

        Raises:
            RanksDisagree: If this rank has reported another step than rank 0.
        """
        return self._link.should_stop()

    def set_user_attr(self, key: str, value: Any) -> None:
        """Keeps a JSON value with the trial, as Optuna does.

        Raises:
            ValueError: If it is above 16 MiB; save that as a file in `checkpoint_dir`. Or if the
                key is above 480 characters.
        """
        _check_name("set_user_attr", key, MAX_KEY)
        self._link.set_attribute(key, value)
        self._user_attrs[key] = value

    def set_constraint(self, key: str, value: float) -> None:
        """A trial is feasible where all its constraints are 0 or below, as in Optuna.

        Raises:
            ValueError: If the key is above 480 characters.
        """
        _check_name("set_constraint", key, MAX_KEY)
        self._link.set_constraint(key, float(value))
        self._constraints[key] = float(value)

    # -- beyond it ---------------------------------------------------------------------------

    @property
    def attempt_number(self) -> int:
        """1 for the first launch of the trial, more after a retry or a resume."""
        return self._assign.attempt_number

    @property
    def seed(self) -> int:
        """Derived from the study's seed, the trial and the attempt; below 2**31.

        `random`, NumPy and torch are seeded with it before the program starts. It is the same on
        every rank, so that all build the same model and shuffle alike.
        """
        return self._assign.seed

    @property
    def rank_seed(self) -> int:
        """Derived from `seed` and the rank, for what must differ (dropout, augmentation).

        Below 2**31; that of rank 0 is `seed` itself.
        """
        return seed_of_rank(self.seed, self.rank)

    def seed_everything(self, deterministic: bool = False) -> int:
        """Seeds `random`, NumPy (where it is loaded) and torch anew, with `rank_seed`.

        Args:
            deterministic: Also take deterministic algorithms only, which may be slower. Call it
                before the first use of the GPU then.

        Returns:
            The seed.
        """
        if deterministic:
            make_deterministic()
        seed_generators(self.rank_seed)
        return self.rank_seed

    @property
    def device(self) -> torch.device:
        """This process's own device: `cuda:<local_rank>` or `cpu`. No GPU of others is visible."""
        import torch

        return torch.device("cuda", self.local_rank) if self._has_gpu() else torch.device("cpu")

    @property
    def devices(self) -> tuple[torch.device, ...]:
        """All that this process shall use: its own, or as the only process all of the trial's.

        A trial on n CPU slots has `cpu` n times, so that a model is split there as on n GPUs.
        """
        import torch

        if self.world_size > 1:
            return (self.device,)
        if not self._has_gpu():
            return (torch.device("cpu"),) * max(1, len(self.device_labels))
        return tuple(torch.device("cuda", index) for index in range(len(self.device_labels)))

    def autocast(self, dtype: torch.dtype | None = None) -> torch.autocast:
        """Mixed precision on the trial's device: `with trial.autocast(): loss = ...`.

        Args:
            dtype: None is bfloat16, and float16 on a GPU without it (older than Ampere), whose
                gradients need `torch.amp.GradScaler`.
        """
        import torch

        if dtype is None:
            has_bfloat16 = not self._has_gpu() or torch.cuda.is_bf16_supported(False)
            dtype = torch.bfloat16 if has_bfloat16 else torch.float16
        return torch.autocast(self.device.type, dtype)

    @property
    def device_labels(self) -> tuple[str, ...]:
        """Names of the devices that the trial holds, for people: `GPU 3`, `cpu:1`."""
        return self._assign.devices

    @property
    def rank(self) -> int:
        """This process among all of the trial, from 0."""
        return int(os.environ.get("RANK", "0"))

    @property
    def local_rank(self) -> int:
        """This process among those of the trial on this host, from 0."""
        return int(os.environ.get("LOCAL_RANK", "0"))

    @property
    def world_size(self) -> int:
        """How many processes evaluate this trial together."""
        return int(os.environ.get("WORLD_SIZE", "1"))

    @property
    def is_main(self) -> bool:
        """Whether this process is the one that reports and saves."""
        return self.rank == 0

    @property
    def checkpoint_dir(self) -> Path:
        """The trial's own folder, the same for every attempt of it; made on first use."""
        return self.checkpoints.path

    @property
    def checkpoint_path(self) -> Path:
        """The same folder, which may not be there yet."""
        return Path(self._assign.checkpoint_dir)

    @property
    def objectives(self) -> tuple[str, ...]:
        """Names of the study's objectives."""
        return self._assign.objectives

    def save_checkpoint(
        self, state: Mapping[str, Any], step: int, *, wait: bool = True, sharded: bool = False
    ) -> Path:
        """Saves a state dict (tensors, numbers, strings and containers of them) atomically.

        Rank 0 alone writes: on another rank this does nothing and may be left out. Parts of a
        model that is split over ranks are gathered before (`trials.ddp.state_of`), or written by
        each rank with `sharded=True`.

        Args:
            state: Such as `{"model": model.state_dict(), "epoch": epoch}`.
            step: Where the training stands; the newest few are kept (`checkpoints.newest` of the
                study file, 2).
            wait: False copies the state to the CPU's memory and writes the copy while training
                goes on. The next save waits for it, as does the trial's end.
            sharded: True: every rank must call this, within `ddp.group`, and writes its own parts
                with torch.distributed.checkpoint. Another number of ranks can load them.

        Returns:
            The file, or with `sharded` the folder; without `wait`, or on another rank than 0, it
            may not be there yet.

        Raises:
            TypeError: If the state holds what could not be loaded again safely.
            OSError: If it cannot be written. What was saved before is still there. Without
                `wait` the next save raises it, or the trial ends as failed.
            ValueError: If it shall be sharded without waiting.
        """
        if sharded:
            if not wait:
                raise ValueError("save_checkpoint: sharded=True has no wait=False. Leave it out.")
            return self.checkpoints.save_sharded(state, step, self.rank)
        if not self.is_main:
            return self.checkpoints.file_of(step)
        if not wait:
            return self.checkpoints.begin_save(state, step)
        return self.checkpoints.save(state, step)

    def load_checkpoint(self, into: dict[str, Any] | None = None) -> dict[str, Any] | None:
        """The newest undamaged state, with its tensors on the CPU, or None.

        A state that is cut off or damaged is skipped, with a message in the trial's log.

        Every rank may read it, before the first step of training. One that was saved with
        `sharded=True` is put together from all its parts (its dicts have text as keys).

        Args:
            into: A state as it would be saved, such as that of a model split over these ranks. It
                is filled with the newest one saved with `sharded=True`, each rank reading its own
                parts only, and given back; None where there is none, and it is as it was.

        Raises:
            RuntimeError: If a key of `into` is not in the checkpoint.
            ValueError: If a tensor of it has another shape there.
        """
        return self.checkpoints.load() if into is None else self.checkpoints.load_into(into)

    def wait_for_checkpoint(self) -> None:
        """Waits until what `save_checkpoint(wait=False)` began is on disk; raises its error."""
        self.checkpoints.wait()

    def _has_gpu(self) -> bool:
        return any(not label.startswith("cpu") for label in self._assign.devices)

    def _suggest(self, name: str, distribution: BaseDistribution) -> Any:
        if name not in self._params:
            _check_name("suggest", name, MAX_KEY)
            self._params[name] = self._link.suggest(name, distribution)
        self._distributions[name] = distribution
        return self._params[name]

    def _by_objective(self, value: float | Mapping[str, float]) -> dict[str, float]:
        names = self._assign.objectives
        if not isinstance(value, Mapping):
            if len(names) > 1:
                raise ValueError(
                    f"report: this study has the objectives {', '.join(names)}; "
                    "report a dict with a value for each."
                )
            return {names[0]: as_number(names[0], value)}
        unknown = [name for name in value if name not in names]
        if unknown or len(value) != len(names):
            raise ValueError(
                f"report: got values for {', '.join(value) or 'nothing'}, but this study has the "
                f"objectives {', '.join(names)}. Further values go as keywords."
            )
        return {name: as_number(name, value[name]) for name in names}


def _check_name(function: str, name: str, limit: int) -> None:
    """
    Raises:
        ValueError: If the name cannot be stored.
    """
    if problem := name_problem(name, limit):
        raise ValueError(f"{function}: {problem}. Take a shorter, plain one.")
