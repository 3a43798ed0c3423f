"""Finds calls of Optuna in the text of a program, without running it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

OPTIMIZE = "optimize"
_SHARED_TRIAL = "TorchDistributedTrial"
_CREATE = ("create_study", "load_study")
_METHODS = (OPTIMIZE, "enqueue_trial", "add_trial", "add_trials")
_LIMIT_BYTES = 1 << 20
_LONGEST = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundCall:
    """A call of `create_study`, or of a method of a study that the file creates."""

    #: Name of the function or method.
    name: str
    line: int
    #: Its source, on one line.
    text: str
    #: Keyword arguments as they are written.
    arguments: dict[str, str]
    #: Whether an import of the file runs it.
    is_run_by_import: bool
    #: Whether a function contains it that is the target of another process.
    is_in_other_process: bool
    #: Whether `mp.spawn` starts all of these processes.
    is_spawned: bool
    #: The enclosing `with` blocks, the outermost first, each with its line.
    blocks: tuple[str, ...] = ()


def find_calls(path: Path) -> list[FoundCall]:
    """Finds the calls that create a study, add trials to it or run it, in the order of the file.

    Args:
        path: A Python file. One that cannot be read has none.
    """
    tree = _parse(path)
    studies = set(_names_of_studies(tree))
    targets = dict(_targets(tree))
    return [
        _found(node, parents, targets)
        for node, parents in _walk(tree, ())
        if isinstance(node, ast.Call) and (_creates(node) or _is_of_study(node, studies))
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class PassedOn:
    """A call that gets `study.optimize` as an argument, and calls it elsewhere."""

    line: int
    #: The function that is called, as it is written.
    function: str
    #: The argument, as it is written.
    argument: str


def find_passed_on(path: Path) -> PassedOn | None:
    """Finds a `study.optimize` that other code calls, such as the workers of a cluster.

    Args:
        path: A Python file. One that cannot be read has none.
    """
    tree = _parse(path)
    studies = set(_names_of_studies(tree))
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call):
            continue
        for argument in (*call.args, *(each.value for each in call.keywords)):
            study, _, method = ast.unparse(argument).rpartition(".")
            if method == OPTIMIZE and study in studies:
                function = ast.unparse(call.func)
                return PassedOn(line=call.lineno, function=function, argument=f"{study}.{OPTIMIZE}")
    return None


def has_shared_trials(path: Path) -> bool:
    """Whether a program calls Optuna's `TorchDistributedTrial`, with which ranks share a trial.

    Args:
        path: A Python file. One that cannot be read does not.
    """
    nodes = ast.walk(_parse(path))
    return any(isinstance(node, ast.Call) and _last_name(node) == _SHARED_TRIAL for node in nodes)


def mentions_optuna(path: Path) -> bool:
    """Whether a program may use Optuna: its text, or that of a module next to it, names Optuna.

    Args:
        path: A Python file. Its imports are searched in its folder.
    """
    left, seen = [path], {path}
    while left:
        try:
            text = left.pop().read_bytes()[:_LIMIT_BYTES]
            tree = ast.parse(text)
        except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
            return True  # Running it tells more.
        if b"optuna" in text:
            return True
        found = set(_modules_beside(tree, path.parent)) - seen
        seen |= found
        left += found
    return False


def _modules_beside(tree: ast.Module, folder: Path) -> Iterator[Path]:
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            names = [module, *(f"{module}.{each.name}".strip(".") for each in node.names)]
        for name in names:
            place = folder.joinpath(*name.split("."))
            for file in (place.with_suffix(".py"), place / "__init__.py"):
                if name and file.is_file():
                    yield file


def _parse(path: Path) -> ast.Module:
    """Syntax tree of a program that uses Optuna; empty if it does not, or cannot be read."""
    try:
        text = path.read_bytes()[:_LIMIT_BYTES]
        return ast.parse(text if b"optuna" in text else b"")
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.parse("")


def _last_name(node: ast.Call) -> str:
    return ast.unparse(node.func).rpartition(".")[2]


def _is_of_study(node: ast.Call, studies: set[str]) -> bool:
    function = node.func
    if not isinstance(function, ast.Attribute) or function.attr not in _METHODS:
        return False
    return ast.unparse(function.value) in studies or _creates(function.value)


def _creates(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and _last_name(node) in _CREATE


def _names_of_studies(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and _creates(node.value):
            yield from map(ast.unparse, node.targets)
        if isinstance(node, ast.AnnAssign) and node.value is not None and _creates(node.value):
            yield ast.unparse(node.target)


def _targets(tree: ast.Module) -> Iterator[tuple[str, bool]]:
    """Names of functions that other processes run, and whether `mp.spawn` starts them."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        if _last_name(node) == "spawn":
            functions = [*node.args[:1], *(k.value for k in node.keywords if k.arg == "fn")]
            yield from ((ast.unparse(each), True) for each in functions)
        for keyword in node.keywords:
            if keyword.arg == "target":
                yield ast.unparse(keyword.value), False


def _walk(
    node: ast.AST, parents: tuple[ast.AST, ...]
) -> Iterator[tuple[ast.AST, tuple[ast.AST, ...]]]:
    yield node, parents
    for child in ast.iter_child_nodes(node):
        yield from _walk(child, (*parents, node))


def _found(node: ast.Call, parents: tuple[ast.AST, ...], targets: Mapping[str, bool]) -> FoundCall:
    functions = [
        each
        for each in parents
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
    ]
    names = {each.name for each in functions if isinstance(each, ast.FunctionDef)}
    text = ast.unparse(node)
    return FoundCall(
        name=_last_name(node),
        line=node.lineno,
        text=text if len(text) <= _LONGEST else f"{text[:_LONGEST]}...)",
        arguments={each.arg: ast.unparse(each.value) for each in node.keywords if each.arg},
        is_run_by_import=not functions and not any(map(_is_main_guard, parents)),
        is_in_other_process=bool(names & set(targets)),
        is_spawned=all(targets[each] for each in names & set(targets)),
        blocks=tuple(_blocks(parents)),
    )


def _blocks(parents: tuple[ast.AST, ...]) -> Iterator[str]:
    for each in parents:
        if isinstance(each, ast.With | ast.AsyncWith):
            entered = ", ".join(ast.unparse(item) for item in each.items)
            yield f"with {entered} in line {each.lineno}"


def _is_main_guard(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "__name__" in ast.unparse(node.test)
