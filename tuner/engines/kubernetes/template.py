"""The user's pod template, and how the tuner's own keys are merged over it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import yaml

from tuner.errors import EngineError

#: A Kubernetes object, or a part of one.
Manifest = dict[str, object]

_EXAMPLE = "spec: {tolerations: [{key: nvidia.com/gpu, operator: Exists}]}"


def read_template(path: Path) -> Manifest:
    """Reads a pod or pod template from a YAML file.

    Returns:
        Its `metadata` and `spec`.

    Raises:
        EngineError: If it cannot be read, or is no pod.
    """
    try:
        found: object = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise EngineError(f"engine.kubernetes.template: {path} cannot be read: {reason}") from None
    if not isinstance(found, dict) or not isinstance(found.get("spec"), dict):
        raise EngineError(
            f"engine.kubernetes.template: {path} is no pod: it has no mapping `spec`. "
            f"Write, for example: {_EXAMPLE}"
        )
    return {key: found[key] for key in ("metadata", "spec") if isinstance(found.get(key), dict)}


def merge(below: object, above: object) -> object:
    """Merges two parts of a manifest.

    Mappings are merged key by key, lists of named items (containers, volumes, variables) item by
    item; otherwise `above` replaces `below`.
    """
    if isinstance(below, Mapping) and isinstance(above, Mapping):
        both = {key: merge(below[key], above[key]) for key in above if key in below}
        return {**below, **above, **both}
    if _is_named(below) and _is_named(above):
        return _merge_named(_items(below), _items(above))
    return above


def _is_named(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(i, dict) and "name" in i for i in value)


def _items(value: object) -> Sequence[Manifest]:
    return cast("Sequence[Manifest]", value)


def _merge_named(below: Sequence[Manifest], above: Sequence[Manifest]) -> list[object]:
    own = {item["name"]: item for item in below}
    merged = [merge(own.pop(item["name"], {}), item) for item in above]
    return [*merged, *own.values()]
