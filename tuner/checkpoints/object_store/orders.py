"""The protocol between the dispatcher and the transfer process: JSON, one line per message."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Self


class Work(Enum):
    """Kinds of requests."""

    #: Whether objects can be written: the text `path` becomes the object `key`.
    CHECK = "check"
    #: The checkpoint or log at `path` becomes `key`.
    PUT = "put"
    #: The checkpoint `key` becomes a checkpoint in the folder `path`.
    GET = "get"
    #: The objects of `key` are removed.
    DELETE = "delete"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One piece of work."""

    id: int
    work: Work
    key: str
    path: str = ""
    #: Modification time of the checkpoint to upload; if it differs, the checkpoint has been
    #: replaced.
    written_at_ns: int = 0
    size_bytes: int = 0

    def to_line(self) -> bytes:
        """For a pipe."""
        return f"{json.dumps({**asdict(self), 'work': self.work.value})}\n".encode()

    @classmethod
    def from_line(cls, line: bytes) -> Self:
        """The inverse of `to_line`."""
        content = json.loads(line)
        return cls(**{**content, "work": Work(content["work"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The reply to a request."""

    id: int
    #: Key of the written object; for a folder, of the object that lists its files.
    key: str = ""
    size_bytes: int = 0
    #: Empty on success.
    problem: str = ""
    #: Whether the same order may succeed later.
    is_temporary: bool = False
    #: Whether the file to upload no longer exists.
    is_gone: bool = False

    def to_line(self) -> bytes:
        """For a pipe."""
        return f"{json.dumps(asdict(self))}\n".encode()

    @classmethod
    def from_line(cls, line: bytes) -> Self:
        """The inverse of `to_line`."""
        return cls(**json.loads(line))
