"""The colours of all figures, for white and black pages and any colour vision.

The hues follow Okabe and Ito (https://jfly.uni-koeln.de/color/). Their lightness is moved into the
band with a contrast of 3:1 (WCAG 2.2, 1.4.11) on both backgrounds. Within it, the values maximize
the smallest distance between any two colours, also under protanopia and deuteranopia as simulated
by Machado et al. (2009, https://doi.org/10.1109/TVCG.2009.113).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tuner.devices.idle_causes import IdleCause
from tuner.queries.trials.listing import ABANDONED

#: Backgrounds of Streamlit's pages.
LIGHT_BACKGROUND, DARK_BACKGROUND = "#ffffff", "#171614"
#: By the state or outcome of a trial.
COLOURS: Mapping[str, str] = {
    "completed": "#4b91ff",
    "pruned": "#8291a0",
    "running": "#238273",
    "waiting": "#059bc3",
    "paused": "#7d5abe",
    "failed": "#ff5550",
    "out_of_memory": "#aa3c8c",
    "not_a_number": "#eb46fa",
    "timed_out": "#cd1400",
    "failed_to_start": "#d73c6e",
    "lost": "#915541",
    "cancelled": "#738737",
    ABANDONED: "#915541",
}
BEST = "#d27d05"
#: For a study or a line that is compared with the first.
OTHER = "#4150f0"
#: Symbols in addition to colours, for points.
SYMBOLS: Mapping[str, str] = {
    "completed": "circle",
    "pruned": "triangle-down",
    "running": "diamond",
    "waiting": "circle-open",
    "paused": "square",
    "failed": "cross",
    "out_of_memory": "star",
    "not_a_number": "hourglass",
    "timed_out": "triangle-right",
    "failed_to_start": "triangle-up",
    "lost": "hexagon",
    "cancelled": "pentagon",
    ABANDONED: "hexagon",
}
#: For trials, devices or studies in turn; neighbours differ.
OF_MANY = (
    *("#4b91ff", "#d27d05", "#238273", "#aa3c8c", "#738737", "#cd1400"),
    *("#059bc3", "#915541", "#4150f0", "#d73c6e", "#8291a0", "#7d5abe"),
)
#: From little to much, for a light page; `REVERSED_IN_THE_DARK` marks the trace that shows it.
SEQUENTIAL = ((0.0, "#e8eef7"), (0.25, "#a9c8ee"), (0.6, "#2a78d6"), (1.0, "#0b2e5c"))
#: A trace's `meta`: much is dark on a light page, and bright on a dark one.
REVERSED_IN_THE_DARK = "reversed in the dark"
#: From the worst value to the best one; each has the contrast of a line on both backgrounds.
TO_THE_BEST = ((0.0, COLOURS["pruned"]), (0.6, COLOURS["completed"]), (1.0, BEST))


@dataclass(frozen=True, slots=True, kw_only=True)
class Hatching:
    """Hatching of idle time: lines instead of an area, so that it never dominates."""

    colour: str
    #: Plotly's `marker.pattern.shape`.
    shape: str


_PLAIN, _CURABLE = COLOURS["pruned"], BEST
#: Causes that a user can do something about have the warm colour.
HATCHINGS: Mapping[IdleCause, Hatching] = {
    IdleCause.NO_SUGGESTION: Hatching(colour=_CURABLE, shape="/"),
    IdleCause.GATHERING: Hatching(colour=_CURABLE, shape="\\"),
    IdleCause.DISK_FULL: Hatching(colour=_CURABLE, shape="x"),
    IdleCause.QUARANTINED: Hatching(colour=_CURABLE, shape="-"),
    IdleCause.DATABASE: Hatching(colour=_CURABLE, shape="|"),
    IdleCause.LOST: Hatching(colour=_CURABLE, shape="+"),
    IdleCause.STARTING: Hatching(colour=_PLAIN, shape="/"),
    IdleCause.CLEARING: Hatching(colour=_PLAIN, shape="\\"),
    IdleCause.TAKEN: Hatching(colour=_PLAIN, shape="x"),
    IdleCause.SHARED: Hatching(colour=_PLAIN, shape="+"),
    IdleCause.PAUSED: Hatching(colour=_PLAIN, shape="|"),
    IdleCause.NOTHING_LEFT: Hatching(colour=_PLAIN, shape="."),
}


def text_on(colour: str) -> str:
    """Black or white, whichever has the higher contrast (WCAG 2.2, 1.4.3) on a colour."""
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "#000000" if (luminance + 0.05) ** 2 > 1.05 * 0.05 else "#ffffff"
