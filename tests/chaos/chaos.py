"""Lays out the studies, plays, and settles the accounts."""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.books import Account, find_orphans, settle
from tests.chaos.databases import Database, database
from tests.chaos.play import Play, Struck
from tests.chaos.site import Site, make_site
from tests.compiling import compile_library
from tests.cuda_stub import compiled_cuda_stub
from tests.nvml_stub import NvmlStub

_NVML_SOURCE = Path(__file__).parents[1] / "nvml_stub" / "nvml_stub.c"


@dataclass(frozen=True, kw_only=True)
class Chaos:
    """What to do.

    Args:
        seconds: With faults; the end of the trials then takes some more.
        seed: Of all chance.
        database: `postgresql` (three dispatchers on one study) or `sqlite`.
        interval_s: Between two faults, on average.
        pruner: One of `PRUNERS`; with all but `none` trials pause, and some of them go on.
    """

    seconds: float
    seed: int
    database: str
    interval_s: float
    pruner: str = "none"


@dataclass(frozen=True, kw_only=True)
class Result:
    """What happened, and what was lost."""

    chaos: Chaos
    took_s: float
    #: Seconds since the epoch.
    began_at_s: float
    struck: list[Struck]
    accounts: list[Account]
    findings: list[str] = field(default_factory=list)


def run_chaos(chaos: Chaos, folder: Path, say: Callable[[str], None] = print) -> Result:
    """Runs a study on CPU slots and one on stand-in GPUs through faults.

    Args:
        chaos: What to do.
        folder: Where everything goes; empty.
        say: Hears what happens.

    Raises:
        TimeoutError: If a study does not come to its end.
    """
    chaos_id = secrets.token_hex(8)
    with ExitStack() as stack:
        home = stack.enter_context(database(chaos.database, folder))
        sites = _sites(chaos, home, folder, chaos_id)
        for site in sites:
            stack.callback(site.close)
        play = Play(
            sites=sites,
            database=home,
            chance=random.Random(chaos.seed),
            interval_s=chaos.interval_s,
            say=say,
        )
        took_s = play.run(chaos.seconds)
        orphans = find_orphans(chaos_id)
        accounts = [settle(site) for site in sites]
    findings = [f"{each.study}: {finding}" for each in accounts for finding in each.findings]
    if orphans:
        findings.append(f"{len(orphans)} processes have no owner: {orphans}")
    return Result(
        chaos=chaos,
        took_s=took_s,
        began_at_s=play.began_at_s,
        struck=play.struck,
        accounts=accounts,
        findings=findings,
    )


def _sites(chaos: Chaos, home: Database, folder: Path, chaos_id: str) -> list[Site]:
    n_dispatchers = 3 if chaos.database == "postgresql" else 1
    slots = make_site(
        folder,
        study="slots",
        url=home.url,
        chaos_id=chaos_id,
        n_dispatchers=n_dispatchers,
        pruner=chaos.pruner,
    )
    if chaos.database == "sqlite":
        return [slots]  # A file has one dispatcher.
    gpus = make_site(
        folder,
        study="gpus",
        url=home.url,
        chaos_id=chaos_id,
        gpus=_stub(folder),
        cuda_library=compiled_cuda_stub(folder),
        pruner=chaos.pruner,
    )
    return [slots, gpus]


def _stub(folder: Path) -> NvmlStub:
    library_folder, state_folder = folder / "nvml-library", folder / "nvml"
    library_folder.mkdir()
    state_folder.mkdir()
    library = compile_library(_NVML_SOURCE, library_folder / "libnvidia-ml.so.1")
    return NvmlStub(library=library, state_file=state_folder / "gpus.txt", folder=state_folder)
