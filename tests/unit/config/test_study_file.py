"""What a valid study file becomes, with the command line laid over it."""

from __future__ import annotations

from pathlib import Path

import pytest

import tuner
from tuner.config import Direction, StudyConfig, machine_checks
from tuner.config.machine_checks import check_store_packages
from tuner.config.schema.template import study_template
from tuner.config.study_file import load_study_file
from tuner.devices.request import AutoDevices, CpuSlots
from tuner.errors import EXIT_BAD_INPUT, ConfigError
from tuner.search_spaces import DefineByRunSpace, load_ready_made

SMALL = "study: digits\ntrial: {function: m:train}\n"
COMMAND = """
study: digits
trial:
  command: [python, train.py, "--lr={lr}", 3]
  env: {RATE: "{lr}", N: 2}
  metrics: {pattern: 'step (?P<step>[0-9]+) (?P<value>[0-9.]+)'}
  timeout: 1h30m
  retries: 1
  stop_grace: 5
search_space: {lr: {type: float, low: 1e-4, high: 1e-1}}
"""


def test_small_file_has_the_defaults(load, folder: Path) -> None:
    config = load(SMALL)
    assert config.storage == f"sqlite:///{folder}/digits.db"
    assert config.objectives == {"value": Direction.MINIMIZE}
    assert config.search_space is None
    assert (config.sampler.name, config.sampler.seed, config.pruner) == ("auto", None, None)
    assert config.devices == AutoDevices()
    assert config.budget.is_open
    assert (config.trial.retries, config.trial.stop_grace_s, config.trial.timeout_s) == (
        0,
        10,
        None,
    )


def test_all_checkpoints_are_kept_unless_asked(load) -> None:
    kept = load(SMALL).checkpoints
    assert (kept.n_best, kept.newest, kept.max_disk_bytes) == (None, 2, None)


def test_object_store_is_read(load) -> None:
    kept = load(SMALL + "checkpoints: {store: s3://bucket/a/}").checkpoints
    assert kept.store is not None
    assert kept.store.url == "s3://bucket/a"
    assert load(SMALL).checkpoints.store is None


def test_object_store_without_its_packages_says_what_to_install(
    load, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_checks, "is_installed", lambda _address: False)
    check_store_packages(load(SMALL))
    with pytest.raises(ConfigError, match=r"pip install 'gpu-tuner\[gcs\]'\.") as caught:
        check_store_packages(load(SMALL + "checkpoints: {store: gs://bucket}"))
    assert caught.value.exit_code == EXIT_BAD_INPUT


def test_object_store_of_another_kind_is_refused(load) -> None:
    with pytest.raises(ConfigError, match=r"checkpoints\.store begins with ftp://, but must"):
        load(SMALL + "checkpoints: {store: ftp://host/a}")


def test_checkpoints_are_read(load) -> None:
    kept = load(SMALL + "checkpoints: {keep: best 3, newest: 1, max_disk: 50GiB}").checkpoints
    assert (kept.n_best, kept.newest, kept.max_disk_bytes) == (3, 1, 50 * 1024**3)
    assert load(SMALL + "checkpoints: {keep: all}").checkpoints.n_best is None


def test_devices_are_looked_at_every_second_unless_asked(load) -> None:
    assert load(SMALL).usage.every_s == 1
    assert load(SMALL + "usage: {every: 10s}").usage.every_s == 10


def test_a_log_keeps_100_mib_unless_the_file_says_otherwise(load) -> None:
    assert load(SMALL).trial.max_log_bytes == 100 * 1024**2
    given = "study: digits\ntrial: {function: m:train, max_log: 2MiB}\n"
    assert load(given).trial.max_log_bytes == 2 * 1024**2


def test_command_is_read_whole(load) -> None:
    trial = load(COMMAND).trial
    assert trial.command == ("python", "train.py", "--lr={lr}", "3")
    assert trial.env == {"RATE": "{lr}", "N": "2"}
    assert (trial.timeout_s, trial.retries, trial.stop_grace_s) == (5400.0, 1, 5.0)
    assert trial.metrics.regex.search("step 3 0.5")["value"] == "0.5"


def test_config_knows_where_it_came_from(load, folder: Path) -> None:
    config = load(SMALL, overrides=["sampler.seed=1"])
    assert (config.path, config.folder) == (folder / "study.yaml", folder)
    assert (config.file, config.text) == ("study.yaml", SMALL)
    assert config.overrides == ("sampler.seed=1",)


@pytest.mark.parametrize(
    ("text", "attribute", "value"),
    [
        pytest.param("devices: cpu:4", "devices", CpuSlots(n_slots=4), id="devices"),
        pytest.param(
            "search_space: a.b:c",
            "search_space",
            DefineByRunSpace(module="a.b", function="c"),
            id="define-by-run",
        ),
        pytest.param(
            "search_space: sgd.yaml", "search_space", load_ready_made("sgd"), id="ready-made"
        ),
        pytest.param("search_space:", "search_space", None, id="empty-is-absent"),
        pytest.param(
            "objectives: {a: maximize, b: minimize}",
            "objectives",
            {"a": Direction.MAXIMIZE, "b": Direction.MINIMIZE},
            id="two-objectives",
        ),
    ],
)
def test_key_is_read(load, text: str, attribute: str, value: object) -> None:
    assert getattr(load(SMALL + text), attribute) == value


def test_name_alone_is_short_for_a_mapping(load) -> None:
    assert load(SMALL + "sampler: gp").sampler == load(SMALL + "sampler: {name: gp}").sampler
    assert load(SMALL + "pruner: none").pruner.name == "none"


def test_sampler_seed_is_the_seed_of_the_study(load) -> None:
    assert load(SMALL + "sampler: {name: random, seed: 7}").sampler.seed == 7


def test_set_wins_over_the_file(load) -> None:
    config = load(COMMAND, overrides=["trial.retries=3", "search_space.lr.high=1e-2"])
    assert config.trial.retries == 3
    assert config.search_space.parameters[0].distribution.high == 0.01


def test_set_below_a_short_form_keeps_the_name(load) -> None:
    config = load(SMALL + "sampler: random", overrides=["sampler.seed=1"])
    assert (config.sampler.name, config.sampler.seed) == ("random", 1)


def test_flags_win_over_file_and_set(load) -> None:
    config = load(SMALL, overrides=["budget.trials=3"], study="other", trials=4)
    assert (config.study, config.budget.trials) == ("other", 4)


def test_words_after_dashes_end_the_command(load) -> None:
    config = load(COMMAND, extra_arguments=["--again={lr}"])
    assert config.trial.command[-2:] == ("3", "--again={lr}")


def test_config_is_frozen(load) -> None:
    with pytest.raises(ValueError, match="frozen"):
        load(SMALL).study = "x"


def test_password_is_in_no_representation(load) -> None:
    text = SMALL + "storage: postgresql+psycopg://u:${PASSWORD}@h/db"
    config = load(text, environ={"PASSWORD": "s3cret"})
    assert config.storage == "postgresql+psycopg://u:s3cret@h/db"
    assert "s3cret" not in repr(config) + str(config)


def load_in_tree(path: Path) -> StudyConfig:
    return load_study_file(path, environ={})


def test_template_of_init_is_valid(folder: Path) -> None:
    (folder / "study.yaml").write_text(study_template(folder))
    config = load_in_tree(folder / "study.yaml")
    assert config.trial.function == "tuner.trials.digits_mlp:train"
    assert config.budget.time_s == 1800


def test_digits_study_is_valid() -> None:
    config = load_in_tree(Path(tuner.__file__).parents[1] / "study.yaml")
    assert (config.study, config.budget.trials, config.sampler.seed) == ("digits-mlp", 48, 0)
    assert config.objectives == {"accuracy": Direction.MAXIMIZE}
