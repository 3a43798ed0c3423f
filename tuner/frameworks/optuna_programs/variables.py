"""Names for programs that call `study.optimize`: environment variables and the module."""

from __future__ import annotations

from typing import Final

#: Its import runs the program up to `study.optimize`; it has the function `objective`.
OBJECTIVE_MODULE: Final = "tuner.frameworks.optuna_programs.objective"
#: Like `MODULE` for a program whose ranks share a trial: each rank runs it from its first line.
RANKS_MODULE: Final = "tuner.frameworks.optuna_programs.ranks"

#: The program, for the processes of trials.
ENV_PROGRAM: Final = "TUNER_OPTUNA_PROGRAM"
#: In `trial.env`: arguments of the program, as in a shell.
ENV_ARGUMENTS: Final = "PROGRAM_ARGUMENTS"
#: URL of its database, if the study file must not contain it.
ENV_URL: Final = "PROGRAM_STORAGE"
