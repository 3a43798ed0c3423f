"""Search spaces of recorded trainings: of public collections, and as a table says."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

#: Of LCBench (Zimmer, Lindauer and Hutter, 2021), in the order of the columns of its tables.
LCBENCH_SPACE: Mapping[str, Mapping[str, Any]] = {
    "batch_size": {"type": "int", "low": 16, "high": 512, "log": True},
    "learning_rate": {"type": "float", "low": 1e-4, "high": 0.1, "log": True},
    "momentum": {"type": "float", "low": 0.1, "high": 0.99},
    "weight_decay": {"type": "float", "low": 1e-5, "high": 0.1},
    "num_layers": {"type": "int", "low": 1, "high": 5},
    "max_units": {"type": "int", "low": 64, "high": 1024, "log": True},
    "max_dropout": {"type": "float", "low": 0.0, "high": 1.0},
}

_TREES = {"when": {"booster": ["gbtree", "dart"]}}
_DART = {"when": {"booster": "dart"}}
#: XGBoost in rbv2 (Binder, Pfisterer and Bischl, 2020), without the number of rounds: a training
#: reports as they grow. Bounds are rounded inwards.
XGBOOST_SPACE: Mapping[str, Mapping[str, Any]] = {
    "booster": {"type": "categorical", "choices": ["gblinear", "gbtree", "dart"]},
    "num.impute.selected.cpo": {
        "type": "categorical",
        "choices": ["impute.mean", "impute.median", "impute.hist"],
    },
    "lambda": {"type": "float", "low": 1e-3, "high": 1e3, "log": True},
    "alpha": {"type": "float", "low": 1e-3, "high": 1e3, "log": True},
    "subsample": {"type": "float", "low": 0.1, "high": 1.0},
    "eta": {"type": "float", "low": 1e-3, "high": 1.0, "log": True, **_TREES},
    "gamma": {"type": "float", "low": 5e-5, "high": 7.0, "log": True, **_TREES},
    "max_depth": {"type": "int", "low": 1, "high": 15, **_TREES},
    "min_child_weight": {"type": "float", "low": 3.0, "high": 148.0, "log": True, **_TREES},
    "colsample_bytree": {"type": "float", "low": 0.01, "high": 1.0, **_TREES},
    "colsample_bylevel": {"type": "float", "low": 0.01, "high": 1.0, **_TREES},
    "rate_drop": {"type": "float", "low": 0.0, "high": 1.0, **_DART},
    "skip_drop": {"type": "float", "low": 0.0, "high": 1.0, **_DART},
}


def words_of_table(path: Path) -> Mapping[str, Mapping[str, Any]]:
    """The space of a table of curves: what it says itself, else that of LCBench."""
    with np.load(path, allow_pickle=False) as file:
        if "space" not in file:
            return LCBENCH_SPACE
        words: Mapping[str, Mapping[str, Any]] = json.loads(str(file["space"]))
        return words
