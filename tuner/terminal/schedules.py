"""`tuner schedule`: a schedule of parameters as a table."""

from __future__ import annotations

from itertools import pairwise

from tuner.queries.results.schedule import Schedule
from tuner.terminal import wording
from tuner.terminal.tables import table


def schedule_text(schedule: Schedule) -> str:
    """A table with the changes from each phase to the next."""
    ends = [*(each.after_step for each in schedule.phases[1:]), schedule.last_step]
    changes = [
        wording.settings({k: v for k, v in after.params.items() if before.params.get(k) != v})
        for before, after in pairwise(schedule.phases)
    ]
    shown = [wording.settings(schedule.phases[0].params), *(each or "-" for each in changes)]
    rows = [
        (f"{phase.after_step + 1} - {'?' if end is None else end}", str(phase.trial), params)
        for phase, end, params in zip(schedule.phases, ends, shown, strict=True)
    ]
    header = ("steps", "trial", "parameters, then those that change")
    values = f": {wording.values_text(schedule.values)}" if schedule.values else ""
    return f"trial {schedule.trial} of study {schedule.study!r}{values}\n{table(header, rows)}"
