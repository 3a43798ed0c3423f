"""Public names of a package, read from its source: nothing is imported that the package needs."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from docs.generate.docstring import Docstring, parse_docstring

_WIDTH = 88
_COMMENT = "#:"
_PROPERTIES = ("property", "cached_property")


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A function or a method.

    Args:
        signature: With its name, without `self`.
    """

    name: str
    signature: str
    docstring: Docstring


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A property, a field of a dataclass or a type alias: something with a type and no call."""

    name: str
    type: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Class:
    """A class with its public members, in the order of the source."""

    name: str
    docstring: Docstring
    values: tuple[Value, ...]
    methods: tuple[Function, ...]


Member: TypeAlias = Function | Class | Value


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """What a package or module offers to its users: the names in its `__all__`, in that order."""

    name: str
    docstring: Docstring
    members: tuple[Member, ...]


def read_package(name: str, elsewhere: Collection[str] = ()) -> Package:
    """Reads a package.

    Args:
        name: Dotted, such as `tuner.ddp`.
        elsewhere: Packages with a page of their own. What is imported from them is left out.

    Raises:
        LookupError: If there is no such package, or a name of its `__all__` is not defined.
    """
    source = _read(name)
    return Package(
        name=name,
        docstring=parse_docstring(ast.get_docstring(source.tree)),
        members=tuple(
            _member(source, each)
            for each in _all_of(source)
            if not _is_imported_from(source, each, elsewhere)
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    name: str
    tree: ast.Module
    lines: list[str]


def _read(module: str) -> _Source:
    found = importlib.util.find_spec(module)
    if found is None or found.origin is None:
        raise LookupError(f"There is no module {module}.")
    text = Path(found.origin).read_text(encoding="utf-8")
    return _Source(name=module, tree=ast.parse(text), lines=text.splitlines())


def _all_of(source: _Source) -> list[str]:
    for node in source.tree.body:
        if isinstance(node, ast.Assign) and _name_of(node.targets[0]) == "__all__":
            return [str(each) for each in ast.literal_eval(node.value)]
    raise LookupError(f"{source.name} has no __all__.")


def _is_imported_from(source: _Source, name: str, packages: Collection[str]) -> bool:
    return any(
        isinstance(each, ast.ImportFrom)
        and any(f"{each.module}.".startswith(f"{package}.") for package in packages)
        and name in {alias.name for alias in each.names}
        for each in ast.walk(source.tree)
    )


def _member(source: _Source, name: str) -> Member:
    for node in source.tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return _function(node)
        if isinstance(node, ast.ClassDef) and node.name == name:
            return _class(source, node)
        if isinstance(node, ast.AnnAssign) and _name_of(node.target) == name:
            return _alias(source, node)
    # Imports for type checkers alone count: a package may import its names on first use.
    for each in ast.walk(source.tree):
        if isinstance(each, ast.ImportFrom) and name in {alias.name for alias in each.names}:
            return _member(_read(each.module or source.name), name)
    raise LookupError(f"{source.name} does not define {name}.")


def _alias(source: _Source, node: ast.AnnAssign) -> Value:
    value = node.value
    text = value.value if isinstance(value, ast.Constant) else ast.unparse(value) if value else ""
    return Value(name=_name_of(node.target), type=str(text), text=_comment_above(source, node))


def _class(source: _Source, node: ast.ClassDef) -> Class:
    docstring = parse_docstring(ast.get_docstring(node))
    public = [each for each in node.body if not _declared_name(each).startswith("_")]
    is_data = any("dataclass" in ast.unparse(each) for each in node.decorator_list)
    fields = (
        Value(
            name=_name_of(each.target),
            type=ast.unparse(each.annotation),
            text=_comment_above(source, each) or docstring.argument(_name_of(each.target)),
        )
        for each in public
        if is_data and isinstance(each, ast.AnnAssign)
    )
    functions = [each for each in public if isinstance(each, ast.FunctionDef)]
    inherited = [each for base in node.bases for each in _inherited(source, ast.unparse(base))]
    own = {each.name for each in functions}
    functions = [*(each for each in inherited if each.name not in own), *functions]
    properties = (_property(each) for each in functions if _is_property(each))
    return Class(
        name=node.name,
        docstring=docstring,
        values=(*fields, *properties),
        methods=tuple(_function(each) for each in functions if not _is_property(each)),
    )


def _inherited(source: _Source, base: str) -> list[ast.FunctionDef]:
    """Public methods and properties of a base class that another module of the project defines."""
    for each in source.tree.body:
        if not isinstance(each, ast.ImportFrom) or not (each.module or "").startswith("tuner."):
            continue
        if base in {alias.name for alias in each.names}:
            tree = _read(str(each.module)).tree
            found = (c for c in tree.body if isinstance(c, ast.ClassDef) and c.name == base)
            members = (m for c in found for m in c.body if isinstance(m, ast.FunctionDef))
            return [member for member in members if not member.name.startswith("_")]
    return []


def _property(node: ast.FunctionDef) -> Value:
    docstring = parse_docstring(ast.get_docstring(node))
    return Value(name=node.name, type=_result(node), text=docstring.in_one_line)


def _function(node: ast.FunctionDef) -> Function:
    arguments = list(_arguments(node.args))
    result = _result(node)
    signature = f"{node.name}({', '.join(arguments)}) -> {result}"
    if len(signature) > _WIDTH:
        lines = "".join(f"    {each},\n" for each in arguments)
        signature = f"{node.name}(\n{lines}) -> {result}"
    docstring = parse_docstring(ast.get_docstring(node))
    return Function(name=node.name, signature=signature, docstring=docstring)


def _result(node: ast.FunctionDef) -> str:
    decorators = {ast.unparse(each) for each in node.decorator_list}
    if "contextlib.contextmanager" in decorators:
        return "ContextManager"
    return ast.unparse(node.returns) if node.returns else "None"


def _arguments(arguments: ast.arguments) -> Iterator[str]:
    """Each argument as a caller sees it, with the `*` before those that need their names."""
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(arguments.defaults))
    pairs = zip(positional, [*defaults, *arguments.defaults], strict=True)
    for place, (each, default) in enumerate(pairs, start=1):
        if each.arg not in ("self", "cls"):
            yield _argument(each, default)
        if place == len(arguments.posonlyargs):
            yield "/"
    if arguments.vararg:
        yield f"*{_argument(arguments.vararg, None)}"
    elif arguments.kwonlyargs:
        yield "*"
    for each, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        yield _argument(each, default)
    if arguments.kwarg:
        yield f"**{_argument(arguments.kwarg, None)}"


def _argument(argument: ast.arg, default: ast.expr | None) -> str:
    if argument.annotation is None:
        return argument.arg if default is None else f"{argument.arg}={ast.unparse(default)}"
    text = f"{argument.arg}: {ast.unparse(argument.annotation)}"
    return text if default is None else f"{text} = {ast.unparse(default)}"


def _comment_above(source: _Source, node: ast.stmt) -> str:
    """The lines that begin with `#:` directly above a statement, without line breaks."""
    texts: list[str] = []
    for line in reversed(source.lines[: node.lineno - 1]):
        if not line.strip().startswith(_COMMENT):
            break
        texts.insert(0, line.strip().removeprefix(_COMMENT).strip())
    return " ".join(texts)


def _is_property(node: ast.FunctionDef) -> bool:
    return any(ast.unparse(each) in _PROPERTIES for each in node.decorator_list)


def _declared_name(node: ast.stmt) -> str:
    if isinstance(node, ast.FunctionDef):
        return node.name
    return _name_of(node.target) if isinstance(node, ast.AnnAssign) else "_"


def _name_of(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else ""
