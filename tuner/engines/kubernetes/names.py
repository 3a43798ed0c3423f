"""Names and labels of a study's objects in a cluster."""

from __future__ import annotations

import hashlib
import re

STUDY_LABEL = "tuner.dev/study"
NUMBER_LABEL = "tuner.dev/allocation"
#: The study's name in the database; labels allow fewer characters.
STUDY_ANNOTATION = "tuner.dev/study-name"
#: Kueue's name of a LocalQueue.
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"

#: A Job's name is a label of its pods: at most 63 characters, with the prefix and the number.
_LONGEST = 40


def study_label(study: str) -> str:
    """A study's name in the characters of a DNS label; unique for each study.

    Args:
        study: Name of the study, any text.
    """
    plain = re.sub(r"[^a-z0-9]+", "-", study.lower()).strip("-")[:_LONGEST].rstrip("-")
    if plain == study:
        return plain
    digest = hashlib.sha256(study.encode()).hexdigest()[:8]
    return f"{plain}-{digest}".lstrip("-")


def job_name(study: str, number: int) -> str:
    """Name of the Job of one allocation."""
    return f"tuner-{study_label(study)}-{number}"


def selector(study: str) -> str:
    """Label selector of a study's Jobs and pods."""
    return f"{STUDY_LABEL}={study_label(study)}"
