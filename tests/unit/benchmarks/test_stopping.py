"""The benchmark of stopping: both systems play the same trials."""

import pytest

from benchmarks.decision_cost.stopping import SYSTEMS, TUNER, measure

#: By day: the tuner alone.
BY_NIGHT = [pytest.param(each, marks=pytest.mark.nightly) for each in SYSTEMS if each != TUNER]


@pytest.mark.slow
@pytest.mark.parametrize("system", [TUNER, *BY_NIGHT])
def test_each_tenth_is_measured(system: str) -> None:
    measured = measure(system, 20)
    assert [n_stored for n_stored, _ in measured] == list(range(2, 21, 2))
    assert all(spent_ms > 0 for _, spent_ms in measured)
