"""Whether a study's earlier start ran another program under the same study name."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

import sqlalchemy as sa
import yaml

from tuner.store.records.dispatchers.starts import StartRecord
from tuner.store.schema.models import DispatcherRow, HostRow

_HALF = 120
#: Key in the versions of a dispatcher: the hash of its snapshot of the code.
CODE = "code"


def other_program_text(connection: sa.Connection, start: StartRecord) -> str:
    """A message if the newest start ran another program; else empty.

    Folders are compared on one host only: on another host the same folder may have another path.
    """
    query = (
        sa.select(HostRow.name, DispatcherRow.folder, DispatcherRow.study_file)
        .join(HostRow, HostRow.id == DispatcherRow.host_id)
        .where(DispatcherRow.study_id == start.study_id)
        .order_by(DispatcherRow.id.desc())
        .limit(1)
    )
    before = connection.execute(query).first()
    if before is None:
        return ""
    then, now = program_in(before.study_file), program_in(start.study_file)
    is_moved = before.name == start.host.name and before.folder != start.folder
    if then == now and not is_moved:
        return ""
    return (
        f"Note: the last start of this study, in {before.folder} on {before.name}, ran "
        f"{_cut(then)}; this one, in {start.folder}, runs {_cut(now)}. If "
        "these are different programs, their results do not belong in one study: use --study "
        "NEW_NAME."
    )


def other_code_text(connection: sa.Connection, start: StartRecord) -> str:
    """A message if running dispatchers have other code; else empty."""
    query = (
        sa.select(
            HostRow.name,
            DispatcherRow.pid,
            DispatcherRow.versions,
            DispatcherRow.git_commit,
            DispatcherRow.git_is_dirty,
        )
        .join(HostRow, HostRow.id == DispatcherRow.host_id)
        .where(DispatcherRow.study_id == start.study_id, DispatcherRow.ended_at.is_(None))
        .order_by(DispatcherRow.id)
    )
    own = code_text(start.versions, start.git.commit, start.git.is_dirty)
    others = {
        f"{row.name} (pid {row.pid}): {code}"
        for row in connection.execute(query)
        if (code := code_text(row.versions, row.git_commit, row.git_is_dirty)) != own and code
    }
    if not others or not own:
        return ""
    return (
        f"Note: this dispatcher runs {own}; others of the study run other code: "
        f"{'; '.join(sorted(others))}. Results of different code do not belong in one study."
    )


def code_text(versions: object, commit: str | None, is_dirty: bool | None) -> str:
    """The code that a dispatcher runs, such as `snapshot 1f3a...` or `commit 9c4b...`.

    Args:
        versions: Versions in its record.
        commit: Commit of the git working tree.
        is_dirty: Whether the working tree had uncommitted changes.

    Returns:
        Empty if unknown.
    """
    snapshot = versions.get(CODE) if isinstance(versions, Mapping) else None
    if snapshot:
        return f"snapshot {snapshot}"
    changes = " with changes" if is_dirty else ""
    return f"commit {commit[:12]}{changes}" if commit else ""


def last_program(connection: sa.Connection, study_id: int) -> str:
    """The program of a study's newest start; empty if there is none."""
    query = (
        sa.select(DispatcherRow.study_file)
        .where(DispatcherRow.study_id == study_id)
        .order_by(DispatcherRow.id.desc())
        .limit(1)
    )
    text = connection.execute(query).scalar()
    return program_in(text) if text else ""


def program_in(study_file: str) -> str:
    """The function, or the command with its arguments; empty if the text cannot be parsed.

    Args:
        study_file: The text of a study file.
    """
    try:
        content = yaml.safe_load(study_file)
    except yaml.YAMLError:
        return ""
    trial = content.get("trial") if isinstance(content, Mapping) else None
    found = trial.get("function") or trial.get("command") if isinstance(trial, Mapping) else None
    return shlex.join(map(str, found)) if isinstance(found, list) else str(found or "")


def _cut(program: str) -> str:
    """Shortens a long program in the middle: its last arguments are what changes."""
    if len(program) <= 2 * _HALF:
        return program
    return f"{program[:_HALF]} ... {program[-_HALF:]}"
