"""Parameter schedules found by population-based training, to train with again.

schedule = tuner.load_schedule("schedule.json") for step in range(1, 101):
    params = schedule.at(step)
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tuner.errors import ConfigError
from tuner.search_spaces import ParamValue

_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """Steps that were trained with the same parameters."""

    #: The last step before them; 0 from the beginning.
    after_step: int
    #: Number of the trial that trained them.
    trial: int
    #: Constants included.
    params: Mapping[str, ParamValue]


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """The parameters of a training of `pruner: pbt`, from its first step to its last.

    Args:
        study: Name of the study.
        trial: Number of the trial that made the last step.
        phases: At least one, in order; the first starts at step 0. Each has `after_step`, `trial`
            and `params`.
        last_step: The last reported step; None if there was none.
        values: The values by name of the objective; empty if the trial has none.
    """

    study: str
    trial: int
    phases: Sequence[Phase]
    last_step: int | None = None
    values: Mapping[str, float]

    def at(self, step: int) -> dict[str, ParamValue]:
        """Returns the parameters for one step.

        Args:
            step: The number with which the program reports the step when it is done.
        """
        reached = [each for each in self.phases if each.after_step < step]
        return dict((reached or self.phases[:1])[-1].params)

    def as_json(self) -> str:
        """Returns the text of a file that `load_schedule` reads."""
        return json.dumps({"version": _VERSION, **asdict(self)}, indent=2, ensure_ascii=False)


def load_schedule(path: str | Path) -> Schedule:
    """Reads a file that `tuner schedule STUDY -o schedule.json` has written.

    Args:
        path: Path of the file.

    Raises:
        ConfigError: If the file does not exist, or is not a schedule.
    """
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
        if document.pop("version") != _VERSION or not document["phases"]:
            raise ValueError("it is of another version, or empty")
        phases = [Phase(**each) for each in document.pop("phases")]
        return Schedule(phases=phases, **document)
    except OSError as error:
        problem = f"cannot be read: {error.strerror or error}. `tuner schedule -o` writes one."
        raise ConfigError(problem, file=str(path)) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        problem = f"is not a schedule ({error}). `tuner schedule STUDY -o {path}` writes one."
        raise ConfigError(problem, file=str(path)) from error
