"""Names that users write: a rename breaks their code or their scripts, and needs a changelog line.

The lists below are literal on purpose. Change one only together with CHANGELOG.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.main import get_command

import tuner
from docs.generate.source_reader import read_package
from tuner import search_spaces, trials
from tuner.cli.main import app

#: Each command with its options.
COMMANDS = """
best: --format --study --top
cancel: --debug --on --study
copy: --debug --space --study --to --to-storage
dashboard: --debug --host --port --study --token-file
db backup: --output -o
db restore:
db serve: --folder --host --no-tls --port
db status:
db upgrade:
delete: --debug --files --study --yes
devices: --allocations --interval --json --study --watch
docs: --debug --no-browser
enqueue: --debug --params --skip-existing --study
export: --debug --force --output --study -o
import: --as --debug --study
init: --force --from
logs: --allocation --attempt --follow --rank --study --tail -f -n
pause: --debug --study
queue:
report: --debug --output --study -o
resume: --debug --study
retry: --debug --study --trial
run: --adapt --best --debug --dry-run --engine --files --json --metrics-host --metrics-port --set --study --trials
scale: --debug --on --study
schedule: --debug --force --json --output --study --trial -o
schema:
set: --debug --host --pid --study
shares check:
simulate: --curves --debug --devices --jobs --output --pruner --restart --seeds --whole -o
status: --debug --json --study
stop: --debug --study --trial
studies: --debug --json
submit: --adapt --debug --dry-run --nodes --on --study
trials: --csv --debug --json --last --reports --sort --state --study --top
validate: --debug --set
why: --debug --study
"""  # noqa: E501


def test_names_of_the_package_tuner() -> None:
    assert sorted(tuner.__all__) == [
        "BestConfiguration",
        "Params",
        "Schedule",
        "Study",
        "StudyInterrupted",
        "TrialContext",
        "current",
        "ddp",
        "load_best",
        "load_schedule",
        "load_top",
        "run",
        "tune",
    ]
    assert all(hasattr(tuner, name) for name in tuner.__all__)


def test_names_of_the_package_trials() -> None:
    assert sorted(trials.__all__) == ["Params", "TrialContext", "current"]
    assert all(hasattr(trials, name) for name in trials.__all__)


FRAMEWORKS = {
    "accelerate": ["accelerator_arguments", "load_state", "save_state"],
    "keras": ["SaveCallback", "first_epoch", "resumed"],
    "lightgbm": ["TrialCallback", "resumed", "rounds_left"],
    "lightning": ["TrialCallback", "resume_path", "trainer_arguments"],
    "transformers": ["TrialCallback", "resume_path", "training_arguments"],
    "sklearn": ["load_estimator", "save_estimator"],
    "xgboost": ["TrialCallback", "device_parameters", "resumed", "rounds_left"],
}


def test_names_of_the_frameworks() -> None:
    folder = Path(tuner.__file__).parent / "frameworks"
    modules = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    found = {}
    for module in modules:
        package = read_package(f"tuner.frameworks.{module}", set())
        found[module] = sorted(member.name for member in package.members)
    assert found == FRAMEWORKS


def test_what_training_code_calls() -> None:
    assert sorted(_public(trials.TrialContext)) == [
        "attempt_number",
        "autocast",
        "checkpoint_dir",
        "checkpoint_path",
        "constraints",
        "datetime_start",
        "device",
        "device_labels",
        "devices",
        "distributions",
        "is_main",
        "load_checkpoint",
        "local_rank",
        "new_checkpoint",
        "newest_checkpoint",
        "number",
        "objectives",
        "params",
        "profile",
        "rank",
        "rank_seed",
        "relative_params",
        "report",
        "save_checkpoint",
        "seed",
        "seed_everything",
        "set_constraint",
        "set_user_attr",
        "should_prune",
        "storage",
        "study",
        "suggest_categorical",
        "suggest_discrete_uniform",
        "suggest_float",
        "suggest_int",
        "suggest_loguniform",
        "suggest_uniform",
        "system_attrs",
        "user_attrs",
        "wait_for_checkpoint",
        "world_size",
    ]


def test_what_is_loaded_of_a_study() -> None:
    assert sorted(_public(tuner.BestConfiguration)) == [
        "checkpoint",
        "command",
        "confirmed",
        "git_commit",
        "git_is_dirty",
        "load_checkpoint",
        "params",
        "seed",
        "study",
        "trial_number",
        "value",
        "values",
    ]
    assert sorted(_public(tuner.Schedule)) == [
        "as_json",
        "at",
        "last_step",
        "phases",
        "study",
        "trial",
        "values",
    ]


def test_what_a_started_study_has() -> None:
    assert sorted(_public(tuner.Study)) == [
        "best",
        "figures",
        "is_running",
        "name",
        "stop",
        "storage",
        "trials",
        "wait",
    ]


def test_names_of_the_package_search_spaces() -> None:
    assert sorted(search_spaces.__all__) == [
        "AnySpace",
        "DefineByRunSpace",
        "ParamValue",
        "Parameter",
        "Scalar",
        "SearchSpace",
        "SpaceError",
        "differences",
        "from_json",
        "identity",
        "load_ready_made",
        "load_space",
        "parse_space",
        "ready_made",
        "to_json",
    ]
    assert all(hasattr(search_spaces, name) for name in search_spaces.__all__)


def test_commands_and_their_options() -> None:
    command = get_command(app)
    assert _options(command) == ["--version"]
    assert [_line(*each) for each in _commands(command)] == COMMANDS.strip().splitlines()


#: Positional arguments of commands that are about no stored study.
_OTHERS = {
    "db backup": ["[STUDY]"],
    "db restore": ["dump", "[STUDY]"],
    "db serve": [],
    "db status": ["[STUDY]"],
    "db upgrade": ["[STUDY]"],
    "import": ["FILE|URL", "[STUDY]"],
    "init": ["file", "[-- COMMAND]"],
    "run": ["file", "[-- ARGUMENTS]"],
    **{path: ["file"] for path in ("simulate", "validate")},
    **{path: [] for path in ("devices", "docs", "schema")},
    "cancel": ["file"],
    "queue": ["[STUDY | list | move NUMBER PLACE | remove NUMBER]"],
    "scale": ["[FILE] NODES"],
    "shares check": ["file"],
    "submit": ["file"],
}


def test_the_study_comes_first_in_every_command_and_then_the_trial() -> None:
    """`tuner logs digits 17`, `tuner why digits 17`, `tuner set digits budget.trials=9`."""
    for path, command in _commands(get_command(app)):
        words = [each for each in command.params if each.param_type_name == "argument"]
        shown = [each.metavar or each.name for each in words]
        if path in _OTHERS:
            assert shown == _OTHERS[path]
            continue
        first, *more = " ".join(shown).split()
        assert first == "[STUDY]", path
        assert more in ([], ["TRIAL"], ["KEY=VALUE..."]), path
        assert ("--study" in _options(command)) or path == "studies", path


def _public(made: type) -> set[str]:
    return {name for name in dir(made) if not name.startswith("_")}


def _commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """All commands below one, in the order of their names."""
    if not hasattr(command, "commands"):
        yield " ".join(path), command
        return
    for name, each in sorted(command.commands.items()):
        yield from _commands(each, (*path, name))


def _line(path: str, command: Any) -> str:
    return " ".join([f"{path}:", *_options(command)])


def _options(command: Any) -> list[str]:
    words = (word for each in command.params for word in (*each.opts, *each.secondary_opts))
    return sorted(word for word in words if word.startswith("-"))
