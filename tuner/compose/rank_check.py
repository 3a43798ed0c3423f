"""Refuses a start by mpirun or torchrun, which would start one dispatcher for each rank."""

from __future__ import annotations

from collections.abc import Mapping

from tuner.errors import ConfigError

#: Programs that start ranks, and the variable that each sets to their number on this machine.
_STARTERS = {
    "mpirun (Open MPI)": "OMPI_COMM_WORLD_LOCAL_SIZE",
    "mpirun (MPICH)": "MPI_LOCALNRANKS",
    "torchrun": "LOCAL_WORLD_SIZE",
}
#: `LOCAL_WORLD_SIZE` alone may be of a trial, or of a shell.
_OF_TORCHRUN = "TORCHELASTIC_RUN_ID"


def refuse_several_ranks(command: str, environ: Mapping[str, str]) -> None:
    """Refuses to start in one of several ranks.

    Args:
        command: The user's command, to be repeated without the program that starts ranks.
        environ: The process's environment.

    Raises:
        ConfigError: If this process is one of several ranks on this machine.
    """
    for starter, variable in _STARTERS.items():
        n_ranks = environ.get(variable, "1")
        if n_ranks == "1" or (starter == "torchrun" and _OF_TORCHRUN not in environ):
            continue
        raise ConfigError(
            f"{starter} has started this command {n_ranks} times on this machine, but one tuner "
            "runs all devices of a machine and starts the ranks of each trial itself. Start it "
            f"alone: {command}\nRanks per trial are keys of the study file: "
            f"trial: {{parallel: ddp, resources: {{gpus: {n_ranks}}}}}"
        )
