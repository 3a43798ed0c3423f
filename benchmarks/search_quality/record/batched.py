"""Many multilayer perceptrons trained at once on one device, each with hyperparameters of its own.

Small networks use a small part of a GPU. Networks with the same number of layers and the same batch
size are stacked: a layer is one batched matrix product. Narrow networks are padded with units whose
weights are zero, and stay zero (the gradient of ReLU at 0 is 0 in torch).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import nn

#: Numbers that a group of networks may take for the outputs of its widest layer, 4 bytes each.
_LARGEST_OUTPUT = 2**28
#: Networks of a group, however small they are.
_LARGEST_GROUP = 512
#: Widest to narrowest network of a group: padding costs less than a group of its own.
_SPREAD = 3.0


@dataclass(frozen=True, kw_only=True)
class Split:
    """Examples to train on, and others to look at.

    Attributes:
        x: [n, n_inputs]
        y: [n], classes.
        x_valid: [n_valid, n_inputs]
        y_valid: [n_valid]
        n_classes: Also the number of outputs.
    """

    x: torch.Tensor
    y: torch.Tensor
    x_valid: torch.Tensor
    y_valid: torch.Tensor
    n_classes: int

    def on(self, device: torch.device) -> Split:
        return Split(
            x=self.x.to(device),
            y=self.y.to(device),
            x_valid=self.x_valid.to(device),
            y_valid=self.y_valid.to(device),
            n_classes=self.n_classes,
        )


@dataclass(frozen=True, kw_only=True)
class Network:
    """One network and how it is trained.

    Attributes:
        widths: Of the hidden layers, from the first.
        dropouts: [len(widths)], the share of each hidden layer's units that is left out.
    """

    batch_size: int
    learning_rate: float
    momentum: float
    weight_decay: float
    widths: Sequence[int]
    dropouts: Sequence[float]


#: The factor of the learning rate in an epoch, from 0.
Schedule = Callable[[int], float]


def train_all(
    networks: Sequence[Network],
    split: Split,
    *,
    n_epochs: int,
    schedule: Schedule,
    seed: int,
) -> Iterator[tuple[int, list[float]]]:
    """Trains all of them with SGD, and yields each as it ends.

    Args:
        seed: Of all weights, orders and dropouts together: in another group, a network gets other
            numbers.

    Yields:
        The place of a network, and [n_epochs] its accuracies after each epoch, in percent.
    """
    generator = torch.Generator(split.x.device).manual_seed(seed)
    for places in _groups(networks, split):
        group = _Group([networks[place] for place in places], split, generator)
        accuracies = torch.stack([group.epoch(schedule(epoch)) for epoch in range(n_epochs)], dim=1)
        yield from zip(places, accuracies.cpu().tolist(), strict=True)


def _groups(networks: Sequence[Network], split: Split) -> Iterator[list[int]]:
    """Places of networks that are trained together: alike, and of similar width."""

    def kind(place: int) -> tuple[int, int]:
        return networks[place].batch_size, len(networks[place].widths)

    def width(place: int) -> int:
        return max(networks[place].widths)

    n_rows = max(len(split.x_valid), len(split.x))
    in_order = sorted(range(len(networks)), key=lambda place: (kind(place), width(place)))
    for _, alike in itertools.groupby(in_order, kind):
        group: list[int] = []
        for place in alike:
            # The widest of the group is the last one.
            is_full = (len(group) + 1) * n_rows * width(place) > _LARGEST_OUTPUT
            is_wider = group and width(place) > _SPREAD * width(group[0])
            if group and (is_full or is_wider or len(group) == _LARGEST_GROUP):
                yield group
                group = []
            group.append(place)
        yield group


class _Group:
    """Networks with as many layers and as large a batch, stacked along the first dimension."""

    def __init__(self, networks: Sequence[Network], split: Split, generator: torch.Generator):
        self._split, self._generator = split, generator
        self._n, self._batch_size = len(networks), networks[0].batch_size
        device = split.x.device
        self._learning_rate, self._momentum, self._weight_decay = (
            _column([getattr(each, name) for each in networks], device)
            for name in ("learning_rate", "momentum", "weight_decay")
        )
        #: [n, 1, 1] of each hidden layer.
        self._dropouts = [
            _column(several, device)
            for several in zip(*(each.dropouts for each in networks), strict=True)
        ]
        widths = [[split.x.shape[1], *each.widths, split.n_classes] for each in networks]
        #: Weights and biases of each layer.
        self._layers = [
            self._layer(inputs, outputs)
            for inputs, outputs in itertools.pairwise(zip(*widths, strict=True))
        ]
        self._parameters = [each for layer in self._layers for each in layer]
        self._velocities = [torch.zeros_like(each) for each in self._parameters]

    def _layer(
        self, inputs: Sequence[int], outputs: Sequence[int]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """[n, inputs, outputs] weights and [n, 1, outputs] biases, as `nn.Linear` draws them."""
        device = self._split.x.device
        bound = _column(inputs, device) ** -0.5
        rows = _within(inputs, device)[:, :, None]
        columns = _within(outputs, device)[:, None, :]

        def drawn(kept: torch.Tensor) -> torch.Tensor:
            uniform = torch.rand(kept.shape, generator=self._generator, device=device)
            return ((2.0 * uniform - 1.0) * bound * kept).requires_grad_()

        return drawn(rows & columns), drawn(columns)

    def epoch(self, factor: float) -> torch.Tensor:
        """Trains for an epoch, each in an order of its own; [n] accuracies after it."""
        x, y = self._split.x, self._split.y
        drawn = torch.rand((self._n, len(x)), generator=self._generator, device=x.device)
        orders = drawn.argsort(dim=1)
        for first in range(0, len(x), self._batch_size):
            rows = orders[:, first : first + self._batch_size]
            self._step(x[rows], y[rows], factor)
        with torch.no_grad():
            outputs = self._outputs(self._split.x_valid.expand(self._n, -1, -1), is_training=False)
            right = outputs.argmax(dim=2) == self._split.y_valid
        return 100.0 * right.double().mean(dim=1)

    def _step(self, x: torch.Tensor, y: torch.Tensor, factor: float) -> None:
        outputs = self._outputs(x, is_training=True)
        losses = nn.functional.cross_entropy(outputs.flatten(0, 1), y.flatten(), reduction="none")
        # The mean over the batch of each; their sum has each one's own gradient.
        slopes = torch.autograd.grad(losses.sum() / x.shape[1], self._parameters)
        with torch.no_grad():
            for parameter, velocity, slope in zip(
                self._parameters, self._velocities, slopes, strict=True
            ):
                velocity.mul_(self._momentum).add_(slope + self._weight_decay * parameter)
                parameter.sub_(factor * self._learning_rate * velocity)

    def _outputs(self, x: torch.Tensor, *, is_training: bool) -> torch.Tensor:
        """[n, n_rows, n_classes] of [n, n_rows, n_inputs]."""
        *hidden, (last_weights, last_biases) = self._layers
        for (weights, biases), dropout in zip(hidden, self._dropouts, strict=True):
            x = torch.baddbmm(biases, x, weights).relu()
            if is_training:
                drawn = torch.rand(x.shape, generator=self._generator, device=x.device)
                x = torch.where(drawn < dropout, 0.0, x / (1.0 - dropout).clamp(min=1e-6))
        return torch.baddbmm(last_biases, x, last_weights)


def _column(numbers: Sequence[float], device: torch.device) -> torch.Tensor:
    """[n, 1, 1]"""
    return torch.tensor(numbers, dtype=torch.float32, device=device)[:, None, None]


def _within(widths: Sequence[int], device: torch.device) -> torch.Tensor:
    """[n, max(widths)], whether a unit is one of the network, not of its padding."""
    places = torch.arange(max(widths), device=device)
    return places < torch.tensor(widths, device=device)[:, None]
