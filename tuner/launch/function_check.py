"""Checks whether an object can be the function of a trial, with a correction if not."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Sequence

#: Arguments that the line to write shows.
_MOST_SHOWN = 3


def function_problem(function: object, name: str, parameters: Sequence[str] = ()) -> str:
    """Why a trial cannot call an object; empty if it can. To be read after its name.

    Args:
        function: What the study names.
        name: What the function is called in its module.
        parameters: Names of the search space.
    """
    if not callable(function):
        return f"which is {function!r:.80}, but must be a function. {_write(name)}"
    if inspect.isclass(function):
        return _class_problem(function, name)
    if inspect.iscoroutinefunction(function):
        return (
            f"which is a coroutine (async def), but must be a plain function. Write "
            f"def run(trial): return asyncio.run({name}(trial)), and name it: run."
        )
    if inspect.isgeneratorfunction(function):
        return (
            "which is a generator (it has a yield), but must return the value of the objective. "
            "Write trial.report(value, step) in place of yield value, and return the last one."
        )
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return ""  # A built-in function that hides its signature.
    return _signature_problem(signature, name, parameters)


def missing_function(path: str, module: object) -> str:
    """What a module has instead of a function; worded to follow the module's name."""
    known = [
        name
        for name, value in vars(module).items()
        if inspect.isfunction(value) and not name.startswith("_")
    ]
    problem = f"has no function {path!r}. It has: {', '.join(known) or 'none'}."
    close = difflib.get_close_matches(path, known, n=1)
    if not close and len(known) == 1:
        close = known
    if close:
        return f"{problem} Did you mean '{close[0]}'?"
    return problem if known else f"{problem} {_write(path)}"


def _class_problem(found: type, name: str) -> str:
    problem = "which is a class, but must be a function that takes the trial."
    if "__call__" in vars(found):
        return f"{problem} Name an instance: write objective = {name}() below the class."
    return f"{problem} Write one that uses the class and returns a number: def run(trial): ..."


def _signature_problem(signature: inspect.Signature, name: str, parameters: Sequence[str]) -> str:
    arguments = [each for each in signature.parameters.values() if each.default is each.empty]
    names = [each.name for each in arguments if each.kind is not each.VAR_KEYWORD]
    try:
        signature.bind(object())
    except TypeError:
        # Others hand the parameters over beside the trial.
        read = [each for each in names if each in parameters or each != "trial"]
        return (
            f"whose signature is {name}{signature}. It must be callable with one argument, the "
            f"trial. {_write(name, read or parameters)}"
        )
    if len(names) == 1 and names[0] in parameters:
        return (
            f"whose only argument is named after the parameter '{names[0]}', but it receives the "
            f"trial. {_write(name, names)}"
        )
    return ""


def _write(name: str, parameters: Sequence[str] = ()) -> str:
    read = "; ".join(f"{each} = trial.params[{each!r}]" for each in parameters[:_MOST_SHOWN])
    return f"Write def {name}(trial):" + (f" {read}" if read else " ...")
