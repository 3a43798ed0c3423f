"""The state of a training: copies, and checks that it can be loaded again."""

from __future__ import annotations

import contextlib
import io
import pickle
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any


def refuse_other_than_mapping(state: object) -> None:
    """Checks the type of a state.

    Raises:
        TypeError: If the state of a checkpoint is no mapping.
    """
    if not isinstance(state, Mapping):
        raise TypeError(
            f"save_checkpoint: the state is {state!r:.80}, but must be a dict. Write "
            'trial.save_checkpoint({"model": model.state_dict(), "epoch": epoch}, step).'
        )


def refuse_unloadable(file: Path | IO[bytes]) -> None:
    """Checks that a file can be loaded safely.

    Raises:
        TypeError: If it contains an object that `weights_only=True` does not load, such as a NumPy
            number.
    """
    import torch

    try:
        # With mmap the tensors themselves are not read.
        torch.load(file, map_location="cpu", weights_only=True, mmap=isinstance(file, Path))
    except pickle.UnpicklingError as error:
        raise TypeError(
            "save_checkpoint: the state holds something that cannot be loaded again safely. Save "
            "state dicts, tensors, numbers, strings and containers of them (float(x) for NumPy's "
            f"numbers). torch says: {str(error).splitlines()[0]}"
        ) from error


def refuse_unloadable_values(state: Mapping[str, Any]) -> None:
    """Like `refuse_unloadable` for all values except tensors, before a file is written.

    Raises:
        TypeError: If one of them could not be loaded.
    """
    import torch

    content = io.BytesIO()
    torch.save(replace_tensors(dict(state), lambda _: None), content)
    content.seek(0)
    refuse_unloadable(content)


@contextlib.contextmanager
def with_checksums() -> Iterator[None]:
    """Makes torch.save write checksums, whatever the program has set."""
    from torch import serialization

    # torch 2.4 and 2.5 always write them.
    read = getattr(serialization, "get_crc32_options", None)
    if read is None or read():
        yield
        return
    serialization.set_crc32_options(True)
    try:
        yield
    finally:
        serialization.set_crc32_options(False)


def copy_to_cpu(state: Any) -> Any:
    """A copy of the state, independent of later changes to its tensors."""
    return replace_tensors(state, lambda tensor: tensor.detach().to("cpu", copy=True))


def replace_tensors(value: Any, replace: Callable[[Any], object]) -> Any:
    """A copy of nested dicts, lists and tuples, with tensors replaced."""
    import torch

    if isinstance(value, torch.Tensor):
        return replace(value)
    if isinstance(value, dict):
        items = ((key, replace_tensors(each, replace)) for key, each in value.items())
        if not isinstance(value, OrderedDict):
            return dict(items)
        copy: Any = OrderedDict(items)
        # The versions of a model's layers, in what `state_dict()` gives.
        if (versions := getattr(value, "_metadata", None)) is not None:
            copy._metadata = versions
        return copy
    if type(value) in (list, tuple, set):
        return type(value)(replace_tensors(each, replace) for each in value)
    return value
