"""One message names the trial for which devices are gathered."""

from tuner.devices.allocation.gathering import Gathering
from tuner.dispatch.supply.gathering_note import GatheringNote
from tuner.dispatch.supply.grants import Candidate
from tuner.search.asked_trial import AskedTrial


def a_candidate(number: int) -> Candidate:
    asked = AskedTrial(trial_id=number + 1, number=number, params={}, is_new=True)
    return Candidate(asked=asked, attempt_number=1)


def test_wait_is_told_once_for_each_trial_and_not_where_it_is_short() -> None:
    said: list[str] = []
    note = GatheringNote(said.append)
    note.poll(None)
    note.poll((a_candidate(11), Gathering(n_devices=4, left_s=None)))
    note.poll((a_candidate(11), Gathering(n_devices=4, left_s=20)))
    assert said == []
    for left_s in (1500, 1400):
        note.poll((a_candidate(12), Gathering(n_devices=4, left_s=left_s)))
    note.poll((a_candidate(13), Gathering(n_devices=8, left_s=90)))
    assert len(said) == 2
    assert said[0].startswith("4 devices are gathered for trial 12: all are expected to be free")
    assert "about 25 min" in said[0]
    assert "trial 13" in said[1]
