"""Names that no database stores, sent by a program that is not ours, end no study."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.integration.dispatcher.world import FakeWorker, World
from tuner.domain.messages import SetAttribute, SetConstraint


@pytest.mark.parametrize("name", ["loss\0", "x" * 600, "loss\ud800"])
def test_they_are_left_out_and_said_once_for_a_trial(
    make_world: Callable[..., World], name: str
) -> None:
    def program(worker: FakeWorker) -> None:
        def say_all() -> None:
            worker.report(1, 0.25, **{name: 1.0, "accuracy": 0.5})
            worker.report(2, 0.5, **{name: 2.0})
            worker.say(SetAttribute(attempt_id=worker.id, key=name, value=1))
            worker.say(SetAttribute(attempt_id=worker.id, key="kept", value=2))
            worker.say(SetConstraint(attempt_id=worker.id, key=name, value=1.0))
            worker.complete(0.5)

        worker.later(0.1, worker.hello)
        worker.later(0.2, say_all)

    world = make_world(program, n_trials=2)
    assert world.run().n_completed == 2
    for trial in world.stored_trials():
        assert trial.value == 0.5
        assert trial.intermediate_values == {1: 0.25, 2: 0.5}
        assert trial.user_attrs["kept"] == 2
        assert name not in trial.user_attrs
    left_out = [text for text in world.said if "left out" in text]
    assert len(left_out) == 2
    assert {text.split(" sent ")[0] for text in left_out} == {"Trial 0", "Trial 1"}
