"""YAML as people mean it, and the line of what they did not mean."""

from __future__ import annotations

import pytest

from search_spaces.strict_yaml import YamlError, read_yaml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-4", 1e-4),
        ("1E3", 1000.0),
        ("-2e+5", -200000.0),
        ("1.5e-4", 1.5e-4),
        ("'1e-4'", "1e-4"),
        ("1e", "1e"),
        ("e5", "e5"),
        ("12", 12),
        ("", None),
    ],
)
def test_scalar_is_read_as_meant(text: str, value: object) -> None:
    assert read_yaml(text) == value
    assert type(read_yaml(text)) is type(value)


def test_merge_key_is_no_repeated_key() -> None:
    assert read_yaml("a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}")["b"] == {"x": 1, "y": 3}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(
            "a: 1\nb: {c: 1,\n    c: 2}",
            "line 3, column 5: the key 'c' is there twice (first on line 2). Keep one.",
            id="repeated",
        ),
        pytest.param(
            "on: 1",
            "line 1, column 1: the key on is read as True. A key must be text: put it in quotes.",
            id="bool-key",
        ),
        pytest.param(
            "[1]: 1",
            "line 1, column 1: a key is a list or a mapping. A key must be text: put it in quotes.",
            id="list-key",
        ),
        pytest.param(
            "a:\n\tb: 1",
            "line 2, column 1: a tab, which YAML does not allow here. Indent with spaces.",
            id="tab",
        ),
        pytest.param(
            "a: [1",
            "line 1, column 6: not valid YAML: while parsing a flow sequence, "
            "expected ',' or ']', but got the end of the file.",
            id="unclosed",
        ),
        pytest.param(
            "a: !!python/object:os.x 1",
            "line 1, column 4: not valid YAML: could not determine a constructor for the tag "
            "'tag:yaml.org,2002:python/object:os.x'.",
            id="object",
        ),
        pytest.param(
            "\x00",
            "not valid YAML: unacceptable character #x0000: special characters are not allowed "
            'in "<unicode string>", position 0.',
            id="control-character",
        ),
    ],
)
def test_mistake_has_its_line(text: str, message: str) -> None:
    with pytest.raises(YamlError) as caught:
        read_yaml(text)
    assert str(caught.value) == message
