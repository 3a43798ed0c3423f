"""A small transformer that reads a digit row by row, split over the devices of its trial by FSDP2.

Needs torch 2.6 or newer. By the tuner: python -m tuner.run study.yaml
"""

from functools import cache

import optuna
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset

from tuner import TrialContext, ddp

N_ROWS = 8
N_FEATURES = 32
#: A checkpoint holds the whole model, so that any number of processes can go on with it.
WHOLE = StateDictOptions(full_state_dict=True, cpu_offload=True)


class RowReader(nn.Module):
    """Maps images [batch, 8, 8] to logits [batch, 10]."""

    def __init__(self, n_heads: int, n_layers: int) -> None:
        super().__init__()
        self.embed = nn.Linear(N_ROWS, N_FEATURES)
        self.position = nn.Parameter(torch.zeros(N_ROWS, N_FEATURES))
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(N_FEATURES, n_heads, 64, dropout=0.0, batch_first=True)
            for _ in range(n_layers)
        )
        self.classify = nn.Linear(N_FEATURES, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        rows = self.embed(images) + self.position
        for layer in self.layers:
            rows = layer(rows)
        return self.classify(rows.mean(dim=1))


@cache
def load_data() -> tuple[TensorDataset, TensorDataset]:
    """Training and validation data, as images [n, 8, 8] in 0..1 and classes [n]."""
    pixels, digits = load_digits(return_X_y=True)
    images = torch.tensor(pixels / 16, dtype=torch.float32).reshape(-1, N_ROWS, 8)
    parts = train_test_split(images, torch.tensor(digits), stratify=digits, random_state=0)
    return TensorDataset(parts[0], parts[2]), TensorDataset(parts[1], parts[3])


def build_model(trial: TrialContext) -> nn.Module:
    """Each layer is gathered when it computes, and split again after it."""
    model = RowReader(trial.params.n_heads, trial.params.n_layers).to(trial.device)
    for layer in model.layers:
        fully_shard(layer)
    return fully_shard(model)


@torch.no_grad()
def accuracy_of(model: nn.Module, data: TensorDataset, trial: TrialContext) -> float:
    """Every process must take part: each has only a piece of the weights."""
    images, classes = (part.to(trial.device) for part in data[trial.rank :: trial.world_size])
    n_right = (model(images).argmax(dim=1) == classes).sum()
    return ddp.mean(n_right, trial) * trial.world_size / len(data)


def train(trial: TrialContext) -> float:
    params = trial.params
    training, validation = load_data()
    with ddp.group(trial):
        batches = ddp.loader(training, trial, params.batch_size // trial.world_size)
        model = build_model(trial)
        optimizer = torch.optim.AdamW(model.parameters(), lr=params.lr)
        done, accuracy = 0, 0.0
        if state := trial.load_checkpoint():
            set_state_dict(
                model,
                optimizer,
                model_state_dict=state["model"],
                optim_state_dict=state["optimizer"],
                options=WHOLE,
            )
            done, accuracy = state["epoch"], state["accuracy"]
            batches.sampler.set_epoch(done)
        for epoch in range(done + 1, params.epochs + 1):
            for images, classes in batches:
                loss = cross_entropy(model(images.to(trial.device)), classes.to(trial.device))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            accuracy = accuracy_of(model, validation, trial)
            # Gathers the pieces, with all processes; the first one alone writes them.
            weights, moments = get_state_dict(model, optimizer, options=WHOLE)
            state = {"model": weights, "optimizer": moments, "epoch": epoch, "accuracy": accuracy}
            trial.save_checkpoint(state, step=epoch)
            trial.report(accuracy, step=epoch, loss=loss)
            if trial.should_prune():
                raise optuna.TrialPruned
    return accuracy


load_data()  # While this module is imported, once, and not in each process.
