"""What is run: the workload as data, and the folder in which a system runs it."""

import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.common.measures import Span

PROGRAMS = Path(__file__).parents[1] / "programs"

STUDY_YAML = """\
study: bench
storage: sqlite:///bench.db
objectives: {{value: minimize}}
trial:
  function: bench_trial:train
search_space:
  x: {{type: float, low: 0.0, high: 1.0}}
sampler: {{name: {sampler}, seed: 0}}
pruner: {{name: none}}
devices: cpu:{slots}
budget: {{trials: {trials}}}
"""


@dataclass(frozen=True, kw_only=True)
class Workload:
    """So many trials of one length on so many slots."""

    slots: int
    trials: int
    duration_s: float
    sampler: str = "random"

    def __str__(self) -> str:
        return f"{self.trials} trials x {self.duration_s:g} s on {self.slots} slots"


def write_folder(folder: Path, workload: Workload) -> None:
    """Fill `folder` as a user's own: the programs, the study file and the workload."""
    for program in PROGRAMS.glob("*.py"):
        shutil.copy(program, folder)
    study = STUDY_YAML.format(
        sampler=workload.sampler, slots=workload.slots, trials=workload.trials
    )
    (folder / "study.yaml").write_text(study)
    (folder / "workload.json").write_text(json.dumps(asdict(workload)))


def read_spans(folder: Path) -> list[Span]:
    """The trials that came to their last line."""
    path = folder / "events.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [Span(**json.loads(line)) for line in lines]
