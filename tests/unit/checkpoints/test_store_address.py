"""Addresses of object stores, and names of objects in them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tuner.checkpoints.object_store.address import StoreAddress, address_of, read_address
from tuner.checkpoints.object_store.keys import MANIFEST, StoreKeys, is_folder, local_name
from tuner.checkpoints.paths import StudyFiles

ADDRESS = StoreAddress(scheme="s3", bucket="my-bucket", prefix="a/b")
KEYS = StoreKeys(
    address=ADDRESS, files=StudyFiles(folder=Path("/x"), study="digits"), study_id="0f" * 16
)


@pytest.mark.parametrize(
    ("text", "url", "extra"),
    [
        ("s3://my-bucket/a/b/", "s3://my-bucket/a/b", "s3"),
        (" gs://my-bucket", "gs://my-bucket", "gcs"),
        ("gcs://my-bucket/x", "gs://my-bucket/x", "gcs"),
        ("az://container/x", "az://container/x", "azure"),
    ],
)
def test_address_is_read(text: str, url: str, extra: str) -> None:
    found = read_address(text)
    assert (found.url, found.extra) == (url, extra)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("my-bucket", "is 'my-bucket', but must be a URL such as s3://my-bucket/tuner."),
        (7, "is 7, but must be a URL"),
        ("ftp://host/x", "begins with ftp://, but must begin with one of s3://, gs://, az://."),
        ("file:///shared", "For a folder that all machines share leave `store` out"),
        ("s3:///x", "names the bucket ''."),
        ("s3://b ucket/x", "names the bucket 'b ucket'."),
        ("s3://bucket/x?versionId=1", "has options behind the path."),
    ],
)
def test_other_texts_are_refused(text: object, problem: str) -> None:
    with pytest.raises(ValueError, match=re.escape(problem)):
        read_address(text)


def test_password_in_an_address_is_refused_and_not_shown() -> None:
    with pytest.raises(ValueError, match="Credentials are read from the environment") as caught:
        read_address("s3://AKIA:s3cret@bucket/x")
    assert "s3cret" not in str(caught.value)
    assert "AKIA" not in str(caught.value)


def test_key_tells_study_trial_attempt_and_content() -> None:
    key = KEYS.checkpoint(17, 2, "step-9.pt", 0xABC)
    assert key == "a/b/digits-0f0f0f0f0f0f/trial-17/attempt-2/step-9.abc.pt"
    assert local_name(key) == ("step-9.pt", 0xABC)
    assert KEYS.log(17, 2, "attempt-2.log").endswith("/trial-17/attempt-2/attempt-2.log")


def test_step_that_one_attempt_saves_twice_has_two_keys() -> None:
    assert KEYS.checkpoint(1, 1, "step-9.pt", 1) != KEYS.checkpoint(1, 1, "step-9.pt", 2)


def test_folder_is_named_by_the_list_of_its_files() -> None:
    key = f"{KEYS.checkpoint(1, 1, 'step--3', 0xF)}/{MANIFEST}"
    assert is_folder(key)
    assert local_name(key) == ("step--3", 0xF)


def test_name_of_a_log_is_none_of_a_checkpoint() -> None:
    with pytest.raises(ValueError, match="does not name a checkpoint"):
        local_name(KEYS.log(1, 1, "attempt-1.log"))


def test_uri_is_read_back() -> None:
    uri = ADDRESS.uri_of("a/b/c")
    assert address_of(uri).key_of(uri) == "a/b/c"
    with pytest.raises(ValueError, match=r"is not in s3://other"):
        StoreAddress(scheme="s3", bucket="other").key_of(uri)
