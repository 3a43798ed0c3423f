"""Checks a trial's function in a module's source, without importing the module.

`tuner validate` reads the user's program without running it: an import may train, block or write.
"""

from __future__ import annotations

import ast
import sys
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from tuner.launch.function_check import function_problem, missing_function

#: Calls that train, wait or write, by the last part of their name.
_WORK = frozenset(
    {
        *("fit", "train", "backward", "main", "run", "optimize", "fit_transform", "train_model"),
        *("parse_args", "input", "print", "sleep"),
    }
)
_WRITES = frozenset("wax")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceCheck:
    """Result of checking a module's source."""

    #: Why a trial cannot call the function, to be read after the study file; empty if it can.
    problem: str = ""
    #: Side effects of the module's import, and other suspicious code, as text.
    remark: str = ""


def check_source(
    key: str, name: str, folders: Sequence[str], parameters: Sequence[str]
) -> SourceCheck:
    """Reads the module of a function.

    Args:
        key: The key of the study file that names the function.
        name: `module:function`.
        folders: Folders of the user's modules, searched before the installed ones.
        parameters: Names of the search space, for the messages.
    """
    module = name.partition(":")[0]
    is_there, path = _find(module, folders)
    place = f"{key} is {name!r}, but"
    if not is_there:
        where = " or ".join(dict.fromkeys(folders))
        return SourceCheck(
            problem=f"{place} there is no module {module!r} in {where}, and none is installed. "
            "Correct the name, or put the file there."
        )
    if path is None:
        return SourceCheck()  # Compiled: only an import can tell.
    tree = _tree(path)
    if isinstance(tree, str):
        return SourceCheck(problem=f"{place} importing {module!r} fails:\n{tree}")
    return SourceCheck(
        problem=_problem(tree, key, name, parameters),
        remark="\n".join(filter(None, [_work_at_import(tree, path), _uncalled(tree, path)])),
    )


def check_program(key: str, name: str, path: Path) -> SourceCheck:
    """Reads a program that is run up to `study.optimize`.

    Args:
        key: The key of the study file that names it.
        name: Its value.
        path: The program.
    """
    if not path.is_file():
        return SourceCheck(
            problem=f"{key} is {name!r}, but there is no file {path}. Correct the path, or put the "
            "file there."
        )
    tree = _tree(path)
    if isinstance(tree, str):
        return SourceCheck(problem=f"{key} is {name!r}, but running {path.name} fails:\n{tree}")
    return SourceCheck(remark=_uncalled(tree, path))


def _tree(path: Path) -> ast.Module | str:
    """The syntax tree of a file; the error, indented, if it has none."""
    try:
        return ast.parse(path.read_bytes(), filename=str(path))
    except (SyntaxError, ValueError) as error:
        told = "".join(traceback.format_exception_only(error)).rstrip()
        return "\n".join(f"    {line}" for line in told.splitlines())


def _find(module: str, folders: Sequence[str]) -> tuple[bool, Path | None]:
    """Whether a module is there, and the file of its text."""
    spec: ModuleSpec | None = None
    path: Sequence[str] | None = [*folders, *sys.path]
    parts = module.split(".")
    for number in range(1, len(parts) + 1):
        spec = _spec(".".join(parts[:number]), path)
        if spec is None:
            return False, None
        path = spec.submodule_search_locations or []
    file = spec.origin if spec is not None else None
    return True, Path(file) if file and file.endswith(".py") else None


def _spec(name: str, path: Sequence[str] | None) -> ModuleSpec | None:
    if found := PathFinder.find_spec(name, path):
        return found
    for finder in sys.meta_path:  # Of packages that are installed to be edited.
        if hasattr(finder, "find_spec") and (spec := finder.find_spec(name, path)):
            return spec
    return None


def _problem(tree: ast.Module, key: str, name: str, parameters: Sequence[str]) -> str:
    module, _, function = name.partition(":")
    if "." in function:
        return ""
    defined = {each.name: each for each in _statements(tree.body) if isinstance(each, _DEFINED)}
    if function in defined:
        stub = _stub(defined[function])
        problem = function_problem(stub, function, parameters) if stub is not None else ""
        return f"{key} is {name!r}, {problem}" if problem else ""
    if function in _bound(tree) or any(_is_star(each) for each in ast.walk(tree)):
        return ""  # Imported or computed: only the import can tell.
    known = type(sys)(module)
    vars(known).update({each: _stub(node) for each, node in defined.items()})
    return f"{key} is {name!r}, but {module} {missing_function(function, known)}"


_DEFINED = (*_FUNCTIONS, ast.ClassDef)


def _stub(node: ast.stmt) -> object:
    """An object with the same signature and no body; None if the signature is unknown."""
    assert isinstance(node, _DEFINED), "only these are looked up"
    if node.decorator_list:
        return None
    if isinstance(node, ast.ClassDef):
        methods = [each.name for each in node.body if isinstance(each, _FUNCTIONS)]
        body = {"__call__": lambda self, trial: None} if "__call__" in methods else {}
        return type(node.name, (), body)
    names: dict[str, object] = {}
    yields = any(isinstance(each, (ast.Yield, ast.YieldFrom)) for each in _own_nodes(node.body))
    prefix = "async " if isinstance(node, ast.AsyncFunctionDef) else ""
    body_text = "yield" if yields else "pass"
    exec(f"{prefix}def {node.name}({_arguments(node.args)}): {body_text}", names)
    return names[node.name]


def _arguments(arguments: ast.arguments) -> str:
    """The arguments without annotations, and with None for each default."""
    bare = ast.arguments(
        posonlyargs=[ast.arg(each.arg) for each in arguments.posonlyargs],
        args=[ast.arg(each.arg) for each in arguments.args],
        vararg=ast.arg(arguments.vararg.arg) if arguments.vararg else None,
        kwonlyargs=[ast.arg(each.arg) for each in arguments.kwonlyargs],
        kw_defaults=[each and ast.Constant(None) for each in arguments.kw_defaults],
        kwarg=ast.arg(arguments.kwarg.arg) if arguments.kwarg else None,
        defaults=[ast.Constant(None) for _ in arguments.defaults],
    )
    return ast.unparse(bare)


def _bound(tree: ast.Module) -> set[str]:
    """Names that statements of the module set otherwise than by a definition."""
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names |= {each.asname or each.name.partition(".")[0] for each in node.names}
    return names


def _is_star(node: ast.AST) -> bool:
    return isinstance(node, ast.ImportFrom) and node.names[0].name == "*"


def _statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements that run when the module is imported, also those in `if` and `try`."""
    for node in body:
        if isinstance(node, ast.If) and _is_main_guard(node):
            yield from _statements(node.orelse)
            continue
        yield node
        if isinstance(node, (ast.If, ast.Try, ast.With)):
            yield from _statements(node.body)
        if isinstance(node, (ast.If, ast.Try)):
            yield from _statements(node.orelse)
        if isinstance(node, ast.Try):
            yield from _statements([each for one in node.handlers for each in one.body])


def _is_main_guard(node: ast.If) -> bool:
    return "__name__" in {each.id for each in ast.walk(node.test) if isinstance(each, ast.Name)}


def _own_nodes(body: Sequence[ast.stmt]) -> Iterator[ast.AST]:
    """All nodes of statements but those in functions and classes below them."""
    left: list[ast.AST] = list(body)
    while left:
        node = left.pop()
        yield node
        if not isinstance(node, (*_DEFINED, ast.Lambda)):
            guard = isinstance(node, ast.If) and _is_main_guard(node)
            left += node.orelse if guard else ast.iter_child_nodes(node)  # type: ignore[attr-defined]


def _work_at_import(tree: ast.Module, path: Path) -> str:
    calls = [node for node in _own_nodes(tree.body) if isinstance(node, ast.Call)]
    found = sorted((node.lineno, ast.unparse(node)) for node in calls if _works(node))
    if not found:
        return ""
    line, text = found[0]
    return (
        f"{path.name}, line {line}: {text:.60} runs when the module is imported, at every start. "
        'Move it into the function, or below if __name__ == "__main__":'
    )


def _uncalled(tree: ast.Module, path: Path) -> str:
    """A test of the method itself, which is always true: each trial would end at its first step."""
    for node in ast.walk(tree):
        tests = (node.test,) if isinstance(node, ast.If | ast.While | ast.IfExp) else ()
        operands = node.values if isinstance(node, ast.BoolOp) else ()
        for each in (*tests, *operands):
            if isinstance(each, ast.Attribute) and each.attr == "should_prune":
                text = ast.unparse(each)
                return (
                    f"{path.name}, line {each.lineno}: {text} is a method and always true, so that "
                    f"no trial would complete. Write {text}()"
                )
    return ""


def _works(call: ast.Call) -> bool:
    function = call.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    if name == "open" and len(call.args) > 1 and isinstance(call.args[1], ast.Constant):
        return not _WRITES.isdisjoint(str(call.args[1].value))
    return name in _WORK
