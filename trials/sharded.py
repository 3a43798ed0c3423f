"""Checkpoints that all ranks of a trial write and read together, each its own parts.

The format is that of torch.distributed.checkpoint, so that its own functions read it too, and
another number of ranks can go on from it. Unlike those functions, nothing here unpickles more than
tensors, plain values and the format's own records.
"""

from __future__ import annotations

import io
import os
import pickle
import shutil
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata
from torch.distributed.checkpoint.planner import LoadPlanner, ReadItem
from torch.distributed.checkpoint.state_dict_saver import save

from trials.states import refuse_unloadable_values
from tuner import checkpoint_files

_RECORDS_MODULE = "torch.distributed.checkpoint.metadata"
_PLAIN_NAMES = {
    *(("collections", "OrderedDict"), ("builtins", "set"), ("builtins", "frozenset")),
    *(("torch", "Size"), ("torch", "device"), ("torch.serialization", "_get_layout")),
    ("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
    *(("pathlib", "PosixPath"), ("pathlib._local", "PosixPath")),
}


# -- saving --------------------------------------------------------------------------------------


def save_sharded(state: dict[str, Any], final: Path, *, is_main: bool) -> None:
    """Writes beside the final name; when all ranks are done, rank 0 renames.

    Args:
        state: Of this rank; tensors that are split over ranks are DTensors.
        final: The folder, the same on each rank.
        is_main: Whether this is rank 0.

    Raises:
        TypeError: If the state holds what could not be loaded safely.
        OSError, RuntimeError: If a rank cannot write; torch's CheckpointException is one of them.
    """
    refuse_unloadable_values(state)
    partial = final.with_name(f"{final.name}.partial")
    if is_main:
        for left in checkpoint_files.leftovers(final.parent):
            shutil.rmtree(left) if left.is_dir() else left.unlink(missing_ok=True)
        partial.mkdir(parents=True)
    _meet()
    with warnings.catch_warnings():
        # One process alone is told that it is alone.
        warnings.simplefilter("ignore", UserWarning)
        save(state, storage_writer=FileSystemWriter(partial, sync_files=True))
    if is_main:
        _rename(partial, final)
    _meet()


def _rename(partial: Path, final: Path) -> None:
    checkpoint_files.sync_folder(partial)
    os.utime(partial)
    replaced = final.with_name(f"{final.name}.replaced")
    if final.exists():
        final.rename(replaced)
    partial.rename(final)
    checkpoint_files.sync_folder(final.parent)
    shutil.rmtree(replaced, ignore_errors=True)


def _meet() -> None:
    if dist.is_available() and dist.is_initialized():
        dist.barrier()


# -- loading -------------------------------------------------------------------------------------


def is_complete(folder: Path) -> bool:
    """Whether each file is there and as long as the record says: the same answer on every rank."""
    try:
        stored = _Reader(folder).read_metadata().storage_data
        for info in stored.values():
            if (folder / info.relative_path).stat().st_size < info.offset + info.length:
                return False
    except (OSError, EOFError, pickle.UnpicklingError, AttributeError, ValueError):
        return False
    return True


def load_into(folder: Path, state: dict[str, Any]) -> None:
    """Fills the tensors of a state, and replaces its other values; each rank reads its parts.

    No rank waits for another here.

    Raises:
        RuntimeError: If a key of it is not in the checkpoint.
        ValueError: If a tensor has another shape there.
    """
    _read(_Reader(folder), _Planner(), state)


def load_whole(folder: Path) -> dict[str, Any]:
    """All of a state, put together on the CPU by this process alone.

    Raises:
        OSError, RuntimeError, EOFError, pickle.UnpicklingError: If it is torn.
    """
    if not is_complete(folder):
        raise RuntimeError(f"{folder} is not whole.")
    reader = _Reader(folder)
    metadata = reader.read_metadata()
    state: dict[str, Any] = {}
    for key, stored in metadata.state_dict_metadata.items():
        value = None
        if isinstance(stored, TensorStorageMetadata):
            value = torch.empty(stored.size, dtype=stored.properties.dtype)
        _put(state, (metadata.planner_data or {}).get(key, (key,)), value)
    _read(reader, _Planner(), state)
    return state


def _read(reader: FileSystemReader, planner: LoadPlanner, state: dict[str, Any]) -> None:
    """What `dcp.load` does, without a word to other ranks: their plans do not depend on ours."""
    metadata = reader.read_metadata()
    planner.set_up_planner(state, metadata, is_coordinator=True)
    reader.set_up_storage_reader(metadata, is_coordinator=True)
    plan = reader.prepare_local_plan(planner.create_local_plan())
    reader.read_data(planner.finish_plan(plan), planner).wait()


def _put(state: dict[str, Any], path: tuple[str | int, ...], value: object) -> None:
    """Into nested dicts and lists: an int of a path counts in a list, as torch writes it."""
    place: Any = state
    for part, following in zip(path, (*path[1:], None), strict=True):
        new = value if following is None else [] if isinstance(following, int) else {}
        if isinstance(place, list):
            assert isinstance(part, int)
            place.extend([None] * (part + 1 - len(place)))
            if following is None or place[part] is None:
                place[part] = new
        elif following is None or part not in place:
            place[part] = new
        place = place[part]


class _Planner(DefaultLoadPlanner):
    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        loaded = torch.load(value, weights_only=True)
        _put(self.original_state_dict, self.mappings[read_item.dest_index.fqn], loaded)


class _Reader(FileSystemReader):
    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        with (Path(self.path) / checkpoint_files.METADATA_NAME).open("rb") as file:
            metadata = _MetadataUnpickler(file).load()
        if not isinstance(metadata, Metadata):
            raise pickle.UnpicklingError(f"{self.path} holds no record of a checkpoint.")
        return metadata


class _MetadataUnpickler(pickle.Unpickler):
    """Makes the format's own records, and nothing else: a pickle may call anything."""

    def find_class(self, module: str, name: str) -> Any:
        is_record = module == _RECORDS_MODULE and "." not in name
        if not (is_record or (module, name) in _PLAIN_NAMES or _is_torch_type(module, name)):
            raise pickle.UnpicklingError(f"{module}.{name} does not belong in a checkpoint.")
        found = super().find_class(module, name)
        if is_record and not (isinstance(found, type) and found.__module__ == module):
            raise pickle.UnpicklingError(f"{module}.{name} does not belong in a checkpoint.")
        return found


def _is_torch_type(module: str, name: str) -> bool:
    return module == "torch" and isinstance(getattr(torch, name, None), torch.dtype)
