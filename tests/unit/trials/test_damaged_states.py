"""A state with a damaged sector is never loaded: the next older one is, then none, with a message.

512 bytes of zeros are what a bad sector, or a block that was never written back, leaves in a file.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch

from tuner.trials.checkpoints import CheckpointFolder

SECTOR_BYTES = 512
N_STATES = 60


def a_state(step: int) -> dict[str, Any]:
    """With a few layers, text and numbers; about 24 KiB."""
    generator = torch.Generator().manual_seed(step)
    layers = {f"layer{i}.weight": torch.randn(30, 30, generator=generator) for i in range(6)}
    return {"model": layers, "step": step, "names": [f"größe-{i}" for i in range(40)]}


def is_same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(is_same(one[k], other[k]) for k in one)
    return bool(one == other)


def zero_a_sector(file: Path, lot: random.Random) -> bool:
    """Gives whether that has changed anything."""
    content = bytearray(file.read_bytes())
    place = lot.randrange(0, len(content), SECTOR_BYTES)
    end = min(place + SECTOR_BYTES, len(content))
    is_changed = any(content[place:end])
    content[place:end] = bytes(end - place)
    file.write_bytes(content)
    return is_changed


def save(folder: CheckpointFolder, step: int, *, sharded: bool) -> Path:
    if sharded:
        return folder.save_sharded(a_state(step), step, rank=0)
    return folder.save(a_state(step), step)


@pytest.mark.slow
@pytest.mark.parametrize("sharded", [False, True])
def test_none_of_many_damaged_states_is_loaded(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], sharded: bool
) -> None:
    lot = random.Random(0)
    n_skipped = 0
    for number in range(N_STATES):
        folder = CheckpointFolder(tmp_path / f"{number}")
        save(folder, 1, sharded=sharded)
        newest = save(folder, 2, sharded=sharded)
        files = sorted(each for each in newest.iterdir()) if sharded else [newest]
        is_changed = zero_a_sector(lot.choice(files), lot)
        loaded = folder.load()
        assert loaded is not None, "the older one was there"
        # A sector may lie between the parts of a file, where nothing is.
        assert is_same(loaded, a_state(loaded["step"])), f"state {number} is wrong"
        if loaded["step"] == 1:
            assert is_changed
            n_skipped += 1
            assert f"Checkpoint {newest} is damaged" in capfd.readouterr().err
    assert n_skipped > N_STATES / 2


@pytest.mark.slow
def test_a_state_is_filled_by_an_older_one_where_the_newest_is_damaged(tmp_path: Path) -> None:
    for number in range(20):
        folder = CheckpointFolder(tmp_path / f"{number}")
        save(folder, 1, sharded=True)
        newest = save(folder, 2, sharded=True)
        (file,) = newest.glob("*.distcp")
        zero_a_sector(file, random.Random(number))
        state = folder.load_into(a_state(0))
        assert state is not None
        assert is_same(state, a_state(state["step"]))


def test_where_all_are_damaged_there_is_none_and_it_is_told(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = CheckpointFolder(tmp_path)
    told: list[tuple[list[str], int | None]] = []
    folder.on_damage = lambda paths, step: told.append(([path.name for path in paths], step))
    for step in (1, 2):
        file = save(folder, step, sharded=False)
        content = file.read_bytes()
        file.write_bytes(content[:2048] + bytes(8192) + content[10240:])
    assert folder.load() is None
    assert told == [(["step-2.pt", "step-1.pt"], None)]
    assert "training starts from the beginning" in capfd.readouterr().err


def test_any_error_of_a_file_leads_to_the_one_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = CheckpointFolder(tmp_path)
    save(folder, 1, sharded=False)
    save(folder, 2, sharded=False)
    load = torch.load

    def fails_once(path: Path, **options: Any) -> Any:
        if path.name == "step-2.pt":
            raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")
        return load(path, **options)

    monkeypatch.setattr(torch, "load", fails_once)
    loaded = folder.load()
    assert loaded is not None
    assert loaded["step"] == 1


def test_states_of_a_program_that_writes_no_checksums(tmp_path: Path) -> None:
    """What the tuner writes has them all the same; what the program writes is not refused."""
    options = torch.serialization.get_crc32_options()
    folder = CheckpointFolder(tmp_path)
    torch.serialization.set_crc32_options(False)
    try:
        own = save(folder, 1, sharded=False)
        assert torch.serialization.get_crc32_options() is False
        torch.save(a_state(2), tmp_path / "step-2.pt")
    finally:
        torch.serialization.set_crc32_options(options)
    loaded = folder.load()
    assert loaded is not None
    assert loaded["step"] == 2
    (tmp_path / "step-2.pt").unlink()
    content = own.read_bytes()
    own.write_bytes(content[:4096] + bytes(4096) + content[8192:])
    assert folder.load() is None
