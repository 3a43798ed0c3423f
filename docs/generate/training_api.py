"""The page about what Python code imports, from the docstrings of the public names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from docs.generate.docstring import Docstring, Item
from docs.generate.source_reader import Class, Function, Member, Package, Value, read_package

#: Packages and modules whose `__all__` users may import, each with its heading.
PACKAGES = {
    "tuner.trials": "tuner: inside a trial",
    "tuner.trials.ddp": "tuner.ddp: several ranks",
    "tuner.frameworks.lightning": "tuner.frameworks.lightning",
    "tuner.frameworks.transformers": "tuner.frameworks.transformers",
    "tuner.frameworks.accelerate": "tuner.frameworks.accelerate",
    "tuner.frameworks.keras": "tuner.frameworks.keras",
    "tuner.frameworks.xgboost": "tuner.frameworks.xgboost",
    "tuner.frameworks.lightgbm": "tuner.frameworks.lightgbm",
    "tuner.frameworks.sklearn": "tuner.frameworks.sklearn",
    "tuner": "tuner: studies and results",
    "tuner.search_spaces": "tuner.search_spaces: spaces in Python",
}
#: Under which name users import what stands in another module.
_PUBLIC_NAMES = {"tuner.trials": "tuner", "tuner.trials.ddp": "tuner.ddp"}
_HEAD = """\
# Training code API

Public names of the Python packages. A function that the tuner calls gets a
[`TrialContext`](#trialcontext); a script gets it from [`tuner.current`](#current). How they are
used is shown in [Programs and study files](your-program.md), [Checkpoints](checkpoints.md) and
[Multi-GPU trials](multi-gpu.md).
"""


def training_api_page() -> str:
    """The page in Markdown, without the names of this module's packages being imported."""
    parts = [_HEAD]
    for name, heading in PACKAGES.items():
        # `tuner` has the names of `tuner.trials` as well.
        elsewhere = set(PACKAGES) - {name} if name == "tuner" else set()
        parts.extend(_package(read_package(name, elsewhere), heading))
    return "\n".join(parts)


def _package(package: Package, heading: str) -> Iterator[str]:
    yield f"## {heading}\n"
    yield f"{package.docstring.text}\n"
    for member in package.members:
        yield f"### {member.name}\n"
        yield from _member(_PUBLIC_NAMES.get(package.name, package.name), member)


def _member(package: str, member: Member) -> Iterator[str]:
    match member:
        case Function():
            yield from _function(member, prefix=f"{package}.")
        case Value():
            yield f"```py\n{package}.{member.name} = {member.type}\n```\n"
            yield f"{member.text}\n"
        case Class():
            yield from _class(member)


def _class(shown: Class) -> Iterator[str]:
    yield f"{shown.docstring.text}\n"
    names = {each.name for each in shown.values}
    yield from _items(
        "Arguments", [each for each in shown.docstring.arguments if each.name not in names]
    )
    if shown.values:
        rows = (f"| `{v.name}` | `{_in_a_cell(v.type)}` | {v.text} |\n" for v in shown.values)
        yield f"| attribute | type | meaning |\n|---|---|---|\n{''.join(rows)}"
    for method in shown.methods:
        yield f"#### {shown.name}.{method.name}\n"
        yield from _function(method)


def _function(shown: Function, prefix: str = "") -> Iterator[str]:
    yield f"```py\n{prefix}{shown.signature}\n```\n"
    yield from _docstring(shown.docstring)


def _docstring(docstring: Docstring) -> Iterator[str]:
    yield f"{docstring.text}\n"
    yield from _items("Arguments", docstring.arguments)
    if docstring.returns:
        yield f"Returns: {docstring.returns}\n"
    yield from _items("Raises", docstring.raises)


def _items(title: str, items: Sequence[Item]) -> Iterator[str]:
    if items:
        lines = (f"- `{each.name}`: {each.text}\n" for each in items)
        yield f"{title}:\n\n{''.join(lines)}"


def _in_a_cell(text: str) -> str:
    """Without the character that would end the cell."""
    return text.replace(" | ", " or ")
