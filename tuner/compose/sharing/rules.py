"""Checks this machine's rules against its devices: `tuner shares check`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner.devices.allocation.width import WHOLE
from tuner.devices.device import Device
from tuner.errors import ConfigError
from tuner.shares.check import check_rules
from tuner.shares.facts import parts_of_device
from tuner.shares.rules import DEFAULT_FILE, ShareRules, read_rules, rules_file


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """Output of `tuner shares check`, and whether a change is required."""

    text: str
    is_wrong: bool


def check_file(file: Path | None, environ: Mapping[str, str]) -> CheckReport:
    """Checks a rules file against this machine.

    Args:
        file: None for the file that applies here.
        environ: The process's environment.

    Raises:
        ConfigError: If there is no such file, or its rules are invalid.
    """
    path = file or rules_file(environ)
    if path is None:
        text = "This is an allocation of Slurm or Kubernetes: their quotas hold, and no rules file."
        return CheckReport(text=text, is_wrong=False)
    rules = read_rules(path)
    if rules is None:
        problem = (
            "there is no such file, so that devices of this machine are first come, first served. "
            "For guaranteed shares write one, such as guaranteed: {ann: 2}."
        )
        raise ConfigError(problem, file=str(path))
    gpus = gpus_of_machine(environ)
    box_parts = _box_parts(rules, gpus)
    findings = list(check_rules(rules, path, box_parts, gpus))
    is_wrong = any(each.is_mistake for each in findings)
    lines = [each.text for each in findings]
    if not is_wrong:
        lines.append(f"{path}: valid. {_summary(rules, box_parts)}")
    if path != DEFAULT_FILE:
        lines.append(f"Tuners read {DEFAULT_FILE}, or the file that TUNER_SHARES names.")
    return CheckReport(text="\n".join(lines), is_wrong=is_wrong)


def _box_parts(rules: ShareRules, gpus: Sequence[Device]) -> int | None:
    if gpus:
        return sum(map(parts_of_device, gpus))
    return None if rules.cpu_slots is None else rules.cpu_slots * WHOLE


def gpus_of_machine(environ: Mapping[str, str]) -> tuple[Device, ...]:
    """All GPUs and slices that this user may use; empty without a driver."""
    from tuner.devices.nvidia.probe import open_nvml  # 70 ms

    probe = open_nvml(environ.get("CUDA_VISIBLE_DEVICES"))
    if probe is None:
        return ()
    try:
        return probe.devices()
    finally:
        probe.close()


def _summary(rules: ShareRules, box_parts: int | None) -> str:
    total = sum(rules.guaranteed.values())
    of = "" if box_parts is None else f" of {box_parts / WHOLE:g}"
    return (
        f"{total:g}{of} devices are guaranteed, the rest is divided by weight. A trial has "
        f"{rules.grace:g} s to save, and no device changes hands within {rules.hold:g} s but for "
        "a guarantee."
    )
