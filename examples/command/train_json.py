"""A linear regression of how diabetes goes on: environment variables in, JSON lines out.

It knows of no tuner. Alone: TUNER_PARAM_ALPHA=0.001 python train_json.py
"""

import json
import os

from sklearn.datasets import load_diabetes
from sklearn.linear_model import SGDRegressor
from sklearn.metrics import mean_absolute_error, r2_score
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

alpha = float(os.environ.get("TUNER_PARAM_ALPHA", "1e-4"))
eta0 = float(os.environ.get("TUNER_PARAM_ETA0", "1e-2"))
epochs = int(os.environ.get("TUNER_PARAM_EPOCHS", "10"))
seed = int(os.environ.get("TUNER_SEED", "0"))

features, progress = load_diabetes(return_X_y=True)
train_x, valid_x, train_y, valid_y = train_test_split(features, progress, random_state=0)
scaler = StandardScaler().fit(train_x)
train_x, valid_x = scaler.transform(train_x), scaler.transform(valid_x)

model = SGDRegressor(alpha=alpha, eta0=eta0, random_state=seed)
for epoch in range(1, epochs + 1):
    model.partial_fit(train_x, train_y)
    predicted = model.predict(valid_x)
    metrics = {
        "step": epoch,
        "error": mean_absolute_error(valid_y, predicted),
        "r2": r2_score(valid_y, predicted),
    }
    print(json.dumps(metrics))
