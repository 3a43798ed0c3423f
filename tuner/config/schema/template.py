"""The study file that `tuner init` writes: a template, with comments from the schema."""

from __future__ import annotations

import re
import textwrap
from importlib import resources
from pathlib import Path

from tuner.config.schema.json_schema import schema_path, shipped_schema
from tuner.config.schema.reference import all_keys

_TEMPLATE = "study_template.yaml"
_WIDTH = 100
#: A line such as `#@ trial.timeout` becomes the description of that key; `#@: trial.timeout` the
#: same after the key's name.
_MARK = re.compile(r"^(?P<indent> *)#@(?P<named>:?) (?P<key>[\w.]+)$", re.MULTILINE)


def study_template(folder: Path) -> str:
    """A study file with comments on its keys.

    Args:
        folder: Folder of the file. Its first line names the schema for editors.
    """
    text = resources.files("tuner.config.schema").joinpath(_TEMPLATE).read_text(encoding="utf-8")
    return schema_line(folder) + _with_comments(text)


def schema_line(folder: Path) -> str:
    """The comment from which editors learn the schema of a study file.

    An environment inside of the folder, such as .venv, is named by a relative path, which is true
    on other machines too. Any other is named by the URL of the installed file.
    """
    path, folder = schema_path().absolute(), folder.absolute()
    is_inside = path.is_relative_to(folder) and " " not in str(path.relative_to(folder))
    address = path.relative_to(folder).as_posix() if is_inside else path.as_uri()
    return f"# yaml-language-server: $schema={address}\n"


def _with_comments(text: str) -> str:
    meanings = {key.dotted: key.description for key in all_keys(shipped_schema())}

    def comment(match: re.Match[str]) -> str:
        begin = f"{match['indent']}# "
        name = f"{match['key'].rpartition('.')[2]}: " if match["named"] else ""
        return textwrap.fill(
            name + meanings[match["key"]].replace("`", ""),
            _WIDTH,
            initial_indent=begin,
            subsequent_indent=begin,
            break_on_hyphens=False,
        )

    return _MARK.sub(comment, text)
