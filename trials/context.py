"""The object for training code: the trial, its parameters, its device and its reports.

`TrialContext` has all methods of `optuna.Trial`, so that an Optuna objective runs unmodified, and
adds what a program on its own device needs.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.domain.messages import MAX_METRIC_NAME, Assign, RemarkTopic
from tuner.trials.checkpoints import CheckpointFolder
from tuner.trials.determinism import make_deterministic, seed_generators, seed_of_rank
from tuner.trials.optuna_trial import OptunaTrial, check_name
from tuner.trials.worker.metrics import MAX_STEP, StepCounter, StepOrder, as_number, as_step
from tuner.trials.worker.port import Link

if TYPE_CHECKING:
    import torch

    from tuner.trials.profiling import TraceRecorder

_VALUE_FIRST = " If they are the values: trial.report takes the value first, report(value, step)."
_COUNT_UP = (
    "Count steps up over the whole trial, also over folds and stages, for example "
    "step=fold * epochs + epoch."
)


class TrialContext(OptunaTrial):
    """The trial that this process evaluates.

    It has every method of `optuna.Trial`, so that an Optuna objective runs unchanged, and adds
    devices, ranks, seeds and checkpoints. The tuner creates it and passes it to your function.
    """

    def __init__(self, assign: Assign, link: Link) -> None:
        """Creates the context of one attempt.

        Args:
            assign: The dispatcher's assignment: number, parameters, seed, checkpoint folder.
            link: Sends reports and receives verdicts.
        """
        super().__init__(assign, link)
        #: For the worker; training code has the methods below.
        self.checkpoints = CheckpointFolder(
            Path(assign.checkpoint_dir),
            assign.n_newest_kept,
            attempt_number=assign.attempt_number,
        )
        self.checkpoints.on_damage = link.states_damaged
        #: Last report, by objective; the result of a program that returns None.
        self.last_values: Mapping[str, float] = {}
        self._steps = StepCounter()
        self._order = StepOrder()
        self._has_remarked_order = False
        #: Started and finished by the worker; None if nothing is recorded.
        self.trace: TraceRecorder | None = None

    def report(self, value: float | Mapping[str, float], step: float, **metrics: float) -> None:
        """Reports the value of the objective at a step. Does not wait.

        Args:
            value: The value of the objective; with several objectives, a mapping from names to
                values.
            step: The position on the learning curve, such as the epoch; an integer from 0. After
                a fraction, such as epoch 0.5, reports are counted instead.
            **metrics: More values of this step. They are stored as curves of their own.

        Raises:
            TypeError: If a value is not a number.
            ValueError: If the step is negative, the mapping does not have exactly the names of
                the objectives, a metric's name is longer than 255 characters, or the report is
                larger than 16 MiB.
        """
        step = as_step(step)
        if not 0 <= step <= MAX_STEP:
            raise ValueError(
                f"report: step is {step}, but steps are from 0 to {MAX_STEP}. Count them up from "
                "0, such as the epoch."
            )
        self.last_values = self._by_objective(value)
        for name in metrics:
            check_name("report", name, MAX_METRIC_NAME)
        numbers = {name: as_number(name, metric) for name, metric in metrics.items()}
        whole = self._steps.whole(step)
        if self._steps.fraction == step:
            is_swapped = isinstance(value, int) and not isinstance(value, bool)
            self._link.remark(
                RemarkTopic.FRACTIONAL_STEPS,
                self._steps.remark + (_VALUE_FIRST if is_swapped else ""),
            )
        self._note_order(step)
        self._link.report(whole, self.last_values, numbers)
        if self.trace is not None:
            self.trace.reported(whole)

    def _note_order(self, step: float) -> None:
        if self._has_remarked_order or self._steps.fraction is not None:
            return
        self._order.note(self.last_values, step)
        if remark := self._order.remark(_COUNT_UP):
            self._has_remarked_order = True
            self._link.remark(RemarkTopic.REPEATED_STEPS, remark)

    def should_prune(self) -> bool:
        """Whether to end now, because the trial is pruned or paused, or the study is stopped.

        Waits a few milliseconds for the verdict on the last report. With several ranks, each rank
        must call it equally often: all ranks get the answer of rank 0, and wait for it.

        Raises:
            RanksDisagree: If the last step reported by this rank is not that of rank 0.
        """
        return self._link.should_stop()

    @property
    def attempt_number(self) -> int:
        """1 in the first attempt, one more after each retry or resume."""
        return self._assign.attempt_number

    @property
    def seed(self) -> int:
        """A seed below 2^31, derived from the seed of the study, the trial and the attempt.

        `random`, NumPy and torch are seeded with it before your function is called. It is the
        same on all ranks, so that they build the same model and shuffle in the same order.
        """
        return self._assign.seed

    @property
    def rank_seed(self) -> int:
        """A seed below 2^31 for what must differ between ranks, such as dropout.

        On rank 0 it is equal to `seed`.
        """
        return seed_of_rank(self.seed, self.rank)

    def seed_everything(self, deterministic: bool = False) -> int:
        """Seeds `random`, NumPy (if it is imported) and torch with `rank_seed`.

        Args:
            deterministic: Also use deterministic algorithms only, which may be slower. In this
                case call it before the first use of the GPU.

        Returns:
            The seed.
        """
        if deterministic:
            make_deterministic()
        seed_generators(self.rank_seed)
        return self.rank_seed

    @property
    def device(self) -> torch.device:
        """The device of this process: `cuda:<local_rank>` or `cpu`. Other GPUs are not visible."""
        import torch

        return torch.device("cuda", self.local_rank) if self._has_gpu() else torch.device("cpu")

    @property
    def devices(self) -> tuple[torch.device, ...]:
        """The devices of this process: with one process, all devices of the trial; else its own.

        On n CPU slots it contains `cpu` n times, so that code that splits a model runs there too.
        """
        import torch

        if self.world_size > 1:
            return (self.device,)
        if not self._has_gpu():
            return (torch.device("cpu"),) * max(1, len(self.device_labels))
        return tuple(torch.device("cuda", index) for index in range(len(self.device_labels)))

    def autocast(self, dtype: torch.dtype | None = None) -> torch.autocast:
        """Mixed precision on the device of the trial: `with trial.autocast(): loss = ...`.

        Args:
            dtype: The default is bfloat16, and float16 on GPUs older than Ampere. Gradients in
                float16 need `torch.amp.GradScaler`.
        """
        import torch

        if dtype is None:
            has_bfloat16 = not self._has_gpu() or torch.cuda.is_bf16_supported(False)
            dtype = torch.bfloat16 if has_bfloat16 else torch.float16
        return torch.autocast(self.device.type, dtype)

    def profile(self) -> AbstractContextManager[None]:
        """Marks what the torch profiler records: `with trial.profile(): train_some_steps()`.

        Does nothing unless the study file selects this trial with `trial: {profile: {trial: 0}}`
        without `steps`. The trace of the first block of each attempt goes into the folder of the
        trial and is shown on its page of the dashboard. With several ranks, rank 0 records.
        """
        return nullcontext() if self.trace is None else self.trace.block()

    @property
    def device_labels(self) -> tuple[str, ...]:
        """Names of all devices of the trial, for messages: `GPU 3`, `cpu:1`."""
        return self._assign.devices

    @property
    def rank(self) -> int:
        """The number of this process among all processes of the trial, from 0."""
        return int(os.environ.get("RANK", "0"))

    @property
    def local_rank(self) -> int:
        """The number of this process among the trial's processes on this host, from 0."""
        return int(os.environ.get("LOCAL_RANK", "0"))

    @property
    def world_size(self) -> int:
        """Number of processes that evaluate this trial."""
        return int(os.environ.get("WORLD_SIZE", "1"))

    @property
    def is_main(self) -> bool:
        """Whether this is rank 0, whose reports and checkpoints count."""
        return self.rank == 0

    @property
    def checkpoint_dir(self) -> Path:
        """The checkpoint folder of this trial, the same in every attempt; created on first use."""
        return self.checkpoints.path

    @property
    def checkpoint_path(self) -> Path:
        """The path of `checkpoint_dir`. The folder may not exist yet."""
        return Path(self._assign.checkpoint_dir)

    @property
    def objectives(self) -> tuple[str, ...]:
        """The names of the objectives."""
        return self._assign.objectives

    def save_checkpoint(
        self, state: Mapping[str, Any], step: int, *, wait: bool = True, sharded: bool = False
    ) -> Path:
        """Saves a checkpoint atomically.

        Only rank 0 writes; on other ranks the call does nothing. If a model is split over ranks,
        collect its state first (`tuner.ddp.state_of`), or use `sharded=True`.

        Args:
            state: Tensors, numbers, strings, and containers of them, such as
                `{"model": model.state_dict(), "epoch": epoch}`.
            step: The step that the state belongs to. The newest checkpoints are kept
                (`checkpoints.newest` in the study file, default 2).
            wait: If false, the state is copied to CPU memory and written while training
                continues. The next save and the end of the trial wait for it.
            sharded: If true, every rank must make this call inside `ddp.group`, and writes its
                part with `torch.distributed.checkpoint`. Any number of ranks can load the result.

        Returns:
            The path of the file, or of the folder with `sharded`. With `wait=False`, and on other
            ranks than 0, it may not exist yet.

        Raises:
            TypeError: If the state contains something that cannot be loaded safely.
            OSError: If it cannot be written. Earlier checkpoints are intact. With `wait=False`
                the next save raises it, or the trial fails at its end.
            ValueError: If both `sharded=True` and `wait=False` are given.
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
        """Loads the newest undamaged checkpoint, with its tensors on the CPU.

        A damaged checkpoint is skipped, and the log of the trial names it. Every rank may call
        this before its first step. A checkpoint that was saved with `sharded=True` is assembled
        from its parts; its dicts then have strings as keys.

        Args:
            into: A state with the structure to load, such as that of a model split over the
                ranks. The newest checkpoint saved with `sharded=True` is loaded into it; each
                rank reads only its own part. It is unchanged if there is none.

        Returns:
            The state, or None if there is no checkpoint.

        Raises:
            RuntimeError: If the checkpoint lacks a key of `into`.
            ValueError: If a tensor of `into` has another shape in the checkpoint.
        """
        return self.checkpoints.load() if into is None else self.checkpoints.load_into(into)

    def new_checkpoint(self, step: int) -> AbstractContextManager[Path]:
        """Saves files of any format as a checkpoint: `with trial.new_checkpoint(9) as folder:`.

        The block writes its files into the folder. After the block, the folder gets its final
        name and counts like a checkpoint of `save_checkpoint`. If the block raises, nothing is
        kept. With several ranks every rank must enter the block, inside `ddp.group`; all get the
        same folder.

        Args:
            step: The step that the files belong to.

        Raises:
            OSError: If the files cannot be written. Earlier checkpoints are intact.
        """
        return self.checkpoints.new(step, self.rank, self._meet)

    def newest_checkpoint(self) -> Path | None:
        """Returns the folder of the newest undamaged checkpoint of `new_checkpoint`, or None.

        A damaged checkpoint is skipped, and the log of the trial names it.
        """
        return self.checkpoints.newest()

    def wait_for_checkpoint(self) -> None:
        """Waits until the save of `save_checkpoint(wait=False)` is on disk; raises its error."""
        self.checkpoints.wait()

    def _meet(self) -> None:
        if self.world_size > 1:
            from tuner.trials.sharded import meet

            meet()

    def _has_gpu(self) -> bool:
        return any(not label.startswith("cpu") for label in self._assign.devices)

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
                f"objectives {', '.join(names)}. Further values go as keywords: loss=0.3."
            )
        return {name: as_number(name, value[name]) for name in names}
