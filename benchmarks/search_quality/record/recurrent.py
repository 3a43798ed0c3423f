"""A language model of characters, a recurrent network with AdamW, on Python's own documentation."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from pydoc_data.topics import topics
from typing import Any

import torch
from torch import nn

from benchmarks.search_quality.record.job import Job, Recorder, Trained

SPACE: Mapping[str, Mapping[str, Any]] = {
    "learning_rate": {"type": "float", "low": 1e-4, "high": 0.1, "log": True},
    "batch_size": {"type": "int", "low": 8, "high": 64, "log": True},
    "sequence_length": {"type": "int", "low": 8, "high": 64, "log": True},
    "weight_decay": {"type": "float", "low": 1e-5, "high": 1.0, "log": True},
    "embedding": {"type": "int", "low": 8, "high": 64, "log": True},
    "units": {"type": "int", "low": 16, "high": 128, "log": True},
    "dropout": {"type": "float", "low": 0.0, "high": 0.6},
    "largest_gradient": {"type": "float", "low": 0.05, "high": 5.0, "log": True},
}
#: Characters of an epoch and of what is looked at. Each epoch has new text until all was read.
_N_EPOCH = 4_000
_N_VALID = 4_000
_N_TRAINED = 120_000
#: Rarer characters are one.
_N_CHARACTERS = 64
_VALID_ROWS = 100


def train(job: Job) -> Trained:
    """Trains on one thread; minus the bits that a character of other text takes, at most 0."""
    torch.set_num_threads(1)
    torch.manual_seed(job.seed)
    text, valid = _text()
    params = job.params
    model = _Network(int(params["embedding"]), int(params["units"]), params["dropout"])
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=params["learning_rate"], weight_decay=params["weight_decay"]
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, job.factor)
    recorder = Recorder()
    for epoch in range(job.n_epochs):
        model.train()
        first = epoch * _N_EPOCH % _N_TRAINED
        part = text[first : first + _N_EPOCH + 1]
        for x, y in _batches(part, int(params["batch_size"]), int(params["sequence_length"])):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
            loss.backward()  # type: ignore[no-untyped-call]  # torch has none for it.
            nn.utils.clip_grad_norm_(model.parameters(), params["largest_gradient"])
            optimizer.step()
        schedule.step()
        recorder.take(-_bits(model, valid))
    return recorder.trained


class _Network(nn.Module):
    """Characters to the logits of the next ones."""

    def __init__(self, embedding: int, units: int, dropout: float) -> None:
        super().__init__()
        self._embedding = nn.Embedding(_N_CHARACTERS, embedding)
        self._recurrent = nn.GRU(embedding, units, batch_first=True)
        self._dropout = nn.Dropout(dropout)
        self._last = nn.Linear(units, _N_CHARACTERS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[n, length] to [n, length, _N_CHARACTERS]."""
        states, _ = self._recurrent(self._dropout(self._embedding(x)))
        logits: torch.Tensor = self._last(self._dropout(states))
        return logits


def _batches(
    text: torch.Tensor, batch_size: int, length: int
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Sequences in a random order, each with the characters that come next."""
    starts = torch.randperm((len(text) - 1) // length) * length
    places = starts[:, None] + torch.arange(length)
    for rows in torch.split(places, batch_size):
        yield text[rows], text[rows + 1]


def _bits(model: nn.Module, text: torch.Tensor) -> float:
    model.eval()
    x, y = text[:-1].reshape(_VALID_ROWS, -1), text[1:].reshape(_VALID_ROWS, -1)
    with torch.no_grad():
        loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
    return float(loss) / math.log(2.0)


@cache
def _text() -> tuple[torch.Tensor, torch.Tensor]:
    """Characters to train on, and others to look at: of topics that take turns."""
    names = sorted(topics)
    trained = "".join(topics[name] for name in names if names.index(name) % 4)[: _N_TRAINED + 1]
    valid = "".join(topics[name] for name in names[::4])[: _N_VALID + 1]
    known = [each for each, _ in Counter(trained).most_common(_N_CHARACTERS - 1)]
    place = {character: place for place, character in enumerate(known, start=1)}

    def numbers(text: str) -> torch.Tensor:
        return torch.tensor([place.get(each, 0) for each in text])

    return numbers(trained), numbers(valid)
