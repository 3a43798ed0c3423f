"""Wrong values of `checkpoints.store`: each is refused with what to do, before a study is made."""

from __future__ import annotations

import pytest

from tests.e2e.study_folder import Ended, StudyFolder
from tests.object_stores import NewBucket
from tuner.errors import EXIT_BAD_INPUT

pytestmark = pytest.mark.slow


def refused(folder: StudyFolder, store: str) -> Ended:
    folder.study(checkpoints={"store": store})
    ended = folder.tune()
    assert ended.code == EXIT_BAD_INPUT, ended.text
    assert "Traceback" not in ended.text
    assert "small.db" not in folder.files() or folder.states() == []
    return ended


def test_bucket_that_is_absent(study_folder: StudyFolder, bucket: NewBucket) -> None:
    study_folder.env |= bucket.environ
    ended = refused(study_folder, "s3://absent-bucket/x")
    assert (
        "study.yaml: checkpoints.store names s3://absent-bucket, but there is no such bucket. Make "
        "it first, or correct the name." in ended.err
    )
    assert "a-secret" not in ended.text


def test_credentials_that_are_missing(study_folder: StudyFolder, bucket: NewBucket) -> None:
    study_folder.env |= {"HOME": str(study_folder.path), "AWS_EC2_METADATA_DISABLED": "true"}
    ended = refused(study_folder, bucket.address.url)
    assert "checkpoints.store needs credentials for S3, and none were found: set AWS_" in ended.err
