"""MPS is on where its pipe is there and its daemon lives."""

from __future__ import annotations

import os

import psutil
import pytest

from tuner.devices.nvidia.mps import mps_is_running, process_names


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "mps"
    folder.mkdir()
    os.mkfifo(folder / "control")
    return folder


def is_running(folder, *names: str) -> bool:
    environ = {"CUDA_MPS_PIPE_DIRECTORY": str(folder)}
    return mps_is_running(environ, names=lambda: names)


@pytest.mark.parametrize("name", ["nvidia-cuda-mps-control", "nvidia-cuda-mps"])
def test_pipe_and_daemon_mean_that_it_runs(folder, name):
    assert is_running(folder, "init", name)


def test_daemon_that_was_killed_does_not_run(folder):
    assert not is_running(folder, "init", "python")


def test_daemon_with_its_pipe_elsewhere_is_not_ours(tmp_path):
    assert not is_running(tmp_path / "elsewhere", "nvidia-cuda-mps-control")


def test_folder_that_is_none_is_no_pipe(folder):
    assert not is_running(folder / "control", "nvidia-cuda-mps-control")
    assert not is_running(folder / ("x" * 300), "nvidia-cuda-mps-control")


def test_process_names_are_read():
    assert psutil.Process().name() in process_names()
