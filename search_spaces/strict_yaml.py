"""Reads YAML of study files, and refuses what would be misread silently.

PyYAML follows YAML 1.1, where `1e-4` is text and the second of two equal keys silently wins. Both
have cost users a night of GPU time: here `1e-4` is a number, and a repeated key is a mistake with
its line.
"""

from __future__ import annotations

import re

import yaml

MAX_BYTES = 1_000_000
"""Larger files are no study files, and would take minutes to parse."""

_MAX_DEPTH = 50
#: Beyond the values that are really written in the file; aliases multiply them.
_MAX_REPEATED_VALUES = 100_000
_MAX_WHOLE_NUMBER = 2**63
_NOT_FOR_TEXT = re.compile(r"[\x00\ud800-\udfff]")
EXPONENT_WITHOUT_POINT = re.compile(r"^[-+]?[0-9][0-9_]*[eE][-+]?[0-9]+$")


class YamlError(ValueError):
    """The text is not the YAML that a study file needs.

    Args:
        problem: A sentence without the position.
        line: Counted from 1; None if the text cannot be read at all.
        column: Counted from 1.
    """

    def __init__(self, problem: str, *, line: int | None = None, column: int | None = None) -> None:
        self.problem = problem
        self.line = line
        self.column = column
        place = "" if line is None else f"line {line}, column {column}: "
        super().__init__(f"{place}{problem}")


class _StrictLoader(yaml.SafeLoader):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            mark = self.get_mark()
            problem = f"lists and mappings are more than {_MAX_DEPTH} deep in each other."
            raise YamlError(problem, line=mark.line + 1, column=mark.column + 1)
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> object:
        try:
            value = super().construct_object(node, deep=deep)
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            # PyYAML leaves what only looks like a date or a number to Python.
            raise error if isinstance(error, YamlError) else _unreadable(node) from error
        if isinstance(value, int) and abs(value) > _MAX_WHOLE_NUMBER:
            raise _at(node, f"a whole number is at most {_MAX_WHOLE_NUMBER:,}. Put it in quotes.")
        if isinstance(value, str) and _NOT_FOR_TEXT.search(value):
            raise _at(node, f"{value!a} has a character that no file or program takes.")
        return value

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[object, object]:
        if isinstance(node, yaml.MappingNode):  # `!!map [1]` is refused by PyYAML.
            _refuse_bad_keys(self, node)
        return dict(super().construct_mapping(node, deep=deep))


_StrictLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float", EXPONENT_WITHOUT_POINT, list("-+0123456789")
)


def read_yaml(text: str) -> object:
    """Reads one YAML document: mappings with text keys, lists and scalars.

    Raises:
        YamlError: If the text is not YAML, or has a repeated key or a key that is not text.
    """
    loader = _open(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        _refuse_multiplied(node)
        _refuse_yes_in_lists(node)
        return loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        raise _with_place(error, text) from error
    except yaml.YAMLError as error:
        raise YamlError(f"not valid YAML: {error}.") from error
    finally:
        loader.dispose()


def _open(text: str) -> _StrictLoader:
    try:
        return _StrictLoader(text)
    except yaml.YAMLError as error:
        raise YamlError(f"not valid YAML: {' '.join(str(error).split())}.") from error


def _refuse_multiplied(root: yaml.Node) -> None:
    """An alias in itself has no end, and aliases of aliases fill any memory once written out."""
    sizes: dict[yaml.Node, int] = {}
    above: set[yaml.Node] = set()

    def size(node: yaml.Node) -> int:
        if node in above:
            raise _at(node, "an alias (*) is inside of the value that it names.")
        if node not in sizes:
            above.add(node)
            sizes[node] = 1 + sum(map(size, _children(node)))
            above.remove(node)
        return sizes[node]

    n_values = size(root)
    if n_values > len(sizes) + _MAX_REPEATED_VALUES:
        raise _at(root, f"aliases (*) make {n_values:,} values of {len(sizes):,}. Write fewer.")


def _refuse_yes_in_lists(root: yaml.Node) -> None:
    """Refuses `choices: [yes, no]`: text in YAML 1.2, but true and false for PyYAML."""
    seen: set[int] = set()
    left = [root]
    while left:
        node = left.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        children = _children(node)
        left += children
        if not isinstance(node, yaml.SequenceNode):
            continue
        for each in children:
            is_bool = each.tag == "tag:yaml.org,2002:bool"
            if is_bool and each.value.lower() not in ("true", "false"):
                value = each.value.lower() in ("yes", "on")
                raise _at(
                    each,
                    f"{each.value} in a list is read as {str(value).lower()}. Write "
                    f'{str(value).lower()}, or "{each.value}" in quotes for the text.',
                )


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [each for pair in node.value for each in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def _unreadable(node: yaml.Node) -> YamlError:
    kind = node.tag.rpartition(":")[2]
    written = f"{node.value!r:.60}" if isinstance(node, yaml.ScalarNode) else "this"
    return _at(node, f"{written} cannot be read as {kind}. Correct it, or put it in quotes.")


def _at(node: yaml.Node, problem: str) -> YamlError:
    mark = node.start_mark
    return YamlError(problem, line=mark.line + 1, column=mark.column + 1)


def _refuse_bad_keys(loader: _StrictLoader, node: yaml.MappingNode) -> None:
    first_lines: dict[str, int] = {}
    for key_node, _ in node.value:
        if key_node.tag == "tag:yaml.org,2002:merge":
            continue
        key = loader.construct_object(key_node)
        line, column = key_node.start_mark.line + 1, key_node.start_mark.column + 1
        if not isinstance(key, str):
            problem = f"{_key_in_words(key_node, key)}. A key must be text: put it in quotes."
            raise YamlError(problem, line=line, column=column)
        if key in first_lines:
            problem = (
                f"the key '{key}' is there twice (first on line {first_lines[key]}). Keep one."
            )
            raise YamlError(problem, line=line, column=column)
        first_lines[key] = line


def _key_in_words(node: yaml.Node, key: object) -> str:
    if isinstance(node, yaml.ScalarNode):
        return f"the key {node.value} is read as {key!r}"
    return "a key is a list or a mapping"


def _with_place(error: yaml.MarkedYAMLError, text: str) -> YamlError:
    mark = error.problem_mark or error.context_mark
    problem = _in_words(error)
    if mark is None:
        return YamlError(problem)
    if "mapping values are not allowed" in problem:
        problem = f"{problem} {_misplaced_colon(text.splitlines(), mark.line)}"
    return YamlError(problem, line=mark.line + 1, column=mark.column + 1)


def _misplaced_colon(lines: list[str], at: int) -> str:
    """Explains the usual cause of a misplaced `key: value`."""
    here = lines[at] if at < len(lines) else ""
    above = next((each for each in reversed(lines[:at]) if each.strip()), "")
    if above and not re.search(r":(\s|$)", above):
        return f"The line above it, '{above.strip():.60}', needs a colon and a blank: key: value."
    depth, depth_above = (len(each) - len(each.lstrip()) for each in (here, above))
    if depth > depth_above and above.strip():
        return (
            f"The line '{here.strip():.60}' is indented by {depth} blanks and the one above it by "
            f"{depth_above}: keys of one mapping begin in the same column."
        )
    return "Write one key: value on each line, and text with a colon in it in quotes."


def _in_words(error: yaml.MarkedYAMLError) -> str:
    problem = error.problem or "unknown mistake"
    if r"'\t'" in problem:
        return "a tab, which YAML does not allow here. Indent with spaces."
    problem = problem.replace("'<stream end>'", "the end of the file")
    context = f"{error.context}, " if error.context else ""
    return f"not valid YAML: {context}{problem}."
