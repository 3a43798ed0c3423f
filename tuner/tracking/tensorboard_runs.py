"""TensorBoard: a folder of event files for each trial, with its scalars and hyperparameters."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from tuner.checkpoints.paths import StudyFiles, expanded
from tuner.tracking.port import Point, Run, RunEnd, RunStatus, TrackedStudy

#: Identifies the owner of a folder's runs.
_OWNER = "tuner-study.json"
_KEY_LENGTH = 8
_EVENT_FILES = "events.out.tfevents.*"


@dataclass(slots=True, kw_only=True)
class _OpenRun:
    #: An EventFileWriter; TensorBoard has no types.
    writer: Any
    #: Step of the last point of each metric.
    steps: dict[str, int]


class TensorBoardTracker:
    """Runs below `<folder>/<study>/trial-<number>`, one folder a trial.

    Args:
        folder: What `tensorboard --logdir` gets. A relative one is in the study file's folder.
    """

    def __init__(self, folder: str) -> None:
        self._folder = expanded(folder)
        self._root = self._folder
        self._runs: dict[int, _OpenRun] = {}

    def open(self, study: TrackedStudy) -> None:
        # TensorBoard's own switch: else it imports TensorFlow wherever that is installed.
        sys.modules.setdefault("tensorboard.compat.notf", ModuleType("notf"))
        name = StudyFiles(folder=study.folder, study=study.name).root.name
        self._root = study.folder / self._folder / name
        if not _claim(self._root, study):
            # Another study of this name, in another database: its steps are not those of this one.
            self._root = self._root.with_name(f"{name}-{study.key[:_KEY_LENGTH]}")
            _claim(self._root, study)

    def begin(self, run: Run, steps: Mapping[str, int]) -> Mapping[str, int]:
        if run.trial not in self._runs:
            self._runs[run.trial] = self._open_run(run)
        found = self._runs[run.trial]
        self._add(found, [_text("trial", _table(run.tags))], run.started_at.timestamp())
        return found.steps

    def log(self, trial: int, points: Sequence[Point]) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary

        run = self._runs[trial]
        for point in points:
            value = Summary.Value(tag=point.name, simple_value=point.value)
            self._add(run, [value], point.at.timestamp(), point.step)
            run.steps[point.name] = point.step
        run.writer.flush()

    def end(self, trial: int, ending: RunEnd) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary

        run = self._runs.pop(trial)
        last_step = max(run.steps.values(), default=0)
        at_s = ending.ended_at.timestamp()
        finals = [
            Summary.Value(tag=f"final/{name}", simple_value=value)
            for name, value in ending.values.items()
        ]
        facts = {"outcome": ending.outcome, "duration_s": f"{ending.duration_s:.1f}"}
        self._add(run, [*finals, _text("outcome", _table(facts))], at_s, last_step)
        self._add(run, [_session_end(ending)], at_s)
        run.writer.close()

    def close(self) -> None:
        while self._runs:
            _, run = self._runs.popitem()
            run.writer.close()

    def _open_run(self, run: Run) -> _OpenRun:
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        folder = self._root / f"trial-{run.trial}"
        steps = dict(_last_steps(folder))
        is_new = not any(folder.glob(_EVENT_FILES))
        opened = _OpenRun(writer=EventFileWriter(str(folder)), steps=steps)
        if is_new:
            self._add(opened, [_session_start(run)], run.started_at.timestamp())
        return opened

    def _add(self, run: _OpenRun, values: Sequence[Any], at_s: float, step: int = 0) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        run.writer.add_event(Event(wall_time=at_s, step=step, summary=Summary(value=values)))


def _claim(root: Path, study: TrackedStudy) -> bool:
    """Whether a folder is this study's; a new one is from now on."""
    root.mkdir(parents=True, exist_ok=True)
    owner = root / _OWNER
    try:
        with owner.open("x") as file:
            json.dump({"study": study.name, "key": study.key}, file)
    except FileExistsError:
        try:
            return bool(json.loads(owner.read_text())["key"] == study.key)
        except (ValueError, KeyError, TypeError):
            return False
    return True


def _last_steps(folder: Path) -> Iterator[tuple[str, int]]:
    """Last steps of the scalars in a folder's event files, the older files first."""
    from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader

    steps: dict[str, int] = {}
    for path in sorted(folder.glob(_EVENT_FILES)):
        for event in LegacyEventFileLoader(str(path)).Load():
            for value in event.summary.value:
                if value.HasField("simple_value") and not re.match("final/", value.tag):
                    steps[value.tag] = max(event.step, steps.get(value.tag, event.step))
    yield from steps.items()


def _text(tag: str, text: str) -> Any:
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.compat.proto.tensor_pb2 import TensorProto
    from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
    from tensorboard.plugins.text.metadata import create_summary_metadata

    shape = TensorShapeProto(dim=[TensorShapeProto.Dim(size=1)])
    tensor = TensorProto(dtype="DT_STRING", string_val=[text.encode()], tensor_shape=shape)
    metadata = create_summary_metadata(display_name=None, description=None)
    return Summary.Value(tag=f"{tag}/text_summary", metadata=metadata, tensor=tensor)


def _table(facts: Mapping[str, str]) -> str:
    """In Markdown."""
    rows = "".join(f"| {name} | {text} |\n" for name, text in facts.items())
    return f"| | |\n|---|---|\n{rows}"


def _session_start(run: Run) -> Any:
    from google.protobuf.struct_pb2 import ListValue, Value
    from tensorboard.plugins.hparams.metadata import SESSION_START_INFO_TAG
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData, SessionStartInfo

    info = SessionStartInfo(group_name=run.name, start_time_secs=run.started_at.timestamp())
    for name, value in run.params.items():
        match value:
            case bool():
                info.hparams[name].bool_value = value
            case int() | float():
                info.hparams[name].number_value = value
            case list() | tuple() if all(isinstance(each, int | float) for each in value):
                items = [Value(number_value=each) for each in value]
                info.hparams[name].list_value.CopyFrom(ListValue(values=items))
            case _:
                info.hparams[name].string_value = str(value)
    return _hparams(SESSION_START_INFO_TAG, HParamsPluginData(session_start_info=info))


def _session_end(ending: RunEnd) -> Any:
    from tensorboard.plugins.hparams import api_pb2
    from tensorboard.plugins.hparams.metadata import SESSION_END_INFO_TAG
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData, SessionEndInfo

    is_failed = ending.status is RunStatus.FAILED
    status = api_pb2.STATUS_FAILURE if is_failed else api_pb2.STATUS_SUCCESS
    info = SessionEndInfo(status=status, end_time_secs=ending.ended_at.timestamp())
    return _hparams(SESSION_END_INFO_TAG, HParamsPluginData(session_end_info=info))


def _hparams(tag: str, data: Any) -> Any:
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.hparams.metadata import create_summary_metadata

    return Summary.Value(tag=tag, metadata=create_summary_metadata(data))
