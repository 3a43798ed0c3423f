"""`checkpoints`: which checkpoints of its trials a study keeps."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import Field, PlainValidator, WithJsonSchema

from tuner.checkpoints.object_store.address import StoreAddress, read_address
from tuner.config.model import Model
from tuner.config.notation.fields import Size, WholeNumber

_BEST = re.compile(r"best\s+([1-9]\d*)")
_ALL = "all"
_STORE = {
    "title": "URL of a bucket",
    "type": "string",
    "pattern": r"^\s*(s3|s3a|gs|gcs|az|azure|abfs|abfss)://[^/@?#]+(/[^?#]*)?$",
}
_KEEP = {"title": "all or best N", "type": "string", "pattern": r"^\s*(all|best\s+[1-9]\d*)\s*$"}


def read_keep(value: object) -> int | None:
    """`all` is None, `best 3` is 3.

    Raises:
        ValueError: If it is neither; to be read after the key.
    """
    text = value.strip() if isinstance(value, str) else ""
    if text == _ALL:
        return None
    best = _BEST.fullmatch(text)
    if best is None:
        hint = f" Write: best {value}." if type(value) is int and value > 0 else ""
        raise ValueError(
            f"is {value!r}, but must be 'all', or 'best' and a number of trials, such as "
            f"best 3.{hint}"
        )
    return int(best[1])


class CheckpointsConfig(Model):
    """Which checkpoints are kept; those of unfinished trials and of the best always are."""

    #: None: every trial.
    n_best: Annotated[int | None, PlainValidator(read_keep), WithJsonSchema(_KEEP)] = Field(
        default=_ALL,
        validate_default=True,
        alias="keep",
        description="Which completed trials keep their checkpoints: `all`, or the best ones, such "
        "as `best 3`.",
        examples=["best 3"],
    )
    newest: Annotated[WholeNumber, Field(ge=1)] = Field(
        default=2, description="Number of checkpoints kept of one trial.", examples=[1]
    )
    max_disk_bytes: Size | None = Field(
        default=None,
        alias="max_disk",
        description="Disk space for the checkpoints of all trials together. Those of failed "
        "and pruned trials are removed first, then those of the worst completed ones.",
        examples=["50GiB"],
    )
    #: None: trials continue only where their folder is shared.
    store: Annotated[StoreAddress | None, PlainValidator(read_address), WithJsonSchema(_STORE)] = (
        Field(
            default=None,
            description="Object store to which checkpoints and logs are uploaded, so that machines "
            "without a shared folder continue each other's trials: `s3://`, `gs://` or `az://`, a "
            "bucket and a prefix. `keep`, `newest` and `max_disk` hold there as well.",
            examples=["s3://my-bucket/tuner"],
        )
    )
