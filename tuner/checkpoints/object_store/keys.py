"""Names of objects: one name is one content, so that no object is ever overwritten."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tuner.checkpoints.object_store.address import StoreAddress
from tuner.checkpoints.paths import StudyFiles

#: Lists the files of a checkpoint that is a folder; written last.
MANIFEST = "tuner-manifest.json"
_STAMPED = re.compile(r"(?P<name>step--?\d+)\.(?P<stamp>[0-9a-f]+)(?P<end>\.pt)?(/.*)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreKeys:
    """Names of the objects of one study.

    Args:
        address: Address of the store.
        files: Paths of the study on disk: the folder's name is used here, too.
        study_id: Random id of the study: another study of this name has other objects.
    """

    address: StoreAddress
    files: StudyFiles
    study_id: str

    @property
    def root(self) -> str:
        """Common prefix of the study's object names, up to the last slash."""
        name = f"{self.files.root.name}-{self.study_id[:12]}"
        return f"{self.address.prefix}/{name}" if self.address.prefix else name

    def checkpoint(self, trial: int, attempt: int, name: str, written_at_ns: int) -> str:
        """The key of a checkpoint file, or the prefix for a checkpoint folder.

        Args:
            trial: Number of the trial.
            attempt: Number of the attempt.
            name: The checkpoint's name on disk.
            written_at_ns: Its modification time. An attempt may save one step twice.
        """
        stem, dot, end = name.partition(".")
        return f"{self._attempt(trial, attempt)}/{stem}.{written_at_ns:x}{dot}{end}"

    def log(self, trial: int, attempt: int, name: str) -> str:
        """For the log of an attempt that has ended."""
        return f"{self._attempt(trial, attempt)}/{name}"

    def _attempt(self, trial: int, attempt: int) -> str:
        return f"{self.root}/trial-{trial}/attempt-{attempt}"


def is_folder(key: str) -> bool:
    """Whether an object is the list of a checkpoint that is a folder."""
    return key.endswith(f"/{MANIFEST}")


def local_name(key: str) -> tuple[str, int]:
    """The local name of a checkpoint, and its modification time in nanoseconds.

    Raises:
        ValueError: If the key is not that of a checkpoint.
    """
    last = key.removesuffix(f"/{MANIFEST}").rpartition("/")[2]
    found = _STAMPED.fullmatch(last)
    if found is None:
        raise ValueError(f"{key} does not name a checkpoint")
    return found["name"] + (found["end"] or ""), int(found["stamp"], 16)
