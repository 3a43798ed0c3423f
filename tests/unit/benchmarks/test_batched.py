"""Many networks trained at once: each as if it were alone."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import nn

from benchmarks.search_quality.record import __main__ as record
from benchmarks.search_quality.record import batched, perceptron
from benchmarks.search_quality.record.batched import Network, Split, train_all
from benchmarks.search_quality.record.job import SCHEDULES

CPU = torch.device("cpu")


def blobs(n: int = 48) -> Split:
    """Three classes of four numbers that a network tells apart after a few epochs."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(2 * n) % 3
    x = torch.randn((2 * n, 4), generator=generator) + 2.0 * nn.functional.one_hot(y, 4)
    return Split(x=x[:n], y=y[:n], x_valid=x[n:], y_valid=y[n:], n_classes=3)


def network(**fields: object) -> Network:
    usual: Mapping[str, object] = {
        "batch_size": 48,
        "learning_rate": 0.1,
        "momentum": 0.9,
        "weight_decay": 0.01,
        "widths": [8, 5],
        "dropouts": [0.0, 0.0],
    }
    return Network(**{**usual, **fields})  # type: ignore[arg-type]


def as_module(group: batched._Group, place: int, widths: list[int]) -> nn.Sequential:
    """The network at a place of a group, without its padding."""
    layers: list[nn.Module] = []
    for (inputs, outputs), (weights, biases) in zip(
        itertools.pairwise(widths), group._layers, strict=True
    ):
        layer = nn.Linear(inputs, outputs)
        layer.weight.data = weights[place, :inputs, :outputs].detach().T.clone()
        layer.bias.data = biases[place, 0, :outputs].detach().clone()
        layers += [layer, nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def test_each_is_trained_as_torch_trains_it_alone() -> None:
    split = blobs()
    networks = [
        network(),
        network(widths=[20, 3], learning_rate=0.02, momentum=0.5, weight_decay=0.1),
    ]
    group = batched._Group(networks, split, torch.Generator().manual_seed(1))
    alone = [as_module(group, place, [4, *each.widths, 3]) for place, each in enumerate(networks)]
    optimizers = [
        torch.optim.SGD(
            module.parameters(),
            lr=each.learning_rate,
            momentum=each.momentum,
            weight_decay=each.weight_decay,
        )
        for module, each in zip(alone, networks, strict=True)
    ]
    # All examples are one batch, so that their order says nothing.
    for _ in range(5):
        group.epoch(1.0)
        for module, optimizer in zip(alone, optimizers, strict=True):
            optimizer.zero_grad()
            nn.functional.cross_entropy(module(split.x), split.y).backward()
            optimizer.step()
    for place, (module, each) in enumerate(zip(alone, networks, strict=True)):
        trained = as_module(group, place, [4, *each.widths, 3])
        for ours, theirs in zip(trained.parameters(), module.parameters(), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_padding_stays_zero() -> None:
    group = batched._Group(
        [network(widths=[3, 2], dropouts=[0.5, 0.2]), network(widths=[9, 7])],
        blobs(),
        torch.Generator().manual_seed(1),
    )
    group.epoch(1.0)
    (first, first_bias), (second, _), (last, _) = group._layers
    assert first[0, :, 3:].abs().max() == 0.0 == first_bias[0, :, 3:].abs().max()
    assert second[0, 3:].abs().max() == 0.0 == second[0, :, 2:].abs().max()
    assert last[0, 2:].abs().max() == 0.0
    assert first[0, :, :3].abs().min() > 0.0


def test_what_is_left_out_is_only_left_out_in_training() -> None:
    split = blobs()
    group = batched._Group(
        [network(dropouts=[1.0, 0.0]), network(dropouts=[0.0, 0.0])],
        split,
        torch.Generator().manual_seed(1),
    )
    both = split.x.expand(2, -1, -1)
    trained, looked_at = (group._outputs(both, is_training=each) for each in (True, False))
    # Without its first layer a network says the same of all examples.
    assert trained[0].std(dim=0).max() < 1e-6 < looked_at[0].std(dim=0).min()
    torch.testing.assert_close(trained[1], looked_at[1])


def test_all_come_back_at_their_places() -> None:
    learning = [network(batch_size=16, widths=[20 * i], dropouts=[0.0]) for i in range(1, 5)]
    still = [
        network(batch_size=size, learning_rate=0.0, widths=[8] * n, dropouts=[0.0] * n)
        for size in (8, 16)
        for n in (1, 2)
    ]
    networks = [each for pair in zip(learning, still, strict=True) for each in pair]
    found = dict(train_all(networks, blobs(), n_epochs=8, schedule=lambda _: 1.0, seed=3))
    assert sorted(found) == list(range(8))
    for place, accuracies in found.items():
        assert len(accuracies) == 8
        if place % 2:
            assert len(set(accuracies)) == 1
        else:
            assert accuracies[-1] > 80.0


def test_the_schedule_is_followed() -> None:
    group = batched._Group([network(weight_decay=0.0)], blobs(), torch.Generator().manual_seed(0))
    weights = group._layers[0][0]
    seen = [weights.detach().clone()]
    for factor in (1.0, 0.0, 0.1):
        group.epoch(factor)
        seen.append(weights.detach().clone())
    moved = [float((after - before).norm()) for before, after in pairwise(seen)]
    assert moved[0] > moved[2] > moved[1] == 0.0
    asked: list[int] = []

    def schedule(epoch: int) -> float:
        asked.append(epoch)
        return 1.0

    list(train_all([network()], blobs(), n_epochs=3, schedule=schedule, seed=0))
    assert asked == [0, 1, 2]


def test_what_was_not_trained_on_is_looked_at() -> None:
    split = blobs()
    wrong = replace(split, y_valid=(split.y_valid + 1) % 3)
    ((_, accuracies),) = train_all(
        [network(batch_size=8, widths=[40], dropouts=[0.0])],
        wrong,
        n_epochs=8,
        schedule=lambda _: 1.0,
        seed=0,
    )
    assert accuracies[-1] < 20.0


def test_what_is_left_out_is_made_up_for_by_the_rest() -> None:
    split = blobs()
    group = batched._Group(
        [network(widths=[4000], dropouts=[0.5])], split, torch.Generator().manual_seed(1)
    )
    rows = split.x[None]
    trained, looked_at = (group._outputs(rows, is_training=each) for each in (True, False))
    slope = (trained * looked_at).sum() / (looked_at * looked_at).sum()
    assert float(slope.detach()) == pytest.approx(1.0, abs=0.3)


def test_a_group_that_is_too_large_is_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    networks = [network(widths=[8, 5]) for _ in range(5)]
    assert [len(each) for each in batched._groups(networks, blobs())] == [5]
    monkeypatch.setattr(batched, "_LARGEST_OUTPUT", 2 * 48 * 8)
    assert [len(each) for each in batched._groups(networks, blobs())] == [2, 2, 1]


@pytest.mark.parametrize(
    ("name", "factors"), [("steps", [1.0, 1.0, 1.0, 0.1, 0.01]), ("cosine", [1.0, 0.905])]
)
def test_schedules(name: str, factors: list[float]) -> None:
    found = [SCHEDULES[name](epoch, 5) for epoch in range(len(factors))]
    assert found == pytest.approx(factors, abs=1e-3)


def test_a_table_names_the_batch_size_that_was_trained_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    args = argparse.Namespace(data="cancer", schedule="steps", seed=0, configurations=6, epochs=2)
    todo = record.jobs(args)
    trained_with: list[int] = []

    def train_all(networks: Sequence[Network], *others: Any, **more: Any) -> Iterator[Any]:
        trained_with.extend(each.batch_size for each in networks)
        return batched.train_all(networks, *others, **more)

    monkeypatch.setattr(perceptron, "train_all", train_all)
    done = [*perceptron.train_together(todo, CPU)]
    assert sorted(trained_with) == sorted(int(job.params["batch_size"]) for job, _ in done)
    sizes = {job.params["batch_size"] for job, _ in done}
    assert sizes <= {16, 32, 64, 128, 256, 512}
    assert {job.params["learning_rate"] for job, _ in done} == {
        job.params["learning_rate"] for job in todo
    }
    for _, trained in done:
        assert len(trained.values) == len(trained.seconds) == 2
        assert 0.0 < trained.seconds[0] < trained.seconds[1]
