"""What devices did, from NVML's stand-in to the command line."""

from __future__ import annotations

import json
from typing import Any

from tests.e2e.study_folder import StudyFolder
from tests.nvml_stub import NvmlStub, StubGpu

#: Until its GPU was looked at a few times.
WAITS = """
import time

def train(trial):
    time.sleep(3.5)
    return trial.params.x
"""


def test_what_gpus_did_is_charged_to_trials(gpu_folder: StudyFolder, nvml_stub: NvmlStub) -> None:
    nvml_stub.write(
        [
            StubGpu(uuid="GPU-aaaa", utilization_pct=80, power_mw=500_000, used_mib=512),
            StubGpu(uuid="GPU-bbbb", utilization_pct=20, power_mw=100_000, used_mib=256),
        ]
    )
    gpu_folder.write("waits.py", WAITS)
    gpu_folder.study(trial={"function": "waits:train"}, devices="auto", budget={"trials": 2})
    ended = gpu_folder.tune()
    assert ended.code == 0, ended.text

    shown = gpu_folder.tuner("trials", "--json")
    uses: dict[str, dict[str, Any]] = {
        attempt["devices"][0]: attempt["use"]
        for trial in json.loads(shown.out)
        for attempt in trial["attempts"]
    }
    assert {label: use["utilization_pct"] for label, use in uses.items()} == {
        "GPU 0": 80,
        "GPU 1": 20,
    }
    assert uses["GPU 0"]["memory_max_bytes"] == 512 * 1024**2
    for label, watts in (("GPU 0", 500), ("GPU 1", 100)):
        use = uses[label]
        # All of the time that it was held.
        charged_s = use["energy_kwh"] * 3.6e6 / watts
        assert use["device_s"] - 1.0 <= charged_s <= use["device_s"] + 0.01

    assert " kWh" in gpu_folder.tuner("status").out
    samples = gpu_folder.rows(
        "select sum(covered_ms), count(*) from tuner_usage group by device_id"
    )
    assert len(samples) == 2
    assert all(covered_ms >= 1000 and n >= 1 for covered_ms, n in samples)


def test_a_program_on_a_cpu_slot(study_folder: StudyFolder) -> None:
    study_folder.write(
        "spins.py",
        "import time\n\ndef train(trial):\n    end = time.process_time() + 1.5\n"
        "    began = time.monotonic()\n"
        "    while time.process_time() < end or time.monotonic() < began + 3: pass\n"
        "    return trial.params.x\n",
    )
    study_folder.study(trial={"function": "spins:train"}, devices="cpu:1", budget={"trials": 1})
    ended = study_folder.tune()
    assert ended.code == 0, ended.text
    (trial,) = json.loads(study_folder.tuner("trials", "--json").out)
    use = trial["attempts"][0]["use"]
    assert use["utilization_pct"] > 0
    assert use["memory_max_bytes"] > 10_000_000
    assert use["energy_kwh"] is None
    assert "kWh" not in study_folder.tuner("status").out


def test_energy_is_a_budget(gpu_folder: StudyFolder, nvml_stub: NvmlStub) -> None:
    nvml_stub.write([StubGpu(uuid="GPU-aaaa", power_mw=2_000_000, used_mib=512)])
    gpu_folder.write("waits.py", WAITS.replace("3.5", "0.5"))
    gpu_folder.study(
        trial={"function": "waits:train"}, devices="auto", budget={"energy": "1Wh", "trials": 500}
    )
    ended = gpu_folder.tune()
    assert ended.code == 0, ended.text
    assert "budget reached: 0.001 kWh" in ended.out
    n_trials = len(gpu_folder.states())
    assert 1 <= n_trials < 500
    # What was spent is known to the next start.
    again = gpu_folder.tune()
    assert again.code == 0, again.text
    assert len(gpu_folder.states()) == n_trials
    assert " of 0.001 kWh" in gpu_folder.tuner("status").out


def test_energy_of_cpu_slots_is_not_known(study_folder: StudyFolder) -> None:
    study_folder.study(budget={"energy": "1kWh"})
    ended = study_folder.tune()
    assert ended.code == 2
    assert ended.err.startswith(
        "study.yaml: budget.energy is given, but CPU slots do not tell what they draw, so that it "
        "would never be reached. Give budget.time or budget.device_hours."
    )
