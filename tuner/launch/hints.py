"""Hints for errors of programs that are known to come from a common mistake."""

from __future__ import annotations

import re
import shlex
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

#: Marks a line of a failure's text that is not the program's own.
HINT = "Hint: "
#: The shared memory of the machine was full, which is no disk.
FULL_SHARED_MEMORY = (
    "The shared memory of the machine or container, /dev/shm, was full: use fewer workers in "
    "data loaders (num_workers), or give the container more (docker run --shm-size)."
)
#: Another disk than the study's was full again and again.
FULL_ELSEWHERE = (
    "It found no room again and again, with {free} free where the study's files are: another file "
    "system is full, such as /dev/shm (use fewer workers in data loaders, or docker run "
    "--shm-size) or that of TMPDIR."
)
#: Messages of argparse and of click.
_WRONG_ARGUMENTS = re.compile(
    r"error: (unrecognized arguments|the following arguments|argument )"
    r"|Error: (No such option|Missing (option|argument))"
)
_NO_WHOLE_NUMBER = re.compile(r"error: argument (\S+): invalid int value: '[\d.eE+-]+'")
_SWITCH = re.compile(r"error: argument (?:-\w/)?(\S+): ignored explicit argument")
_TERMINAL_SIZE = re.compile(
    r"stty: .*Inappropriate ioctl|\[Errno 25\] Inappropriate ioctl for device|"
    r"_?curses\.error|termios\.error"
)
_NO_TERMINAL = (
    "The program asks its terminal, for example for the width, but a trial has none. Write "
    "shutil.get_terminal_size(), which has a default."
)
_NO_GPU = re.compile(
    r"not compiled with CUDA enabled|Found no NVIDIA driver|No CUDA GPUs are available"
)
_NO_INPUT = "Nothing answers input(): a trial has no keyboard. Read the value from a parameter"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """A Python error that a call of the tuner explains.

    Args:
        text: Its type and message.
        place: Text of the program's line that raised it.
        hint: What to write.
    """

    text: re.Pattern[str]
    hint: str
    place: str = ""


_KNOWN = (
    _Known(
        text=re.compile(
            r"(not|and|or|than) '?TrialContext|'TrialContext' (and|object (is not|does not|has no "
            r"len)|object has no attribute '(get|items|keys|values|pop|copy)')"
        ),
        hint="The function receives the trial. Its parameters are a dict, trial.params: write "
        'trial.params["lr"] or trial.params.lr.',
    ),
    _Known(
        text=re.compile(
            r"'TrialContext' object has no attribute '(config|cfg|param|hparams|hyperparameters|"
            r"hyperparams|parameters|args|options)'"
        ),
        hint='The parameters are in trial.params: write trial.params["lr"] or trial.params.lr.',
    ),
    _Known(
        text=re.compile(
            r"'TrialContext' object has no attribute '(best_\w+|trials|optimize|direction)'"
        ),
        hint="The function receives one trial. Its study is trial.study, as in Optuna.",
    ),
    _Known(
        text=re.compile(r"attempted relative import with no known parent package"),
        hint="The module is imported by its name from the folder of the study file, and is part of "
        "no package there. Write from model import ... without the dot, or name it with its "
        "package: function: package.train:main",
    ),
    _Known(
        text=_NO_GPU,
        hint="This trial has no GPU. Write trial.device in place of 'cuda'; `tuner devices` lists "
        "the GPUs of this machine.",
    ),
    _Known(
        text=re.compile(r"FileNotFoundError: .* No such file or directory: '(?P<name>[^/'][^']*)'"),
        hint="Relative paths begin in {folder}, the folder of the study file.",
    ),
    _Known(
        text=re.compile(r"'Params' object is not callable"),
        hint='The parameters are a dict: write trial.params["lr"] or trial.params.lr.',
    ),
    _Known(
        text=re.compile(r"suggest_(?P<name>float|int|categorical)\(\) missing .*required"),
        hint="Give the range as in Optuna, or read the value of the study file: trial.params.lr.",
    ),
    _Known(
        text=re.compile(r"'float' object cannot be interpreted as an integer"),
        place="trial.params",
        hint="The parameter is of type float. Declare it with type: int in search_space.",
    ),
    _Known(
        text=_TERMINAL_SIZE,
        hint=_NO_TERMINAL,
    ),
    _Known(
        text=re.compile(r"TrialContext\.report\(\) missing .*'step'"),
        hint="Write trial.report(value, step); the step counts up from 0, such as the epoch.",
    ),
    _Known(
        text=re.compile(r"TrialContext\.report\(\) missing .*'value'"),
        hint="Write trial.report(value, step, loss=0.3): the value of the objective comes first, "
        "further metrics are keywords.",
    ),
    _Known(
        text=re.compile(r"TrialContext\.save_checkpoint\(\) missing .*'step'"),
        hint="Write trial.save_checkpoint(state, step).",
    ),
    _Known(
        text=re.compile(r"(?i)can't pickle|cannot pickle|can't get local object"),
        place="save_checkpoint",
        hint="A checkpoint holds tensors, numbers, text, lists and dicts. Write "
        'trial.save_checkpoint({"model": model.state_dict(), "epoch": epoch}, step).',
    ),
    _Known(
        text=re.compile(r"current\(\) got an unexpected keyword argument '(?P<name>\w+)'"),
        hint='Write tuner.current({"{name}": 0.1}): the defaults of a run without the tuner are '
        "one dict.",
    ),
)


#: Patterns in the output of a command, and their hints.
_OF_COMMANDS = (
    (_TERMINAL_SIZE, _NO_TERMINAL),
    (
        _NO_GPU,
        "This trial has no GPU; `tuner devices` lists those of this machine. If the program has an "
        "option for the CPU, such as --device=cpu, add it to trial.command.",
    ),
    (
        re.compile(r"EADDRINUSE|Address already in use"),
        "Trials run at the same time and need different ports. If the program sets MASTER_PORT: "
        's = socket.socket(); s.bind(("", 0)); os.environ["MASTER_PORT"] = '
        "str(s.getsockname()[1]); s.close() before it starts its ranks.",
    ),
    (
        re.compile(r"FileNotFoundError: .* No such file or directory: '[^/'][^']*'"),
        "Relative paths of the program begin in the folder of the study file.",
    ),
)


def hint_for(error: BaseException) -> str:
    """The hint for an exception; empty if none is known."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = "\n".join(frame.line or "" for frame in frames)
    text = f"{type(error).__name__}: {error}"
    for known in _KNOWN:
        if (match := known.text.search(text)) and known.place in lines:
            hint = known.hint.replace("{name}", match.groupdict().get("name", ""))
            return HINT + hint.replace("{folder}", str(Path.cwd()))
    if isinstance(error, EOFError) and "input(" in lines:
        return f'{HINT}{_NO_INPUT}, such as trial.params["rate"].'
    return _missing_module(error)


def import_hint(error: BaseException) -> str:
    """The same for a module that could not be imported ahead of the trials."""
    if not isinstance(error, SystemExit):
        return hint_for(error)
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    if any(file.endswith(("argparse.py", "click/core.py")) for file in files):
        return (
            f"{HINT}The module reads the command line when it is imported. Move that below "
            'if __name__ == "__main__":, or tune the script as a command: '
            'trial: {command: [python, train.py, "--lr={lr}"]}'
        )
    return (
        f"{HINT}The module ends the program when it is imported. Move that into the function, or "
        'below if __name__ == "__main__":.'
    )


def output_hint(output: str, argv: Sequence[str]) -> str:
    """What to correct where a command ended badly, judged by its last lines.

    Args:
        output: The last lines.
        argv: The command as it was started.
    """
    line = shlex.join(argv)
    if match := _NO_WHOLE_NUMBER.search(output):
        return f"{HINT}{match[1]} takes whole numbers: declare its parameter with type: int."
    if match := _SWITCH.search(output):
        return (
            f"{HINT}{match[1]} takes no value. Make whole words the choices of its parameter, of "
            f'which an empty one is left out: amp: ["{match[1]}", ""], and in trial.command the '
            'word "{amp}".'
        )
    if _WRONG_ARGUMENTS.search(output):
        return f"{HINT}The command was: {line}. Correct its arguments in trial.command."
    if "EOFError: EOF when reading a line" in output:
        return f'{HINT}{_NO_INPUT}, such as "--rate={{rate}}" in trial.command.'
    if match := re.search(r"ModuleNotFoundError: No module named '([\w.]+)'", output):
        return f"{HINT}{_absent_module(match[1], argv[0])}"
    return next((f"{HINT}{hint}" for text, hint in _OF_COMMANDS if text.search(output)), "")


def _absent_module(name: str, python: str) -> str:
    first = name.partition(".")[0]
    if Path(first).is_dir() or Path(f"{first}.py").is_file():
        return (
            f"{first} is in the folder of the study file, where Python does not look for a program "
            "of another folder. Write below trial: env: {PYTHONPATH: .}"
        )
    return f"Install {name} for {python}, or name another Python in trial.command."


def _missing_module(error: BaseException) -> str:
    if not isinstance(error, ModuleNotFoundError) or not error.name:
        return ""
    return (
        f"{HINT}Install {error.name} for the Python that runs the tuner ({sys.executable}), or "
        "correct the import."
    )
