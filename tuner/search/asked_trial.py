"""A trial from a study."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tuner.search_spaces import ParamValue


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedTrial:
    """A trial to evaluate now; `params` are the study file's parameters, constants included."""

    trial_id: int
    number: int
    params: Mapping[str, ParamValue]
    #: Whether it has no attempt yet.
    is_new: bool
