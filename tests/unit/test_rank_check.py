"""A tuner that mpirun or torchrun starts several times is refused; one for each machine is not."""

from __future__ import annotations

import pytest

from tuner.compose.rank_check import refuse_several_ranks
from tuner.errors import ConfigError


@pytest.mark.parametrize(
    ("environ", "starter"),
    [
        ({"OMPI_COMM_WORLD_LOCAL_SIZE": "3"}, "mpirun (Open MPI)"),
        ({"MPI_LOCALNRANKS": "3"}, "mpirun (MPICH)"),
        ({"LOCAL_WORLD_SIZE": "3", "TORCHELASTIC_RUN_ID": "none"}, "torchrun"),
    ],
)
def test_several_ranks_of_a_machine_are_refused(environ: dict[str, str], starter: str) -> None:
    with pytest.raises(ConfigError) as refused:
        refuse_several_ranks("tuner run", environ)
    text = str(refused.value)
    assert text.startswith(f"{starter} has started this command 3 times on this machine")
    assert "Start it alone: tuner run\n" in text
    assert text.endswith("trial: {parallel: ddp, resources: {gpus: 3}}")


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"OMPI_COMM_WORLD_SIZE": "3", "OMPI_COMM_WORLD_LOCAL_SIZE": "1"},
        {"LOCAL_WORLD_SIZE": "1", "TORCHELASTIC_RUN_ID": "none"},
        {"LOCAL_WORLD_SIZE": "3"},
    ],
    ids=["alone", "one-for-each-machine", "torchrun-with-one", "variable-of-the-shell"],
)
def test_one_process_of_a_machine_may_tune(environ: dict[str, str]) -> None:
    refuse_several_ranks("tuner run", environ)
