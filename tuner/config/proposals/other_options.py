"""Options of scripts with click, typer, fire, absl or a parser of dataclasses, from their text."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

#: Libraries that make options of a dataclass's fields.
_PARSERS = frozenset({"HfArgumentParser", "tyro", "simple_parsing", "draccus", "pyrallis"})

_COMMAND = re.compile(r"\.command(\(|$)")
_CLICK = ("click.option", "option")


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenOption:
    """One option as declared in the script: the arguments of `add_argument`."""

    flags: list[str]
    keywords: Mapping[str, ast.expr]
    #: The function of click or typer that takes it; empty for options of another kind.
    function: str = ""


#: Options of `transformers.TrainingArguments`, which a script does not declare itself.
_TRAINING_ARGUMENTS = tuple(
    WrittenOption(flags=[f"--{name}"], keywords={"default": ast.Constant(default)})
    for name, default in {
        "output_dir": None,
        "learning_rate": 5e-5,
        "weight_decay": 0.0,
        "per_device_train_batch_size": 8,
    }.items()
)


def other_options(tree: ast.Module) -> Iterator[WrittenOption]:
    """Options that are declared otherwise than by `add_argument`."""
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    names |= {
        alias.name.partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in node.names
    }
    if "HfArgumentParser" in names and "TrainingArguments" in names:
        yield from _TRAINING_ARGUMENTS
    yield from _of_configurator(tree)
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found = [*_of_click(node)]
            if not names.isdisjoint({"typer", "fire", "Fire"}) and _is_command(node, tree):
                found += _of_typer(node)
            yield from (replace(each, function=node.name) for each in found)
        elif isinstance(node, ast.Call) and "flags" in names:
            yield from _of_absl(node)
        elif isinstance(node, ast.ClassDef) and not _PARSERS.isdisjoint(names):
            yield from _of_dataclass(node)


def _of_configurator(tree: ast.Module) -> Iterator[WrittenOption]:
    """Constants at the top of a script that `exec(open("configurator.py").read())` replaces."""
    found = []
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if isinstance(node.value, ast.Constant):
                keywords: dict[str, ast.expr] = {"default": node.value}
                found.append(WrittenOption(flags=[f"--{name}"], keywords=keywords))
        elif isinstance(node, ast.Expr) and ast.unparse(node).startswith("exec(open("):
            yield from found
            return


def _of_click(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[WrittenOption]:
    for node in function.decorator_list:
        if not isinstance(node, ast.Call) or ast.unparse(node.func) not in _CLICK:
            continue
        flags = [str(each.value) for each in node.args if isinstance(each, ast.Constant)]
        keywords = {word.arg: word.value for word in node.keywords if word.arg}
        if any("/" in flag for flag in flags):
            keywords["default"] = ast.Constant(False)  # `--shout/--no-shout` is a switch.
        if "is_flag" in keywords:
            keywords["action"] = ast.Constant("store_true")
        kind = keywords.get("type")
        if isinstance(kind, ast.Call) and ast.unparse(kind.func).endswith("Choice") and kind.args:
            keywords["choices"] = kind.args[0]
        if flags and flags[0].startswith("-"):
            yield WrittenOption(
                flags=[flag for flag in flags if flag.startswith("-")], keywords=keywords
            )


def _of_absl(call: ast.Call) -> Iterator[WrittenOption]:
    """`flags.DEFINE_float("lr", 0.01, "help")` of absl."""
    _, found, kind = ast.unparse(call.func).rpartition("DEFINE_")
    name = call.args[0] if found and call.args else None
    if not isinstance(name, ast.Constant) or not isinstance(name.value, str):
        return
    keywords = {word.arg: word.value for word in call.keywords if word.arg == "default"}
    if len(call.args) > 1:
        keywords["default"] = call.args[1]
    if kind == "float":
        keywords["type"] = ast.Name("float")
    if kind == "enum" and len(call.args) > 2:
        keywords["choices"] = call.args[2]
    yield WrittenOption(flags=[f"--{name.value}"], keywords=dict(keywords))


def _is_command(function: ast.FunctionDef | ast.AsyncFunctionDef, tree: ast.Module) -> bool:
    """Whether typer or fire calls a function: `@app.command()`, `typer.run(function)` and so on."""
    if any(_COMMAND.search(ast.unparse(each)) for each in function.decorator_list):
        return True
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    starts = {f"{call}({function.name})" for call in ("typer.run", "fire.Fire", "Fire")}
    return any(ast.unparse(each) in starts for each in calls)


def _of_typer(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[WrittenOption]:
    arguments = function.args
    n_required = len(arguments.args) - len(arguments.defaults)
    for argument, default in zip(arguments.args[n_required:], arguments.defaults, strict=True):
        flag = _typer_flag(default) or _typer_flag(argument.annotation)
        flag = flag or f"--{argument.arg.replace('_', '-')}"
        option = _option(flag, argument.annotation, _plain(default))
        name = ast.Constant(argument.arg)
        yield replace(option, keywords={**option.keywords, "dest": name})


def _typer_flag(node: ast.expr | None) -> str:
    """The name in `typer.Option(0.1, "--lr")`, also in an annotation; empty for none."""
    for call in ast.walk(node) if node is not None else ():
        if isinstance(call, ast.Call) and ast.unparse(call.func).endswith("Option"):
            words = [str(each.value) for each in call.args if isinstance(each, ast.Constant)]
            flags = [each.partition("/")[0] for each in words if each.startswith("-")]
            return next((each for each in flags if each.startswith("--")), "".join(flags[:1]))
    return ""


def _of_dataclass(found: ast.ClassDef) -> Iterator[WrittenOption]:
    if not any("dataclass" in ast.unparse(each) for each in found.decorator_list):
        return
    for node in found.body:
        is_field = isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
        if is_field and node.value is not None:  # type: ignore[attr-defined]
            assert isinstance(node, ast.AnnAssign)
            assert isinstance(node.target, ast.Name)
            yield _option(f"--{node.target.id}", node.annotation, _plain(node.value))


def _plain(default: ast.expr | None) -> ast.expr:
    """The value of `field(default=0.1)` or `typer.Option(0.1, "--lr")`."""
    if isinstance(default, ast.Call):
        named = {word.arg: word.value for word in default.keywords}
        first = default.args[0] if default.args else ast.Constant(None)
        return named.get("default", first)
    return default or ast.Constant(None)


def _option(flag: str, annotation: ast.expr | None, default: ast.expr) -> WrittenOption:
    keywords: dict[str, ast.expr] = {"default": default}
    if isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value).endswith("Literal"):
        keywords["choices"] = annotation.slice
    elif annotation is not None and "float" in ast.unparse(annotation):
        keywords["type"] = ast.Name("float")
    name = flag.lstrip("-").replace("-", "_")
    return WrittenOption(flags=[flag], keywords={**keywords, "dest": ast.Constant(name)})
