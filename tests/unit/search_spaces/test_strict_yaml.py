"""YAML as people mean it, and the line of what they did not mean."""

from __future__ import annotations

import pytest

from tuner.search_spaces.strict_yaml import YamlError, read_yaml


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


BOMB = "a0: &a0 [x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 30)
)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        pytest.param(BOMB, "aliases (*) make ", id="billion-laughs"),
        pytest.param(
            "a: &a [*a]", "an alias (*) is inside of the value that it names.", id="endless"
        ),
        pytest.param("a: &a {b: *a}", "an alias (*) is inside", id="endless-mapping"),
        pytest.param("a: " + "[" * 20_000, "more than 50 deep in each other.", id="deep"),
        pytest.param("a: " + "[" * 60 + "]" * 60, "more than 50 deep", id="deep-and-closed"),
        pytest.param("- " * 9_000 + "x", "more than 50 deep", id="deep-block"),
        pytest.param("a: 2026-99-99", "'2026-99-99' cannot be read as timestamp.", id="date"),
        pytest.param("a: 0x_", "'0x_' cannot be read as int.", id="hexadecimal"),
        pytest.param("a: !!int x", "'x' cannot be read as int.", id="tag-int"),
        pytest.param("a: !!float ''", "'' cannot be read as float.", id="tag-float"),
        pytest.param("a: !!bool x", "'x' cannot be read as bool.", id="tag-bool"),
        pytest.param("a: !!timestamp x", "'x' cannot be read as timestamp.", id="tag-timestamp"),
        pytest.param("a: !!map [1]", "expected a mapping node", id="tag-map"),
        pytest.param("a: !!python/object/apply:os.system [x]", "could not determine", id="python"),
        pytest.param("a: " + "9" * 5000, "cannot be read as int.", id="more-digits-than-python"),
        pytest.param("a: 0x" + "f" * 40, "a whole number is at most 9,223,372,036", id="huge"),
        pytest.param('a: "x\\0"', "'x\\x00' has a character that no file", id="null-character"),
        pytest.param('a: "\\ud800"', "'\\ud800' has a character that no file", id="surrogate"),
    ],
)
def test_what_no_study_file_needs_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(YamlError) as caught:
        read_yaml(text)
    assert sentence in str(caught.value)
    assert str(caught.value).startswith("line 1, column ")


def test_aliases_that_people_write_are_read() -> None:
    assert read_yaml("a: &a [1, 2]\nb: *a\nc: [*a, *a]")["c"] == [[1, 2], [1, 2]]
