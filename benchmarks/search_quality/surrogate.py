"""Tasks of YAHPO Gym (Pfisterer et al., arXiv:2109.03670), whose trainings a model predicts.

Unlike a table it has a curve for each configuration, so that nothing is interpolated. The files of
a model are public (github.com/slds-lmu/yahpo_data, version 1.0.2); reading them takes the package
`onnxruntime`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from numpy.typing import NDArray
from optuna.samplers import RandomSampler

from benchmarks.search_quality.spaces import LCBENCH_SPACE, XGBOOST_SPACE
from tuner.search_spaces import ParamValue, parse_space
from tuner.simulate.curves import Curve, Floats

#: Random configurations, by whose values regrets are measured; as many as recorded tables have.
N_DRAWN = 10_000
_AT_ONCE = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """What a model predicts, and from what.

    Attributes:
        space: The search space.
        task: The name of the choice that is the task.
        step: The name of the number that grows during a training.
        steps: [n_steps], its values at the reports.
        numbers: The numbers that the model takes, in order; 0 where a configuration has none.
        choices: The choices that it takes.
        fixed: Inputs that are the same in every training.
        value: The column of the value, which is maximized.
        seconds: The column of the seconds since the training started.
    """

    space: Mapping[str, Mapping[str, Any]]
    task: str
    step: str
    steps: Floats
    numbers: Sequence[str]
    choices: Sequence[str]
    fixed: Mapping[str, Any]
    value: int
    seconds: int


#: By folder of the files. Orders of inputs and columns are those of YAHPO Gym.
MODELS: Mapping[str, Model] = {
    "lcbench": Model(
        space=LCBENCH_SPACE,
        task="OpenML_task_id",
        step="epoch",
        steps=np.arange(1.0, 53.0),
        numbers=["epoch", *LCBENCH_SPACE],
        choices=["OpenML_task_id"],
        fixed={},
        value=1,
        seconds=0,
    ),
    "rbv2_xgboost": Model(
        space=XGBOOST_SPACE,
        task="task_id",
        step="nrounds",
        steps=np.linspace(40.0, 2000.0, 50),
        numbers=[
            *("nrounds", "eta", "gamma", "lambda", "alpha", "subsample", "max_depth"),
            *("min_child_weight", "colsample_bytree", "colsample_bylevel"),
            *("rate_drop", "skip_drop", "trainsize", "repl"),
        ],
        choices=["task_id", "booster", "num.impute.selected.cpo"],
        fixed={"trainsize": 1.0, "repl": 10},
        value=0,
        seconds=6,
    ),
}


class SurrogateCurves:
    """The curves of one task.

    Args:
        folder: Of the model's files; its name is one of `MODELS`.
        task: The task's number.

    Raises:
        KeyError: If there is no such model or task.
    """

    def __init__(self, folder: Path, task: str) -> None:
        self._model = MODELS[folder.name]
        self._fixed = {self._model.task: task, **self._model.fixed}
        self._encoding = json.loads((folder / "encoding.json").read_text())
        self._session = _session(folder / "model.onnx")
        self.space = parse_space(self._model.space)
        self._drawn = _drawn(folder.name)
        several = [
            self._predict(self._drawn[at : at + _AT_ONCE]) for at in range(0, N_DRAWN, _AT_ONCE)
        ]
        #: [n, n_steps], of configurations at random.
        self.values: Floats = np.concatenate([values for values, _ in several])
        #: [n], the durations of their whole trainings.
        self.full_seconds: Floats = np.concatenate([seconds[:, -1] for _, seconds in several])

    def params(self, row: int) -> dict[str, ParamValue]:
        """One of the random configurations."""
        return dict(self._drawn[row])

    def curve(self, params: Mapping[str, ParamValue]) -> Curve:
        """The curve of any configuration."""
        values, seconds = self._predict([params])
        return Curve(values=values[0], seconds=seconds[0])

    def _predict(self, many: Sequence[Mapping[str, ParamValue]]) -> tuple[Floats, Floats]:
        """[m, n_steps] each, values and seconds, of m configurations."""
        of = self._model
        rows = [{**self._fixed, **each} for each in many]
        numbers, choices = model_inputs(of, self._encoding, rows)
        (found,) = self._session.run(["output"], {"x_cont": numbers, "x_cat": choices})
        table = found.reshape(len(many), len(of.steps), -1).astype(float)
        # Seconds are predicted for each step alone, and may fall from one to the next.
        return table[:, :, of.value], np.maximum.accumulate(table[:, :, of.seconds], axis=1)


def model_inputs(
    model: Model, encoding: Mapping[str, Mapping[str, int]], rows: Sequence[Mapping[str, Any]]
) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """[m * n_steps, n_numbers] and [m * n_steps, n_choices], step by step of m configurations.

    Args:
        model: Which inputs there are.
        encoding: By name, the number of each choice; `#na#` where a configuration has none.
        rows: The configurations, with what is the same in each.
    """
    n_steps = len(model.steps)
    numbers = [
        np.tile(model.steps, len(rows))
        if name == model.step
        else np.repeat([float(each.get(name, 0.0)) for each in rows], n_steps)
        for name in model.numbers
    ]
    choices = [
        np.repeat([encoding[name][each.get(name, "#na#")] for each in rows], n_steps)
        for name in model.choices
    ]
    return np.stack(numbers, axis=1).astype(np.float32), np.stack(choices, axis=1).astype(np.int32)


@cache
def _session(file: Path) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(str(file), sess_options=options)


@cache
def _drawn(model: str) -> list[dict[str, ParamValue]]:
    """Random configurations, the same for all tasks."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    space = parse_space(MODELS[model].space)
    study = optuna.create_study(sampler=RandomSampler(seed=0))
    return [space.suggest(study.ask()) for _ in range(N_DRAWN)]
