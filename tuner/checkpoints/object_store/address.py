"""The address of an object store: `s3://bucket/prefix` and its likes, without any request."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

#: By scheme: the extra with its packages, and the store's name.
STORES: Final = {
    "s3": ("s3", "S3"),
    "gs": ("gcs", "Google Cloud Storage"),
    "az": ("azure", "Azure"),
}
#: `gcs://` and the like are written often, and mean these.
_OTHER_NAMES: Final = {"s3a": "s3", "gcs": "gs", "azure": "az", "abfs": "az", "abfss": "az"}
_BUCKET: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,221}")
_EXAMPLE: Final = "s3://my-bucket/tuner"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreAddress:
    """A bucket and a prefix for the objects of studies."""

    #: `s3`, `gs` or `az`.
    scheme: str
    #: On Azure the container.
    bucket: str
    #: Without slashes at its ends; may be empty.
    prefix: str = ""

    @property
    def url(self) -> str:
        """The URL form of the address."""
        return f"{self.scheme}://{self.bucket}" + (f"/{self.prefix}" if self.prefix else "")

    @property
    def extra(self) -> str:
        """The tuner's extra with the packages for this store."""
        return STORES[self.scheme][0]

    def uri_of(self, key: str) -> str:
        """The whole address of an object."""
        return f"{self.scheme}://{self.bucket}/{key}"

    def key_of(self, uri: str) -> str:
        """The inverse of `uri_of`.

        Raises:
            ValueError: If the object is in another bucket.
        """
        begin = self.uri_of("")
        if not uri.startswith(begin):
            raise ValueError(f"{uri} is not in {self.scheme}://{self.bucket}")
        return uri.removeprefix(begin)


def read_address(text: object) -> StoreAddress:
    """Parses an address.

    Raises:
        ValueError: If it is invalid; worded to follow the key. Never shows a password.
    """
    if not isinstance(text, str) or "://" not in text:
        raise ValueError(f"is {text!r:.200}, but must be a URL such as {_EXAMPLE}.")
    parts = urlsplit(text.strip())
    scheme = _OTHER_NAMES.get(parts.scheme, parts.scheme)
    if parts.username is not None or parts.password is not None:
        raise ValueError(
            "holds a user name or a password. Credentials are read from the environment or the "
            f"files of the store's own tools, never from the study file. Write: {_EXAMPLE}."
        )
    if scheme not in STORES:
        known = ", ".join(f"{name}://" for name in STORES)
        raise ValueError(
            f"begins with {parts.scheme}://, but must begin with one of {known}. For a folder that "
            "all machines share leave `store` out: nothing needs to be copied then."
        )
    if parts.query or parts.fragment:
        raise ValueError(
            f"has options behind the path. Write the bucket alone, such as {_EXAMPLE}."
        )
    if not _BUCKET.fullmatch(parts.netloc):
        raise ValueError(f"names the bucket {parts.netloc!r:.200}. Write it as in {_EXAMPLE}.")
    return StoreAddress(scheme=scheme, bucket=parts.netloc, prefix=parts.path.strip("/"))


def address_of(uri: str) -> StoreAddress:
    """The bucket of an object in a database, without a prefix.

    Raises:
        ValueError: If the address is of an unknown store.
    """
    found = read_address(uri)
    return StoreAddress(scheme=found.scheme, bucket=found.bucket)
