"""`track` is checked before anything starts."""

from __future__ import annotations

import pytest

from tuner.config.sections.track import TrackerConfig
from tuner.errors import ConfigError
from tuner.tracking.progress import Progress, ProgressFiles
from tuner.tracking.registry import TRACKERS, check_trackers


@pytest.mark.parametrize("name", sorted(TRACKERS.classes))
def test_missing_package_is_refused_with_the_line_to_paste(name: str) -> None:
    config = {name: TrackerConfig(target="runs")}
    with pytest.raises(ConfigError, match=rf"track\.{name}.*pip install 'gpu-tuner\[{name}\]'"):
        check_trackers(config, is_installed=lambda _: False)
    check_trackers(config, is_installed=lambda _: True)


def test_near_name_is_proposed() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'tensorboard'"):
        check_trackers({"tensorbord": TrackerConfig(target="runs")})


def test_progress_of_several_dispatchers_is_put_together(tmp_path) -> None:
    files = ProgressFiles(folder=tmp_path, tracker="toy", study_key="k")
    files.write(1, Progress(ended={0: 1}, steps={0: {"loss": 5}, 1: {"loss": 3}}))
    files.write(2, Progress(ended={1: 2}, steps={1: {"loss": 4, "lr": 1}}))
    files.path(3).write_text("{")
    both = files.read([1, 2, 3, 4])
    assert both == Progress(ended={0: 1, 1: 2}, steps={0: {"loss": 5}, 1: {"loss": 4, "lr": 1}})


def test_progress_of_another_study_is_not_taken(tmp_path) -> None:
    ProgressFiles(folder=tmp_path, tracker="toy", study_key="a").write(1, Progress(ended={0: 1}))
    other = ProgressFiles(folder=tmp_path, tracker="toy", study_key="b")
    assert other.read([1]) == Progress()
