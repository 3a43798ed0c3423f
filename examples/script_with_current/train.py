"""A small network for wines, in one script that serves under the tuner and alone.

python -m tuner.run study.yaml                        tune it
TUNER_STORAGE=sqlite:///wine.db python train.py       train with the best configuration
python train.py                                       train with the defaults below
"""

import optuna
import torch
from sklearn.datasets import load_wine
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from torch import nn

import tuner

DEFAULTS = {"lr": 1e-2, "width": 32, "dropout": 0.2, "epochs": 15}


def load_data(device: torch.device) -> list[torch.Tensor]:
    features, classes = load_wine(return_X_y=True)
    train_x, valid_x, train_y, valid_y = train_test_split(
        features, classes, test_size=0.4, stratify=classes, random_state=0
    )
    scaler = StandardScaler().fit(train_x)
    parts = scaler.transform(train_x), scaler.transform(valid_x)
    inputs = [torch.tensor(part, dtype=torch.float32, device=device) for part in parts]
    return [*inputs, *(torch.tensor(part, device=device) for part in (train_y, valid_y))]


def main() -> None:
    trial = tuner.current(DEFAULTS)
    params = trial.params
    print(f"trial {trial.number} on {trial.device}: {params}")
    torch.manual_seed(trial.seed)

    train_x, valid_x, train_y, valid_y = load_data(trial.device)
    model = nn.Sequential(
        nn.Linear(13, params.width),
        nn.ReLU(),
        nn.Dropout(params.dropout),
        nn.Linear(params.width, 3),
    ).to(trial.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=params.lr)

    # An earlier attempt of this trial may have been cut off: go on from there.
    first_epoch = 1
    if state := trial.load_checkpoint():
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first_epoch = state["epoch"] + 1

    for epoch in range(first_epoch, params.epochs + 1):
        model.train()
        loss = nn.functional.cross_entropy(model(train_x), train_y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

        model.eval()
        with torch.no_grad():
            accuracy = float((model(valid_x).argmax(dim=1) == valid_y).float().mean())
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
        trial.save_checkpoint(state, step=epoch)
        trial.report(accuracy, step=epoch, loss=loss.item())
        if trial.should_prune():
            raise optuna.TrialPruned


if __name__ == "__main__":
    main()
