"""`tuner simulate`: what a study would reach with which pruner, before anybody pays for it.

As in `tuner.cli.main`, a command imports what it needs when it is called.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from tuner.cli.error_exit import Edge
from tuner.cli.studies import Debug

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
            help="A .npz file with names, x, value and seconds; or an earlier study: its name in "
            "the study file's database, or a database that holds one."
        ),
    ],
    devices: Annotated[int, typer.Option(min=1, help="How many, one trial on each.")] = 8,
    seeds: Annotated[int, typer.Option(min=1, help="Repetitions.")] = 5,
    pruner: Annotated[
        list[str] | None,
        typer.Option(help="By name, once for each; absent: the file's, asha, median and none."),
    ] = None,
    restart: Annotated[float, typer.Option(min=0, help="Seconds before an attempt trains.")] = 5.0,
    whole: Annotated[
        bool, typer.Option("--whole", help="Of an earlier study: completed trials alone.")
    ] = False,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Simulations at a time; absent: one per processor.")
    ] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="An HTML picture.")] = None,
    debug: Debug = False,
) -> None:
    """Plays a study on a virtual clock over recorded curves, with several pruners side by side.

    The dispatcher, the sampler and the pruners are the real ones; trainings are the curves. The
    budget is the file's: trials, time or device-hours.
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
