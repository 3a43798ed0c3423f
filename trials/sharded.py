"""Checkpoints that all ranks of a trial write and read together, each its own parts.

The format is that of torch.distributed.checkpoint, so that its own functions read it too, and
another number of ranks can continue from it. Unlike those functions, this module unpickles only
tensors, plain values and the format's own records.
"""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import warnings
import zlib
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata
from torch.distributed.checkpoint.planner import LoadPlanner, ReadItem
from torch.distributed.checkpoint.state_dict_saver import save

from tuner.checkpoints import layout
from tuner.trials.saving.folders import rename
from tuner.trials.saving.states import refuse_unloadable_values, with_checksums

#: File with the checksum of the metadata.
_CHECKSUM_NAME = ".metadata.crc32"
_RECORDS_MODULE = "torch.distributed.checkpoint.metadata"
_PLAIN_NAMES = {
    *(("collections", "OrderedDict"), ("builtins", "set"), ("builtins", "frozenset")),
    *(("torch", "Size"), ("torch", "device"), ("torch.serialization", "_get_layout")),
    ("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
    *(("pathlib", "PosixPath"), ("pathlib._local", "PosixPath")),
}


# -- saving --------------------------------------------------------------------------------------


def save_sharded(state: dict[str, Any], final: Path, writer: str, *, is_main: bool) -> None:
    """Writes a temporary folder; when all ranks are done, rank 0 renames it.

    Args:
        state: State of this rank; tensors split over ranks are DTensors.
        final: The folder, the same on each rank.
        writer: Distinguishes writers of one folder, the same on each rank.
        is_main: Whether this is rank 0.

    Raises:
        TypeError: If the state contains something that could not be loaded safely.
        OSError, RuntimeError: If a rank cannot write; torch's CheckpointException is one of these.
    """
    refuse_unloadable_values(state)
    partial = layout.partial_of(final, writer)
    if is_main:
        # Of an earlier save of the same attempt that raised.
        layout.remove(partial)
        partial.mkdir(parents=True)
    meet()
    with warnings.catch_warnings():
        # torch warns a single process that it is alone.
        warnings.simplefilter("ignore", UserWarning)
        with with_checksums():
            save(state, storage_writer=FileSystemWriter(partial, sync_files=True))
    if is_main:
        _write_checksum(partial)
        rename(partial, final, layout.replaced_of(final, writer))
    meet()


def _write_checksum(partial: Path) -> None:
    """Writes the checksum of the metadata, which has none; the ranks' files have their own."""
    content = (partial / layout.METADATA_NAME).read_bytes()
    with (partial / _CHECKSUM_NAME).open("w") as file:
        file.write(f"{zlib.crc32(content):08x}\n")
        file.flush()
        os.fsync(file.fileno())


def meet() -> None:
    """Waits for the other ranks, if there is a process group."""
    if dist.is_available() and dist.is_initialized():
        dist.barrier()


# -- loading -------------------------------------------------------------------------------------


def check(folder: Path) -> None:
    """Reads all of a checkpoint and compares its checksums: the same answer on every rank.

    Raises:
        OSError: If a file is not there.
        RuntimeError: If it is damaged. Damage may also raise anything that unpickling raises.
    """
    record = (folder / layout.METADATA_NAME).read_bytes()
    with contextlib.suppress(FileNotFoundError):  # Of an older version, or of a program's own.
        if (folder / _CHECKSUM_NAME).read_text().strip() != f"{zlib.crc32(record):08x}":
            raise RuntimeError(f"{layout.METADATA_NAME} is not as it was written")
    for info in _Reader(folder).read_metadata().storage_data.values():
        with (folder / info.relative_path).open("rb") as file:
            file.seek(info.offset)
            content = file.read(info.length)
        if len(content) < info.length:
            raise RuntimeError(f"{info.relative_path} is cut off")
        # Each part is a whole file of torch.save.
        if damage := layout.damage_of(io.BytesIO(content)):
            raise RuntimeError(f"{info.relative_path}: {damage}")


def load_into(folder: Path, state: dict[str, Any]) -> None:
    """Fills the tensors of a state, and replaces its other values; each rank reads its parts.

    Ranks do not wait for each other here.

    Raises:
        RuntimeError: If a key of it is not in the checkpoint.
        ValueError: If a tensor has another shape there.
    """
    _read(_Reader(folder), _Planner(), state)


def load_whole(folder: Path) -> dict[str, Any]:
    """All of a state, put together on the CPU by this process alone.

    Raises:
        OSError: If a file is not there.
        RuntimeError: If it is damaged. Damage may also raise anything that unpickling raises.
    """
    check(folder)
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
    """Like `dcp.load`, without communication between ranks: their plans are independent."""
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
        with (Path(self.path) / layout.METADATA_NAME).open("rb") as file:
            metadata = _MetadataUnpickler(file).load()
        if not isinstance(metadata, Metadata):
            raise pickle.UnpicklingError(f"{self.path} holds no record of a checkpoint.")
        return metadata


class _MetadataUnpickler(pickle.Unpickler):
    """Unpickles only the format's own records: a pickle may call anything."""

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
