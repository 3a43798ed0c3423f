"""Requests to S3, Google Cloud Storage and Azure, against real servers of their protocols."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest

from tests.object_stores import NewBucket, StoreServer
from tuner.checkpoints.object_store.address import StoreAddress
from tuner.checkpoints.object_store.bucket import Bucket, BucketError

pytestmark = [pytest.mark.programs, pytest.mark.slow]

_REFUSED = b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


@pytest.mark.parametrize("scheme", ["s3", "gs"])
def test_objects_are_written_listed_read_and_removed(
    store_server: StoreServer, scheme: str
) -> None:
    objects_come_and_go(store_server.new_bucket(scheme).open())


def test_objects_of_azure(azure_container: StoreAddress) -> None:
    objects_come_and_go(Bucket(azure_container))
    with pytest.raises(BucketError, match="names az://absent, but there is no such"):
        Bucket(replace(azure_container, bucket="absent")).put("key", b"content")


def objects_come_and_go(bucket: Bucket) -> None:
    large = bytes(range(256)) * 80_000
    bucket.put("p/a/small", b"hello")
    bucket.put("p/a/large", io.BytesIO(large))
    assert bucket.size_of("p/a/small") == 5
    assert bucket.size_of("p/a/none") is None
    assert b"".join(bucket.get("p/a/large")) == large
    assert sorted(bucket.keys("p/a")) == ["p/a/large", "p/a/small"]
    bucket.delete(["p/a/large", "p/a/none"])
    assert bucket.keys("p/a") == ["p/a/small"]


@pytest.mark.parametrize("scheme", ["s3", "gs"])
def test_bucket_that_is_absent_is_named(store_server: StoreServer, scheme: str) -> None:
    new = store_server.new_bucket(scheme)
    address = StoreAddress(scheme=scheme, bucket="absent-bucket")
    with pytest.raises(BucketError, match=f"names {scheme}://absent-bucket, but there is no such"):
        Bucket(address, new.environ).put("key", b"content")


def test_refusal_shows_no_secret(bucket: NewBucket) -> None:
    bucket.proxy.answer = _REFUSED
    with pytest.raises(BucketError, match="was refused by s3://bucket") as caught:
        bucket.open().put("p/key", b"content")
    assert not caught.value.is_temporary
    assert "secret" not in str(caught.value)
    assert "a-key" not in str(caught.value)


def test_store_that_cannot_be_reached_may_answer_later(bucket: NewBucket) -> None:
    bucket.proxy.cut()
    with pytest.raises(BucketError, match="does not answer") as caught:
        bucket.open().put("p/key", b"content")
    assert caught.value.is_temporary


def test_credentials_that_are_missing_are_asked_for(
    bucket: NewBucket, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    for name in bucket.environ:
        monkeypatch.delenv(name, raising=False)
    # No files of the AWS tools, and no question to the machine that lends this one.
    monkeypatch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(BucketError, match="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"):
        Bucket(replace(bucket.address), {})
