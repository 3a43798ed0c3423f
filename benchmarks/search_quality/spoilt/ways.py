"""The ways to make a recorded task harder to search, by the names of the command line."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.search_quality.spoilt import curves, spaces
from benchmarks.search_quality.spoilt.common import Spoil

WAYS: Mapping[str, Spoil] = {
    "turned5": curves.turned_until(5),
    "turned25": curves.turned_until(25),
    "turned40": curves.turned_until(40),
    "meaningless15": curves.meaningless_until(15),
    "categories": spaces.of_lcbench(spaces.categories),
    "conditional": spaces.of_lcbench(spaces.conditional),
    "without_effect": spaces.of_lcbench(spaces.without_effect),
    "whole": spaces.of_lcbench(spaces.whole),
    "noise": curves.changed("noisy", curves.noisy),
    "wide": spaces.of_lcbench(spaces.wide),
    "linear": spaces.of_lcbench(spaces.linear),
    "turned2": curves.turned_until(2),
    "turned48": curves.turned_until(48),
    "half_turned": curves.half_turned,
    "constant10": curves.changed("constant until 10", curves.constant),
    "delayed": curves.changed("delayed", curves.delayed),
    "late_rates": curves.changed("late rates", curves.late_rates),
    "overfitting": curves.changed("overfitting", curves.overfitting),
    "early_noise": curves.changed("early noise", curves.early_noise),
    "spikes": curves.changed("spikes", curves.spikes),
    "rounded": curves.changed("rounded", curves.rounded),
    "exponential": curves.changed("exponential", curves.exponential),
    "slow": curves.slow,
}
