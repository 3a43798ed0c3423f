"""Checkpoints that ranks write together: whole or not there, for another number of ranks too."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard

from tests.integration.trials.ranks import run_ranks, values_of
from tuner import ddp
from tuner.trials.checkpoints import CheckpointFolder
from tuner.trials.context import TrialContext

# Beside the tests of the tuner itself, in one process with them, its ranks have ended at once.
pytestmark = pytest.mark.programs


def _split_model() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))
    split = fully_shard(model)
    return split, torch.optim.AdamW(split.parameters(), lr=0.1)


def _state(model: nn.Module, optimizer: torch.optim.Optimizer, epoch: int) -> dict[str, Any]:
    weights, moments = get_state_dict(model, optimizer)
    return {"model": weights, "optimizer": moments, "epoch": epoch, "names": ["a", "b"]}


def _whole_weights(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: each.full_tensor() for name, each in model.state_dict().items()}


def _train_and_save(trial: TrialContext) -> dict[str, torch.Tensor]:
    with ddp.group(trial):
        model, optimizer = _split_model()
        for epoch in (1, 2, 3):
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()
            trial.save_checkpoint(_state(model, optimizer, epoch), step=epoch, sharded=True)
            assert (trial.checkpoint_dir / f"step-{epoch}").is_dir()
        return _whole_weights(model)


def _go_on(trial: TrialContext) -> tuple[int, list[str], dict[str, torch.Tensor], float]:
    with ddp.group(trial):
        model, optimizer = _split_model()
        state = trial.load_checkpoint(into=_state(model, optimizer, 0))
        assert state is not None
        set_state_dict(
            model,
            optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
        )
        (moments, *_) = optimizer.state.values()
        return state["epoch"], state["names"], _whole_weights(model), float(moments["step"])


@pytest.mark.parametrize("n_later", [1, 2, 3])
def test_another_number_of_ranks_goes_on(tmp_path: Path, n_later: int) -> None:
    saved, _ = values_of(run_ranks(_train_and_save, tmp_path))
    names = {path.name for path in (tmp_path / "checkpoints").iterdir()}
    assert names == {"step-2", "step-3"}
    for epoch, words, weights, n_steps in values_of(
        run_ranks(_go_on, tmp_path, world_size=n_later)
    ):
        assert (epoch, words, n_steps) == (3, ["a", "b"], 3.0)
        assert all(torch.equal(weights[name], saved[name]) for name in saved)


def test_one_process_reads_all_of_it(tmp_path: Path) -> None:
    saved, _ = values_of(run_ranks(_train_and_save, tmp_path))
    state = CheckpointFolder(tmp_path / "checkpoints").load()
    assert state is not None
    assert state["epoch"] == 3
    assert all(torch.equal(state["model"][name], saved[name]) for name in saved)


# -- one process alone ---------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> CheckpointFolder:
    return CheckpointFolder(tmp_path / "checkpoints")


def _save(folder: CheckpointFolder, step: int) -> Path:
    return folder.save_sharded({"w": torch.full((50,), float(step)), "step": step}, step, rank=0)


def _loaded_steps(folder: CheckpointFolder) -> tuple[int | None, int | None]:
    """As whole, and into a state."""
    whole = folder.load()
    into = folder.load_into({"w": torch.zeros(50), "step": 0})
    return whole and whole["step"], into and into["step"]


def test_nested_values_come_back_as_they_were(folder: CheckpointFolder) -> None:
    state = {"a": {"b": [1, {"c": None, "d": "x"}], "t": torch.arange(3)}, "lr": 0.5, "ok": True}
    folder.save_sharded(state, 1, rank=0)
    loaded = folder.load()
    assert loaded is not None
    assert torch.equal(loaded["a"].pop("t"), state["a"].pop("t"))  # type: ignore[index,attr-defined]
    assert loaded == state


def test_same_step_again_replaces_the_folder(folder: CheckpointFolder) -> None:
    _save(folder, 1)
    folder.save_sharded({"w": torch.zeros(50), "step": 7}, 1, rank=0)
    assert _loaded_steps(folder) == (7, 7)
    assert [path.name for path in folder.path.iterdir()] == ["step-1"]


@pytest.mark.parametrize("name", [".metadata", "__0_0.distcp"])
@pytest.mark.parametrize("kept", [None, 0.0, 0.5, 0.99])
def test_torn_folder_is_skipped(folder: CheckpointFolder, name: str, kept: float | None) -> None:
    _save(folder, 1)
    file = _save(folder, 2) / name
    content = file.read_bytes()
    file.unlink()
    if kept is not None:
        file.write_bytes(content[: int(len(content) * kept)])
    assert _loaded_steps(folder) == (1, 1)


def test_folder_that_is_being_written_is_no_checkpoint(folder: CheckpointFolder) -> None:
    _save(folder, 1).rename(folder.path / "step-1.partial-1-ranks")
    assert _loaded_steps(folder) == (None, None)
    _save(folder, 2)
    assert _loaded_steps(folder) == (2, 2)


def test_what_a_save_of_the_same_attempt_left_is_removed(folder: CheckpointFolder) -> None:
    (folder.path / "step-2.partial-0-ranks").mkdir()
    (folder.path / "step-2.partial-0-ranks" / "__1_0.distcp").write_bytes(b"half")
    _save(folder, 2)
    assert [path.name for path in folder.path.iterdir()] == ["step-2"]
    assert not list((folder.path / "step-2").glob("__1*"))


def test_of_both_kinds_the_newest_counts(folder: CheckpointFolder) -> None:
    _save(folder, 1)
    folder.save({"step": 2}, 2)
    assert _loaded_steps(folder) == (2, 1)
    _save(folder, 3)
    assert _loaded_steps(folder) == (3, 3)
    assert {path.name for path in folder.path.iterdir()} == {"step-2.pt", "step-3"}


def test_state_of_another_shape_or_key_is_refused(folder: CheckpointFolder) -> None:
    _save(folder, 1)
    with pytest.raises(ValueError, match=r"[Ss]ize"):
        folder.load_into({"w": torch.zeros(51)})
    with pytest.raises(RuntimeError, match="bias"):
        folder.load_into({"bias": torch.zeros(50)})


def test_state_that_could_not_be_loaded_is_refused_before_it_is_written(
    folder: CheckpointFolder,
) -> None:
    _save(folder, 1)
    with pytest.raises(TypeError, match="cannot be loaded again safely"):
        folder.save_sharded({"best": Path("x")}, 2, rank=0)
    assert _loaded_steps(folder) == (1, 1)


class _Malicious:
    """Unpickling it would make a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return (Path.touch, (self.path,))


def test_nothing_is_executed_by_loading(folder: CheckpointFolder, tmp_path: Path) -> None:
    _save(folder, 1)
    evil = pickle.dumps(_Malicious(tmp_path / "executed"))
    (_save(folder, 2) / ".metadata").write_bytes(evil)
    assert _loaded_steps(folder) == (1, 1)
    assert not (tmp_path / "executed").exists()
