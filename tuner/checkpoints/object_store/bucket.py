"""Requests to S3, Google Cloud Storage and Azure: the one module that imports obstore.

It is imported by the process that uploads and by commands that read an object, never by the
dispatcher, which forks: obstore has threads of its own.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from importlib.util import find_spec
from typing import IO, TYPE_CHECKING, Any

from tuner.checkpoints.object_store.address import STORES, StoreAddress
from tuner.host.distribution import DISTRIBUTION

if TYPE_CHECKING:
    from obstore.store import AzureStore, GCSStore, S3Store

#: Size of one part of an upload: few requests, and at most four parts in memory.
_PART_BYTES = 16 * 1024**2
_N_PARTS_AT_ONCE = 4
#: The queue tries again later.
_RETRY_S = 8.0
_TIMEOUT_S = 120.0
_CONNECT_S = 10.0
_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>(\w{1,80})</Code>")
_NO_BUCKET = ("NoSuchBucket", "ContainerNotFound", "specified bucket does not exist")
_KEYS = {
    "AWS_ACCESS_KEY_ID": "access_key_id",
    "AWS_SECRET_ACCESS_KEY": "secret_access_key",
    "AWS_SESSION_TOKEN": "session_token",
}
_CREDENTIALS = {
    "s3": "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or run `aws configure`",
    "gs": "set GOOGLE_APPLICATION_CREDENTIALS, or run `gcloud auth application-default login`",
    "az": "set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY or a SAS token",
}


class BucketError(Exception):
    """A request failed.

    Args:
        problem: Why and what to do, without any secret.
        is_temporary: Whether the same request may succeed later.
        is_missing: Whether the bucket exists and the object does not.
    """

    def __init__(self, problem: str, *, is_temporary: bool, is_missing: bool = False) -> None:
        super().__init__(problem)
        self.is_temporary = is_temporary
        self.is_missing = is_missing


def is_installed(address: StoreAddress) -> bool:
    """Whether the packages of a store are there, without importing them."""
    packages = ("obstore", "boto3") if address.scheme == "s3" else ("obstore",)
    return all(find_spec(package) is not None for package in packages)


def install_text(address: StoreAddress) -> str:
    """How to install them."""
    return f"needs packages that are not installed: pip install '{DISTRIBUTION}[{address.extra}]'."


class Bucket:
    """Objects of one bucket.

    Args:
        address: Address of the bucket; its prefix is not added to keys.
        environ: Credentials and endpoints, in the variables of the store's own tools.

    Raises:
        BucketError: If packages or credentials are missing.
    """

    def __init__(self, address: StoreAddress, environ: Mapping[str, str] | None = None) -> None:
        if not is_installed(address):
            raise BucketError(install_text(address), is_temporary=False)
        self._address = address
        with _errors(address):
            self._store = _open(address, os.environ if environ is None else environ)

    def size_of(self, key: str) -> int | None:
        """Bytes of an object; None if there is none."""
        import obstore

        try:
            with _errors(self._address):
                return int(obstore.head(self._store, key)["size"])
        except BucketError as error:
            if error.is_missing:
                return None
            raise

    def put(self, key: str, content: IO[bytes] | bytes) -> None:
        """Writes an object atomically."""
        import obstore

        with _errors(self._address):
            obstore.put(
                self._store,
                key,
                content,
                chunk_size=_PART_BYTES,
                max_concurrency=_N_PARTS_AT_ONCE,
            )

    def get(self, key: str) -> Iterator[bytes]:
        """The content of an object, in pieces."""
        import obstore

        with _errors(self._address):
            for piece in obstore.get(self._store, key).stream(min_chunk_size=_PART_BYTES):
                yield bytes(piece)

    def keys(self, prefix: str) -> list[str]:
        """Keys of all objects below a prefix, which ends before a slash."""
        import obstore

        with _errors(self._address):
            found = obstore.list(self._store, prefix=prefix)
            return [each["path"] for part in found for each in part]

    def delete(self, keys: Sequence[str]) -> None:
        """Removes objects; missing ones are no error."""
        import obstore

        for key in keys:
            try:
                with _errors(self._address):
                    obstore.delete(self._store, key)
            except BucketError as error:
                if not error.is_missing:
                    raise


def _open(address: StoreAddress, environ: Mapping[str, str]) -> S3Store | GCSStore | AzureStore:
    from obstore.store import AzureStore, GCSStore, S3Store

    options: dict[str, Any] = {
        "timeout": timedelta(seconds=_TIMEOUT_S),
        "connect_timeout": timedelta(seconds=_CONNECT_S),
    }
    common: dict[str, Any] = {
        "client_options": options,
        "retry_config": {"max_retries": 4, "retry_timeout": timedelta(seconds=_RETRY_S)},
    }
    match address.scheme:
        case "s3":
            endpoint = environ.get("AWS_ENDPOINT_URL_S3") or environ.get("AWS_ENDPOINT_URL")
            if endpoint:
                common["endpoint"] = endpoint
                options["allow_http"] = endpoint.startswith("http://")
            return S3Store(address.bucket, **common, **_of_boto3(environ))
        case "gs":
            emulator = environ.get("STORAGE_EMULATOR_HOST")
            if emulator:
                options["allow_http"] = True
                common["service_account_key"] = _emulated(emulator)
            return GCSStore(address.bucket, **common)
        case _:
            options["allow_http"] = environ.get("AZURE_STORAGE_USE_EMULATOR", "") == "true"
            return AzureStore(address.bucket, **common)


def _of_boto3(environ: Mapping[str, str]) -> dict[str, Any]:
    """Credentials that obstore does not find itself: profiles and files of the AWS tools."""
    if any(environ.get(name) for name in (*_KEYS, "AWS_WEB_IDENTITY_TOKEN_FILE")):
        named = environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION")
        own = {word: environ[name] for name, word in _KEYS.items() if environ.get(name)}
        return {"region": named, **own} if named else own
    import boto3
    from obstore.auth.boto3 import Boto3CredentialProvider

    profile = boto3.Session()
    if profile.get_credentials() is None:
        raise BucketError(_no_credentials("s3"), is_temporary=False)
    region = {"region": profile.region_name} if profile.region_name else {}
    return {"credential_provider": Boto3CredentialProvider(profile), **region}


def _emulated(url: str) -> str:
    """obstore settings for an emulator, from the variable that Google's own clients use."""
    base = url if "://" in url else f"http://{url}"
    return json.dumps(
        {
            "gcs_base_url": base.rstrip("/"),
            "disable_oauth": True,
            "client_email": "",
            "private_key": "",
            "private_key_id": "",
        }
    )


def _no_credentials(scheme: str) -> str:
    name = STORES[scheme][1]
    return f"needs credentials for {name}, and none were found: {_CREDENTIALS[scheme]}."


@contextmanager
def _errors(address: StoreAddress) -> Iterator[None]:
    """Translates obstore's errors.

    Its messages contain URLs and response bodies, which may contain signatures.
    """
    from obstore.exceptions import BaseError

    try:
        yield
    except (BaseError, OSError, ValueError) as error:
        raise _as_bucket_error(address, error) from None


def _as_bucket_error(address: StoreAddress, error: Exception) -> BucketError:
    from obstore.exceptions import PermissionDeniedError, UnauthenticatedError

    text = str(error)
    status, code = _STATUS.search(text), _CODE.search(text)
    answer = " ".join(found[1] for found in (status, code) if found)
    where = f"{address.scheme}://{address.bucket}"
    if any(each in text for each in _NO_BUCKET):
        return BucketError(
            f"names {where}, but there is no such bucket. Make it first, or correct the name.",
            is_temporary=False,
        )
    if isinstance(error, FileNotFoundError):
        return BucketError("is missing an object.", is_temporary=False, is_missing=True)
    if isinstance(error, PermissionDeniedError | UnauthenticatedError):
        return BucketError(
            f"was refused by {where} (answer {answer or 'forbidden'}). The credentials need to "
            "read, write and delete objects there.",
            is_temporary=False,
        )
    if "redential" in text or "metadata" in text or "token" in text or "Account must" in text:
        return BucketError(_no_credentials(address.scheme), is_temporary=False)
    if status is not None and status[1].startswith("4") and status[1] not in ("408", "429"):
        return BucketError(f"was refused by {where}: answer {answer}.", is_temporary=False)
    return BucketError(f"{where} does not answer ({answer or 'no connection'})", is_temporary=True)
