"""A linear classifier for breast tumours: an Optuna study as Optuna's own documentation has it.

Nothing in this file knows of the tuner. By Optuna alone, one trial at a time: python objective.py
"""

import optuna
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

N_EPOCHS = 20


def load_data():
    features, classes = load_breast_cancer(return_X_y=True)
    train_x, valid_x, train_y, valid_y = train_test_split(
        features, classes, test_size=0.25, stratify=classes, random_state=0
    )
    scaler = StandardScaler().fit(train_x)
    return scaler.transform(train_x), scaler.transform(valid_x), train_y, valid_y


def build_classifier(trial):
    settings = {
        "alpha": trial.suggest_float("alpha", 1e-6, 1e-1, log=True),
        "penalty": trial.suggest_categorical("penalty", ["l2", "l1", "elasticnet"]),
        "learning_rate": trial.suggest_categorical("learning_rate", ["optimal", "constant"]),
    }
    if settings["penalty"] == "elasticnet":
        settings["l1_ratio"] = trial.suggest_float("l1_ratio", 0.05, 0.95)
    if settings["learning_rate"] == "constant":
        settings["eta0"] = trial.suggest_float("eta0", 1e-4, 1e-1, log=True)
    return SGDClassifier(**settings, random_state=0)


def objective(trial):
    train_x, valid_x, train_y, valid_y = load_data()
    classifier = build_classifier(trial)
    for epoch in range(1, N_EPOCHS + 1):
        classifier.partial_fit(train_x, train_y, classes=[0, 1])
        accuracy = classifier.score(valid_x, valid_y)
        trial.report(accuracy, epoch)
        if trial.should_prune():
            raise optuna.TrialPruned()
    trial.set_user_attr("train_accuracy", classifier.score(train_x, train_y))
    trial.set_user_attr("n_weights_used", int((classifier.coef_ != 0).sum()))
    return accuracy


if __name__ == "__main__":
    study = optuna.create_study(
        direction="maximize",
        sampler=optuna.samplers.TPESampler(seed=0),
        pruner=optuna.pruners.MedianPruner(),
    )
    study.optimize(objective, n_trials=20)
    print("best accuracy:", study.best_value)
    print("best parameters:", study.best_params)
