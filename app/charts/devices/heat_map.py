"""Usage of each device over time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from tuner.app.charts.palette import REVERSED_IN_THE_DARK, SEQUENTIAL
from tuner.app.charts.style import bar_above, dress
from tuner.app.charts.zone import IN_UTC, Zone
from tuner.app.data.columns import Floats
from tuner.app.data.devices.leases import HostDevice
from tuner.app.data.devices.samples import Bins, Window

_ROW_PX, _FRAME_PX = 26, 170


def heat_map_figure(
    bins: Bins,
    figures: Floats,
    devices: Sequence[HostDevice],
    window: Window,
    *,
    title: str,
    unit: str,
    most: float,
    revision: str,
    zone: Zone = IN_UTC,
) -> go.Figure:
    """A row for each device of one host, the first on top; empty if there are no samples.

    Args:
        bins: Device and time of each figure.
        figures: The values, in `unit`.
        devices: Devices of one host.
        window: The columns.
        title: Title of the values.
        unit: Unit of the values.
        most: Upper end of the colour scale.
        revision: While it is unchanged, a refresh keeps the zoom.
        zone: Time zone of the axis.
    """
    rows = {device.id: row for row, device in enumerate(devices)}
    places = np.array([rows.get(each, -1) for each in bins.device_ids.tolist()], dtype=np.int64)
    columns = (bins.starts_s - window.start_s) // window.width_s
    is_shown = (places >= 0) & (columns >= 0) & (columns < len(window.starts_s))
    cells = np.full((len(devices), len(window.starts_s)), np.nan)
    cells[places[is_shown], columns[is_shown]] = figures[is_shown]
    figure = go.Figure(
        go.Heatmap(
            # The middle of each column: Plotly draws around it.
            x=[zone.instant(start + window.width_s / 2) for start in window.starts_s.tolist()],
            y=[device.label for device in devices],
            z=cells,
            zmin=0,
            zmax=most,
            colorscale=[list(step) for step in SEQUENTIAL],
            meta=REVERSED_IN_THE_DARK,
            colorbar=bar_above(f"{title} ({unit})"),
            hoverongaps=False,
            hovertemplate=f"%{{y}}<br>%{{x}} {zone.name}<br>%{{z:.3g}} {unit}<extra></extra>",
        )
    )
    dress(figure, revision=revision, height_px=_FRAME_PX + _ROW_PX * len(devices))
    figure.update_xaxes(
        title_text=f"Time ({zone.name})",
        type="date",
        range=[zone.instant(window.start_s), zone.instant(window.end_s)],
    )
    figure.update_yaxes(title_text="Device", autorange="reversed", fixedrange=True, showgrid=False)
    return figure
