"""`devices:` of a study file is read, and a mistake is answered with what is allowed."""

from __future__ import annotations

import pytest

from tuner.devices.request import (
    AllDevices,
    AutoDevices,
    CpuSlots,
    NamedDevices,
    parse_device_request,
)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("auto", AutoDevices()),
        ("all", AllDevices()),
        ("cpu:4", CpuSlots(n_slots=4)),
        ([0, 3], NamedDevices(names=(0, 3))),
        (["GPU-8932f937", "MIG-1a"], NamedDevices(names=("GPU-8932f937", "MIG-1a"))),
        ([1, "GPU-8932f937-d72c-4106"], NamedDevices(names=(1, "GPU-8932f937-d72c-4106"))),
    ],
)
def test_parse_device_request(value, expected):
    assert parse_device_request(value) == expected


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ("gpu", "is 'gpu'. Allowed: auto, all, cpu:N"),
        (None, "is None. Allowed:"),
        (True, "is True. Allowed:"),
        ({"gpus": 1}, "Allowed: auto, all"),
        (2, "is 2, which is not a list. To use that one device, write [2]."),
        ("GPU-12", r"write [GPU-12]."),
        ("cpu", "is 'cpu', but cpu: needs a whole number from 1 to 4096"),
        ("cpu:0", "is 'cpu:0', but cpu: needs"),
        ("cpu:x", "is 'cpu:x', but cpu: needs"),
        ("cpu:-2", "is 'cpu:-2', but cpu: needs"),
        ("cpu:1.5", "is 'cpu:1.5', but cpu: needs"),
        ([], "is an empty list. Name at least one device"),
        ([0, 0], "is a list that names 0 twice"),
        (["GPU-1", "GPU-1"], "is a list that names GPU-1 twice"),
        ([True], "is a list with True in it. Allowed in a list: GPU numbers"),
        ([-1], "is a list with -1 in it"),
        (["0"], "is a list with '0' in it"),
        (["cpu:1"], "with GPU- or MIG-. For two slots without a GPU, write devices: cpu:2."),
        (["GPU-"], "is a list with 'GPU-' in it"),
        ([[0]], "is a list with [0] in it"),
        ([1.0], "is a list with 1.0 in it"),
    ],
)
def test_parse_device_request_of_a_mistake_says_what_is_allowed(value, sentence):
    with pytest.raises(ValueError, match=r"^is ") as caught:
        parse_device_request(value)
    assert sentence in str(caught.value)
