"""A linear classifier for wines, by arguments in and printed lines out. It knows of no tuner.

Alone: python train.py --alpha 0.001 --penalty elasticnet --l1_ratio 0.3
"""

import argparse

from sklearn.datasets import load_wine
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

parser = argparse.ArgumentParser()
parser.add_argument("--alpha", type=float, default=1e-4)
parser.add_argument("--penalty", choices=["l2", "elasticnet"], default="l2")
parser.add_argument("--l1_ratio", type=float, default=0.15)
parser.add_argument("--epochs", type=int, default=10)
args = parser.parse_args()

features, classes = load_wine(return_X_y=True)
train_x, valid_x, train_y, valid_y = train_test_split(
    features, classes, test_size=0.4, stratify=classes, random_state=0
)
scaler = StandardScaler().fit(train_x)
train_x, valid_x = scaler.transform(train_x), scaler.transform(valid_x)

model = SGDClassifier(
    alpha=args.alpha, penalty=args.penalty, l1_ratio=args.l1_ratio, random_state=0
)
for epoch in range(1, args.epochs + 1):
    model.partial_fit(train_x, train_y, classes=[0, 1, 2])
    print(f"epoch {epoch}: validation accuracy {model.score(valid_x, valid_y):.4f}")
