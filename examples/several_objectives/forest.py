"""A random forest for the digits: how accurate can it be, and how small at the same time?"""

import pickle
import time
from functools import cache

from numpy import ndarray
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split

from tuner import TrialContext


@cache
def load_data() -> list[ndarray]:
    pixels, digits = load_digits(return_X_y=True)
    return train_test_split(pixels, digits, test_size=0.25, stratify=digits, random_state=0)


def milliseconds_per_image(forest: RandomForestClassifier, images: ndarray) -> float:
    began_s = time.perf_counter()
    forest.predict(images)
    return (time.perf_counter() - began_s) * 1000 / len(images)


def train(trial: TrialContext) -> dict[str, float]:
    """Gives a value for each objective of the study file."""
    train_x, valid_x, train_y, valid_y = load_data()
    forest = RandomForestClassifier(
        n_estimators=trial.params.n_trees,
        max_depth=trial.params.max_depth,
        min_samples_leaf=trial.params.min_samples_leaf,
        random_state=trial.seed,
    )
    forest.fit(train_x, train_y)
    trial.set_user_attr("latency_ms", milliseconds_per_image(forest, valid_x))
    return {
        "accuracy": forest.score(valid_x, valid_y),
        "size_kb": len(pickle.dumps(forest)) / 1024,
    }
