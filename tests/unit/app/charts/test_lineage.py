"""Who descends from whom, and how that is drawn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tuner.app.charts.lineage import lineage_figure
from tuner.app.charts.many_curves import CurveAxes
from tuner.app.charts.schedule import members_of, schedule_figure
from tuner.app.data.trials.curves import Curve
from tuner.app.data.trials.lineage import Taken, descent
from tuner.store.records.population_rows import Origin

AXES = CurveAxes(name="loss", log_x=False, log_y=False)


def curve(first: int, last: int, value: float) -> Curve:
    steps = np.arange(first, last + 1, dtype=np.float64)
    return Curve(steps=steps, values=value * steps)


def taken(number: int, changes: str = "", **origin: Any) -> Taken:
    return Taken(number=number, origin=Origin(**origin), changes=changes)


#: 3 is a copy of 2 at step 10, which is one of 0 at step 5; 4 has a new configuration.
LINEAGE = {
    2: taken(2, "lr 0.1 -> 0.2", parent=0, step=5, replaces=1),
    3: taken(3, "lr 0.2 -> 0.1, width 8 -> 16", parent=2, step=10, replaces=2),
    4: taken(4, "lr 0.7", parent=None, step=0, replaces=9),
}
CURVES = {
    0: curve(1, 15, 1.0),
    1: curve(1, 5, 2.0),
    2: curve(6, 10, 3.0),
    3: curve(11, 15, 4.0),
    4: curve(1, 15, 5.0),
}


def drawn(picked: int | None = None) -> dict[str, Any]:
    figure = lineage_figure(CURVES, LINEAGE, AXES, picked=picked, revision="")
    return {each.name or f"{place}": each for place, each in enumerate(figure.data)}


def test_a_line_goes_up_to_the_first_member() -> None:
    assert list(descent(LINEAGE, 3)) == [(3, 10), (2, 5), (0, 0)]
    assert list(descent(LINEAGE, 1)) == [(1, 0)]
    assert list(descent(LINEAGE, 4)) == [(4, 0)]


def test_what_is_not_sure_to_have_gone_on_is_nobodys_descendant() -> None:
    unsure = taken(5, parent=0, step=5, replaces=1, is_sure=False)
    lost = taken(6, parent=0, step=0, replaces=1)
    assert list(descent({5: unsure, 6: lost}, 5)) == [(5, 0)]
    assert list(descent({5: unsure, 6: lost}, 6)) == [(6, 0)]


def test_a_family_has_one_colour() -> None:
    figure = lineage_figure(CURVES, LINEAGE, AXES, picked=None, revision="")
    families = [sorted(set(each.customdata.tolist())) for each in figure.data[:3]]
    assert families == [[0, 2, 3], [1], [4]]
    assert len({each.line.color for each in figure.data[:3]}) == 3


def test_copies_tell_from_whom_they_are_and_what_changed() -> None:
    copies = drawn()["copy (3)"]
    assert copies.customdata.tolist() == [2, 3, 4]
    assert list(copies.x) == [6.0, 11.0, 1.0]
    assert copies.text[1] == (
        "trial 3: a copy of trial 2 at step 10,<br>in the place of trial 2<br>"
        "lr 0.2 -> 0.1<br>width 8 -> 16"
    )
    assert copies.text[2].startswith("trial 4: a new configuration,<br>in the place of trial 9")


def test_a_link_begins_where_the_parent_was() -> None:
    links = next(each for each in drawn().values() if each.line.dash == "dot")
    assert links.x[:2].tolist() == [5.0, 6.0]
    assert links.y[:2].tolist() == [5.0, 18.0]
    assert len(links.x) == 6, "two copies, and nothing of a new configuration"


def test_those_whose_place_was_taken_have_a_mark_at_their_end() -> None:
    gone = drawn()["replaced (2)"]
    assert gone.customdata.tolist() == [1, 2]
    assert list(gone.x) == [5.0, 10.0]
    assert gone.text[0] == "trial 1: trial 2 took its place"


def test_a_picked_trial_shows_its_whole_training() -> None:
    training = drawn(picked=3)["training of trial 3"]
    assert training.x.tolist() == list(range(1, 16))
    assert training.y[[4, 5, 10]].tolist() == [5.0, 18.0, 44.0]


def test_a_population_of_which_nobody_was_replaced_is_drawn_too() -> None:
    figure = lineage_figure({0: CURVES[0]}, {}, AXES, picked=None, revision="")
    assert [each.name for each in figure.data[1:]] == [None, "replaced (0)", "copy (0)"]


def test_a_schedule_shows_values_over_steps_and_where_copies_began() -> None:
    params = {
        number: {"lr": 0.1 * (number + 1), "kind": "a" if number < 3 else "b"} for number in CURVES
    }
    members = members_of(CURVES, LINEAGE)
    assert [(each.number, each.first, each.last, each.parent) for each in members] == [
        (0, 1, 15, None),
        (2, 5, 10, 0),
        (3, 10, 15, 2),
        (1, 1, 5, None),
        (4, 1, 15, None),
    ]
    assert len({each.colour for each in members if each.number in (0, 2, 3)}) == 1
    figure = schedule_figure(
        members, params, ["lr", "kind"], log_names=frozenset({"lr"}), revision=""
    )
    links, family, *_ = (each for each in figure.data if each.yaxis == "y")
    assert list(links.x) == [5, 5, None, 10, 10, None]
    assert [each for each in links.y if each] == pytest.approx([0.1, 0.3, 0.3, 0.4])
    assert list(family.x) == [1, 15, None, 5, 10, None, 10, 15, None]
    assert set(family.customdata) == {0, 2, 3}
    assert (figure.layout.yaxis.type, figure.layout.yaxis2.title.text) == ("log", "kind")
