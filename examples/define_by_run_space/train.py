"""A scikit-learn network for the digits that takes one width per layer. It knows of no tuner.

Alone with the best configuration: python train.py $(python -m tuner.best study.yaml --format args)
"""

import argparse
import json

from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

N_EPOCHS = 6

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, required=True)
parser.add_argument("--n_layers", type=int, required=True)
for layer in range(3):
    parser.add_argument(f"--width_{layer}", type=int)
args = parser.parse_args()
widths = [vars(args)[f"width_{layer}"] for layer in range(args.n_layers)]

pixels, digits = load_digits(return_X_y=True)
train_x, valid_x, train_y, valid_y = train_test_split(
    pixels / 16, digits, test_size=0.25, stratify=digits, random_state=0
)
model = MLPClassifier(widths, learning_rate_init=args.lr, batch_size=64, random_state=0)
print(f"layers of {widths}")
for epoch in range(1, N_EPOCHS + 1):
    model.partial_fit(train_x, train_y, classes=range(10))
    print(json.dumps({"step": epoch, "accuracy": model.score(valid_x, valid_y)}))
