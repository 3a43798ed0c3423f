"""Trains once more with the schedule that the population has found, and with the last rate alone.

tuner schedule study.yaml -o schedule.json
python again.py
"""

from __future__ import annotations

from train import N_STEPS, loss_with

import tuner


def main() -> None:
    schedule = tuner.load_schedule("schedule.json")
    rates = [float(schedule.at(step)["lr"]) for step in range(1, N_STEPS + 1)]
    print(f"found by the population  {schedule.values['loss']:.6f}")
    print(f"with its schedule        {loss_with(lambda step: rates[step - 1]):.6f}")
    print(f"with its last rate       {loss_with(lambda _: rates[-1]):.6f}")


if __name__ == "__main__":
    main()
