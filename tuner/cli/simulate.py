"""`tuner simulate`: compares pruners on recorded curves before any GPU time is spent.

As in `tuner.cli.main`, a command imports what it needs when it is called.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from tuner.cli.error_exit import Edge
from tuner.cli.options import Debug

app = typer.Typer()

_EDGE = {
    "interrupted": "Interrupted. A simulation changes nothing.",
    "accident": "A simulation changes nothing. With --debug it shows where; please report that.",
}


@app.command()
def simulate(
    file: Annotated[Path, typer.Argument(help="A study file.")],
    curves: Annotated[
        str,
        typer.Option(
            help="A .npz file with names, x, value and seconds, or an earlier study: its name in "
            "the database of the study file, or a database with one study."
        ),
    ],
    devices: Annotated[
        int, typer.Option(min=1, help="Number of devices, with one trial on each.")
    ] = 8,
    seeds: Annotated[
        int, typer.Option(min=1, help="Number of repetitions with different seeds.")
    ] = 5,
    pruner: Annotated[
        list[str] | None,
        typer.Option(
            help="Name of a pruner; repeat for more. Default: the file's, asha, median and none."
        ),
    ] = None,
    restart: Annotated[
        float, typer.Option(min=0, help="Start-up time of an attempt in seconds.")
    ] = 5.0,
    whole: Annotated[
        bool, typer.Option("--whole", help="Use only the completed trials of the earlier study.")
    ] = False,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, help="Number of parallel simulations. Default: one per processor."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="HTML file to write, with a chart.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Simulates a study on a virtual clock with recorded learning curves, for several pruners.

    Dispatcher, sampler and pruners are the real ones; the curves replace training. The budget is
    the study file's.
    """
    with Edge(debug, **_EDGE):
        from tuner.devices.cpu_slots.probe import usable_cores
        from tuner.simulate.command import simulate_study

        simulate_study(
            file,
            curves,
            n_devices=devices,
            n_seeds=seeds,
            pruners=pruner,
            restart_s=restart,
            picture=output,
            environ=os.environ,
            whole_only=whole,
            n_processes=jobs or usable_cores(),
        )
