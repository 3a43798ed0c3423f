"""The objects of a study in an object store, which `tuner delete --files` removes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import sqlalchemy as sa

from tuner.checkpoints.object_store.address import StoreAddress, address_of
from tuner.checkpoints.object_store.bucket import Bucket, BucketError
from tuner.errors import StoreError
from tuner.queries.dispatchers import has_our_tables
from tuner.store.optuna_tables.statements import ids_of
from tuner.store.schema.models import UploadRow

#: An object of a trial; see `StoreKeys`.
_OBJECT = re.compile(r"(?P<folder>.*-(?P<id>[0-9a-f]+))/trial-\d+/attempt-\d+/")


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectsExtent:
    """The objects of one study."""

    #: Such as `s3://bucket/prefix/study-5f1c`.
    folder: str
    address: StoreAddress
    keys: tuple[str, ...]


def object_folders(
    connection: sa.Connection, study_id: int, files_id: str | None
) -> tuple[str, ...]:
    """Addresses of the folders of a study's objects, according to the database.

    Args:
        connection: In a transaction.
        study_id: Id of the study.
        files_id: Identifies its files: objects of another study, to which the rows of an import may
            refer, are excluded.
    """
    if files_id is None or not has_our_tables(connection):
        return ()
    if not sa.inspect(connection).has_table(UploadRow.__tablename__):
        return ()
    query = sa.select(UploadRow.uri).where(UploadRow.trial_id.in_(ids_of(study_id))).distinct()
    found = (_OBJECT.match(uri) for uri in connection.execute(query).scalars())
    own = {each["folder"] for each in found if each and files_id.startswith(each["id"])}
    return tuple(sorted(own))


def measure_objects(folder: str, environ: Mapping[str, str]) -> ObjectsExtent:
    """Lists the objects below an address.

    Args:
        folder: One of `object_folders`.
        environ: Credentials.

    Raises:
        StoreError: If the store does not answer.
    """
    try:
        address = address_of(folder)
        keys = Bucket(address, environ).keys(address.key_of(folder))
    except (BucketError, ValueError) as error:
        raise StoreError(
            f"The objects in {folder} cannot be listed: checkpoints.store {error} Without --files "
            "they stay, and the study is deleted."
        ) from error
    return ObjectsExtent(folder=folder, address=address, keys=tuple(keys))


def delete_objects(objects: ObjectsExtent, environ: Mapping[str, str]) -> None:
    """Removes objects; missing ones are no error.

    Raises:
        StoreError: If the store refuses.
    """
    try:
        Bucket(objects.address, environ).delete(objects.keys)
    except BucketError as error:
        raise StoreError(
            f"The objects in {objects.folder} cannot be removed: checkpoints.store {error} The "
            "study is deleted; remove this folder with the store's own tools."
        ) from error
