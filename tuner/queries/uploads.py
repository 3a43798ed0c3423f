"""Objects of trials in an object store, for readers on any machine."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

import sqlalchemy as sa

from tuner.checkpoints.object_store.address import address_of
from tuner.checkpoints.object_store.bucket import Bucket, BucketError
from tuner.checkpoints.object_store.transfer import download, read_text
from tuner.errors import StoreError
from tuner.queries.dispatchers import has_our_tables
from tuner.store.records.upload_rows import StoredUpload, uploads_of
from tuner.store.schema.models import UploadKind, UploadRow


def read_uploads(
    connection: sa.Connection, trial_id: int, kind: UploadKind = UploadKind.CHECKPOINT
) -> list[StoredUpload]:
    """Uploads of a trial, the newest first; empty in a database of an older version."""
    if not has_our_tables(connection):
        return []
    if not sa.inspect(connection).has_table(UploadRow.__tablename__):
        return []
    return uploads_of(connection, trial_id, kind)


def fetch_log(upload: StoredUpload, environ: Mapping[str, str]) -> Path:
    """A log from an object store, as a file of this machine.

    Args:
        upload: The log.
        environ: Credentials.

    Raises:
        StoreError: If the store does not give it.
    """
    path = cache_folder(upload.uri) / upload.name
    if path.is_file():
        return path
    try:
        address = address_of(upload.uri)
        content = read_text(Bucket(address, environ), address.key_of(upload.uri))
    except (BucketError, ValueError) as error:
        raise StoreError(f"{upload.uri} cannot be read: checkpoints.store {error}") from error
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_bytes(content)
    partial.replace(path)
    return path


def fetch_checkpoint(uri: str, environ: Mapping[str, str]) -> Path:
    """A checkpoint from an object store, in a folder of its own on this machine.

    Args:
        uri: As `tuner best` shows it.
        environ: Credentials.

    Raises:
        StoreError: If the store does not give it.
    """
    try:
        address = address_of(uri)
        return download(Bucket(address, environ), address.key_of(uri), cache_folder(uri))
    except (BucketError, ValueError, OSError) as error:
        raise StoreError(f"{uri} cannot be read: checkpoints.store {error}") from error


def cache_folder(uri: str) -> Path:
    """Local cache folder of a URI; the content of a URI never changes."""
    root = Path(tempfile.gettempdir()) / f"tuner-objects-{os.getuid()}"
    root.mkdir(mode=0o700, exist_ok=True)
    stat = root.stat()
    if stat.st_uid != os.getuid() or stat.st_mode & 0o022:
        raise StoreError(f"{root} belongs to another user, or others may write there. Remove it.")
    return root / hashlib.sha256(uri.encode()).hexdigest()[:16]
