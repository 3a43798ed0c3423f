"""What earlier studies found, as the space of a new one has it."""

from __future__ import annotations

from tuner.search.samplers.transfer import N_TRANSFERRED, Transferred, transferred
from tuner.search_spaces import parse_space

SPACE = parse_space(
    {
        "lr": {"type": "float", "low": 1e-4, "high": 1e-1, "log": True},
        "depth": {"type": "int", "low": 2, "high": 8, "step": 2},
        "kind": {"type": "categorical", "choices": ["a", "b"]},
        "momentum": {"type": "float", "low": 0.0, "high": 0.9, "when": {"kind": "a"}},
        "epochs": 20,
    }
)


def test_what_fits_is_taken_as_it_is() -> None:
    best = {"lr": 0.01, "depth": 4, "kind": "a", "momentum": 0.5, "epochs": 5}
    found = transferred({"small": [best]}, SPACE)
    assert found.configurations == [{"lr": 0.01, "depth": 4, "kind": "a", "momentum": 0.5}]
    assert found.notices == ()


def test_ranges_are_clipped_and_what_is_gone_or_new_is_told() -> None:
    best = {"lr": 1.0, "depth": 9, "kind": "z", "dropout": 0.1}
    found = transferred({"small": [best]}, SPACE)
    assert found.configurations == [{"lr": 0.1, "depth": 8}]
    assert found.notices == (
        "dropout is not searched here and is left out (of small)",
        "lr 1.0 becomes 0.1, which is in its range (of small)",
        "depth 9 becomes 8, which is in its range (of small)",
        "kind cannot be 'z' here and is drawn at random (of small)",
    )
    only_lr = transferred({"small": [{"lr": 0.01, "kind": "b"}]}, SPACE)
    assert only_lr.notices == ("depth is new and is drawn at random (of small)",)


def test_steps_and_whole_numbers_are_kept() -> None:
    near = transferred({"small": [{"depth": 4.9, "lr": 0.01, "kind": "b"}]}, SPACE)
    (found,) = near.configurations
    assert found["depth"] == 4
    assert isinstance(found["depth"], int)


def test_several_studies_are_taken_in_turn_and_none_twice() -> None:
    def of(*lrs: float) -> list[dict[str, object]]:
        return [{"lr": lr, "depth": 4, "kind": "b"} for lr in lrs]

    found = transferred({"one": of(0.1, 0.01, 0.001), "two": of(0.1, 0.02)}, SPACE)
    assert [each["lr"] for each in found.configurations] == [0.1, 0.01, 0.02, 0.001]
    many = transferred({"one": of(*(0.001 * n for n in range(1, 99)))}, SPACE)
    assert len(many.configurations) == N_TRANSFERRED


def test_a_program_s_own_space_takes_all() -> None:
    found = transferred({"small": [{"anything": 1}]}, None)
    assert found.configurations == [{"anything": 1}]


def test_it_comes_back_from_the_database_as_it_was() -> None:
    found = transferred({"small": [{"lr": 9.0, "depth": 4, "kind": "b"}]}, SPACE)
    again = Transferred.from_data(found.as_data())
    assert again.as_data() == found.as_data()
