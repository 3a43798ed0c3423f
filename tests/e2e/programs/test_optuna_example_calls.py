"""Programs in the manner of Optuna's public examples, with the calls that these make.

Each is started as it stands, by `tuner run train.py`. The examples themselves load data from the
network, which tests do not. Left out are callbacks of packages that the lock files do not have:
fastai, CatBoost, skorch, PyTorch Ignite, Comet, Dask and BoTorch.
"""

from __future__ import annotations

import pytest

from tests.e2e.study_folder import Ended, StudyFolder
from tuner.errors import EXIT_BAD_INPUT, EXIT_BUDGET_REACHED

pytestmark = [pytest.mark.programs, pytest.mark.timeout(600)]

#: Frameworks are large: each process that imports one takes seconds of a core.
TIMEOUT_S = 240.0

# As the examples of PyTorch, scikit-learn and the FAQ report at their end.
REPORTS_AT_ITS_END = """
import optuna
from optuna.search_space import intersection_search_space
from optuna.study import MaxTrialsCallback
from optuna.trial import TrialState


def objective(trial: optuna.trial.Trial) -> float:
    kind = trial.suggest_categorical("classifier", ["SVC", "Forest"])
    n_layers = trial.suggest_int("n_layers", 1, 2, log=True)
    units = [trial.suggest_int(f"n_units_l{i}", 4, 128, step=4) for i in range(n_layers)]
    rate = trial.suggest_float("lr", 1e-5, 1e-1, log=True)
    trial.set_user_attr("kind", kind)
    for epoch in range(3):
        trial.report(rate + sum(units), epoch)
        if trial.number == 1:
            raise optuna.exceptions.TrialPruned()
    assert trial.params["lr"] == rate and trial.user_attrs["kind"] == kind
    return rate + sum(units)


if __name__ == "__main__":
    storage = optuna.storages.RDBStorage("sqlite:///theirs.db")
    study = optuna.create_study(
        study_name="theirs", storage=storage, direction="maximize", load_if_exists=True,
        sampler=optuna.samplers.TPESampler(seed=1), pruner=optuna.pruners.NopPruner(),
    )
    study.enqueue_trial({"classifier": "SVC", "n_layers": 1, "n_units_l0": 4, "lr": 1e-3})
    study.optimize(
        objective, timeout=600, callbacks=[MaxTrialsCallback(3, states=(TrialState.COMPLETE,))]
    )
    pruned = study.get_trials(deepcopy=False, states=[TrialState.PRUNED])
    complete = study.get_trials(deepcopy=False, states=[TrialState.COMPLETE])
    print("Study statistics:", len(study.trials), len(pruned), len(complete))
    best = study.best_trial
    print("Best trial:", best.value == study.best_value, best.params == study.best_params)
    print("Frame:", study.trials_dataframe().shape[0], study.direction.name)
    print("Common:", sorted(intersection_search_space(study.trials))[:2])
"""
# As basic/artifact_store, multi_objective/pytorch_simple and visualization/plot_pareto_front.
FRONT = """
import json
import os

import optuna
from optuna.artifacts import FileSystemArtifactStore, download_artifact
from optuna.artifacts import get_all_artifact_meta, upload_artifact

os.makedirs("artifacts", exist_ok=True)
store = FileSystemArtifactStore(base_path="artifacts")


def objective(trial):
    x = trial.suggest_float("x", 0, 5)
    path = f"made-{trial.number}.json"
    json.dump({"x": x}, open(path, "w"))
    trial.set_user_attr("kept", upload_artifact(
        artifact_store=store, file_path=path, study_or_trial=trial))
    return x, (x - 2) ** 2


study = optuna.create_study(
    storage="sqlite:///front.db", directions=["minimize", "minimize"],
    sampler=optuna.samplers.NSGAIISampler(seed=1),
)
study.set_metric_names(["size", "error"])
study.optimize(objective, n_trials=4)
front = study.best_trials
print("Front:", [len(trial.values) for trial in front] == [2] * len(front), study.metric_names)
one = front[0]
(meta,) = get_all_artifact_meta(one, storage=study._storage)
download_artifact(artifact_store=store, artifact_id=meta.artifact_id, file_path="back.json")
print("Kept:", meta.artifact_id == one.user_attrs["kept"],
      json.load(open("back.json"))["x"] == one.params["x"])
figure = optuna.visualization.plot_pareto_front(study, target_names=["size", "error"])
print("Points:", sum(len(each.x) for each in figure.data))
"""
# As terminator/terminator_simple, basic/quadratic_constraint and visualization/plot_study.
SCORES = """
import numpy as np
import optuna
from optuna.terminator.callback import TerminatorCallback
from optuna.terminator.erroreval import report_cross_validation_scores


class Annealing(optuna.samplers.BaseSampler):
    def infer_relative_search_space(self, study, trial):
        return {}

    def sample_relative(self, study, trial, search_space):
        return {}

    def sample_independent(self, study, trial, name, distribution):
        return distribution.low


def objective(trial):
    x = trial.suggest_float("x", -1.0, 1.0)
    y = trial.suggest_int("y", -1, 1)
    scores = np.array([x, x + y, x - y])
    report_cross_validation_scores(trial, scores)
    for step, score in enumerate(scores):
        trial.report(float(score), step)
    return scores.mean()


study = optuna.create_study(direction="maximize", sampler=Annealing())
study.optimize(objective, n_trials=4, callbacks=[TerminatorCallback()])
scores = [trial.system_attrs["terminator:cv_scores"] for trial in study.trials]
print("Scores:", [len(each) for each in scores])
for name in (
    "optimization_history", "intermediate_values", "parallel_coordinate", "contour", "slice",
    "param_importances", "terminator_improvement",
):
    figure = getattr(optuna.visualization, f"plot_{name}")(study)
    print("Figure:", name, len(figure.data) > 0)
"""
# As lightgbm/lightgbm_integration, xgboost/xgboost_integration and xgboost_cv_integration.
BOOSTERS = """
import lightgbm
import numpy as np
import optuna
import xgboost
from optuna.integration import LightGBMPruningCallback, XGBoostPruningCallback

X = np.random.default_rng(0).normal(size=(200, 4))
y = (X[:, 0] > 0).astype(int)


def objective(trial):
    depth = trial.suggest_int("depth", 1, 3)
    kind = trial.suggest_categorical("kind", ["lightgbm", "xgboost", "cv"])
    if kind == "lightgbm":
        data = lightgbm.Dataset(X, label=y)
        callback = LightGBMPruningCallback(trial, "auc")
        model = lightgbm.train(
            {"objective": "binary", "metric": "auc", "verbosity": -1, "max_depth": depth,
             "num_threads": 1}, data, num_boost_round=5, callbacks=[callback],
            valid_sets=[lightgbm.Dataset(X, label=y)])
        return model.best_score["valid_0"]["auc"]
    data = xgboost.DMatrix(X, label=y)
    params = {"objective": "binary:logistic", "eval_metric": "auc", "max_depth": depth}
    if kind == "cv":
        callback = XGBoostPruningCallback(trial, "test-auc")
        history = xgboost.cv(params, data, num_boost_round=5, callbacks=[callback])
        return history["test-auc-mean"].values[-1]
    callback = XGBoostPruningCallback(trial, "validation-auc")
    xgboost.train(params, data, 5, evals=[(data, "validation")], callbacks=[callback],
                  verbose_eval=False)
    return 0.5


study = optuna.create_study(
    direction="maximize", pruner=optuna.pruners.MedianPruner(n_warmup_steps=5))
for kind in ("lightgbm", "xgboost", "cv"):
    study.enqueue_trial({"depth": 2, "kind": kind})
study.optimize(objective, n_trials=3)
print("Steps:", [len(trial.intermediate_values) for trial in study.trials])
print("Kinds:", [trial.params["kind"] for trial in study.trials])
"""
# As pytorch/pytorch_lightning_simple and pytorch_lightning_ddp, on Lightning's own demo model.
LIGHTNING = """
import logging
import optuna
import lightning.pytorch as pl
from lightning.pytorch.demos.boring_classes import BoringDataModule, BoringModel
from optuna_integration import PyTorchLightningPruningCallback


class Net(BoringModel):
    def __init__(self, rate):
        super().__init__()
        self.rate = rate

    def validation_step(self, batch, batch_idx):
        self.log("loss", super().validation_step(batch, batch_idx)["x"], sync_dist=True)


def objective(trial: optuna.trial.Trial) -> float:
    rate = trial.suggest_float("rate", 0.01, 0.1)
    callback = PyTorchLightningPruningCallback(trial, monitor="loss")
    trainer = pl.Trainer(
        logger=False, enable_checkpointing=False, enable_progress_bar=False, max_epochs=2,
        limit_train_batches=2, limit_val_batches=2, accelerator="cpu", callbacks=[callback],
        enable_model_summary=False, STRATEGY
    )
    trainer.fit(Net(rate), datamodule=BoringDataModule())
    callback.check_pruned()
    return trainer.callback_metrics["loss"].item()


if __name__ == "__main__":
    logging.getLogger("lightning").setLevel(logging.ERROR)
    pruner: optuna.pruners.BasePruner = optuna.pruners.ThresholdPruner(upper=UPPER)
    study = optuna.create_study(
        study_name="net", storage="sqlite:///net.db", pruner=pruner, load_if_exists=True)
    study.optimize(objective, n_trials=1, timeout=600)
    print("Ended:", len(study.trials))
"""
# As sklearn/sklearn_optuna_search_cv_simple and terminator/terminator_search_cv.
SEARCH_CV = """
import optuna
from sklearn.datasets import load_iris
from sklearn.svm import SVC

space = {"C": optuna.distributions.FloatDistribution(1e-2, 1e2, log=True)}
search = optuna.integration.OptunaSearchCV(SVC(), space, n_trials=3, random_state=1)
search.fit(*load_iris(return_X_y=True))
print("Found:", search.n_trials_, search.best_score_ > 0.8, search.best_estimator_)
"""
# As lightgbm/lightgbm_tuner_simple: it calls study.optimize for each of its steps.
TUNER_OF_LIGHTGBM = """
import numpy as np
import optuna.integration.lightgbm as lgb

data = lgb.Dataset(np.eye(8), label=[0, 1] * 4)
lgb.train({"objective": "binary", "verbosity": -1}, data, valid_sets=[data])
"""
# As pruners/wilcoxon_pruner_tsp_sa: steps are parts of the data, in random order.
PARTS_IN_RANDOM_ORDER = """
import numpy as np
import optuna


def objective(trial):
    x = trial.suggest_float("x", 0, 1)
    values = []
    for part in np.random.permutation(12):
        values.append(x + part / 100)
        trial.report(values[-1], part)
        if trial.should_prune():
            return float(np.mean(values))
    return float(np.mean(values))


study = optuna.create_study(pruner=optuna.pruners.WilcoxonPruner(p_threshold=0.1))
study.optimize(objective, n_trials=4)
print("Parts:", max(len(trial.intermediate_values) for trial in study.trials))
"""


def tune(folder: StudyFolder, text: str) -> Ended:
    folder.write("train.py", text)
    ended = folder.start("--set", "devices=cpu:2", file="train.py").wait(TIMEOUT_S)
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    return ended


def lines(ended: Ended, *beginnings: str) -> list[str]:
    return [line for line in ended.out.splitlines() if line.startswith(beginnings)]


def test_what_a_program_reports_of_its_study(study_folder: StudyFolder) -> None:
    ended = tune(study_folder, REPORTS_AT_ITS_END)
    statistics, *others = lines(ended, "Study statistics:", "Best trial:", "Frame:", "Common:")
    total, pruned, complete = map(int, statistics.split()[2:])
    assert (pruned, complete) == (1, total - 1)
    assert complete >= 2
    assert others == [
        "Best trial: True True",
        f"Frame: {total} MAXIMIZE",
        "Common: ['classifier', 'lr']",
    ]


def test_several_objectives_with_artifacts(study_folder: StudyFolder) -> None:
    ended = tune(study_folder, FRONT)
    front, kept, points = lines(ended, "Front:", "Kept:", "Points:")
    assert (front, kept) == ("Front: True ['size', 'error']", "Kept: True True")
    assert points == "Points: 4"


def test_scores_of_a_cross_validation_and_all_figures(study_folder: StudyFolder) -> None:
    """Scores are an array, which Optuna takes in memory and not in a database."""
    ended = tune(study_folder, SCORES)
    assert lines(ended, "Scores:") == ["Scores: [3, 3, 3, 3]"]
    assert len(lines(ended, "Figure:")) == 7
    assert all(line.endswith(" True") for line in lines(ended, "Figure:"))
    assert "not used: sampler Annealing: a class of your own" in ended.out
    assert "not used: callback TerminatorCallback" in ended.out


def test_pruning_callbacks_of_boosters(study_folder: StudyFolder) -> None:
    ended = tune(study_folder, BOOSTERS)
    assert lines(ended, "Steps:", "Kinds:") == [
        "Steps: [5, 5, 5]",
        "Kinds: ['lightgbm', 'xgboost', 'cv']",
    ]


@pytest.mark.parametrize(
    ("strategy", "upper", "state", "n_steps"),
    [
        # The ranks do all of it too.
        pytest.param("", 1e9, "COMPLETE", 2, marks=pytest.mark.nightly),
        # By day, `test_frameworks` completes trials of Lightning on two ranks.
        pytest.param(
            'devices=2, strategy="ddp_spawn"', 1e9, "COMPLETE", 2, marks=pytest.mark.nightly
        ),
        ('devices=2, strategy="ddp_spawn"', -1e9, "PRUNED", 1),
    ],
    ids=["one", "ranks", "ranks that are pruned"],
)
def test_pruning_callback_of_lightning(
    study_folder: StudyFolder, strategy: str, upper: float, state: str, n_steps: int
) -> None:
    text = LIGHTNING.replace("STRATEGY", strategy).replace("UPPER", str(upper))
    study_folder.write("train.py", text)
    ended = study_folder.start("--set", "devices=cpu:1", file="train.py").wait(TIMEOUT_S)
    assert study_folder.states("net.db") == [state], ended.text
    steps = "select count(*) from trial_intermediate_values"
    assert study_folder.rows(steps, database="net.db") == [(n_steps,)]


def test_a_search_of_scikit_learn_with_optuna(study_folder: StudyFolder) -> None:
    ended = tune(study_folder, SEARCH_CV)
    (found,) = lines(ended, "Found:")
    assert found.startswith("Found: 3 True SVC(C=")
    assert study_folder.rows("select count(*) from trials", database="train.db") == [(3,)]


def test_a_search_in_several_rounds_is_refused(study_folder: StudyFolder) -> None:
    study_folder.write("train.py", TUNER_OF_LIGHTGBM)
    ended = study_folder.start(file="train.py").wait(TIMEOUT_S)
    assert ended.code == EXIT_BAD_INPUT
    assert "calls study.optimize through optuna_integration.lightgbm" in ended.err
    assert "Write an objective(trial) and pass it to study.optimize." in ended.err


def test_steps_of_the_wilcoxon_pruner_have_no_order(study_folder: StudyFolder) -> None:
    ended = tune(study_folder, PARTS_IN_RANDOM_ORDER)
    assert lines(ended, "Parts:") == ["Parts: 12"]
    assert "The program reports step" not in ended.text
