"""The reference page of study.yaml, generated from its JSON Schema."""

from __future__ import annotations

from tuner.config.schema.json_schema import shipped_schema
from tuner.config.schema.reference import Key, all_keys
from tuner.search_spaces.flow import flow

_INTRODUCTION = """\
# Study file reference

Every key of `study.yaml`. Only `study` and `trial` are required. An empty key at the top level is
the same as an absent one. [Programs and study files](your-program.md#the-study-file) shows a
complete file, and how to check one in an editor.

- **duration**: `90s`, `30m`, `1h30m`, `2d`, or a number of seconds.
- **size**: `8GiB`, `512MiB`, `2GB`, or a number of bytes.
- **list of words**: a program and its arguments, such as `[python, train.py]`. No shell is used.
"""


def study_file_page() -> str:
    """The reference of study.yaml, as Markdown."""
    keys = list(all_keys(shipped_schema()))
    top = [key for key in keys if len(key.path) == 1]
    rows = ["| key | type | default | meaning |", "|---|---|---|---|", *map(_row, top)]
    return "\n".join([_INTRODUCTION, *rows, "", *map(_entry, keys)])


def _row(key: Key) -> str:
    sentence = key.meaning.partition(". ")[0].removesuffix(".")
    link = f"[`{key.dotted}`](#{key.dotted})"
    default = "required" if key.is_required else key.default
    return f"| {link} | {key.type_in_words} | {default} | {sentence} |"


def _entry(key: Key) -> str:
    level = "##" if len(key.path) == 1 else "###"
    name = key.path[-1]
    examples = ", ".join(f"`{name}: {flow(each)}`" for each in key.examples)
    default = "Required." if key.is_required else f"Default: {key.default}."
    facts = f"Type: {key.type_in_words}. {default} Example: {examples}."
    return f"{level} `{key.dotted}`\n\n{key.meaning}\n\n{facts}\n"
