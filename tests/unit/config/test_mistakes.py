"""Every mistake in a study file gets one message: file, key, value, what is allowed, what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.config.study_file import load_study_file
from tuner.errors import EXIT_BAD_INPUT, ConfigError

SMALL = "study: digits\ntrial: {function: m:train}\n"
FILLED = (
    "The tuner itself fills {trial_number}, {attempt_number}, {seed}, {checkpoint_dir}, {gpus}. "
)
LR = "search_space: {lr: {type: float, low: 0.1, high: 1}}\n"
DURATION = "a duration above 0, such as 90s, 30m, 1h30m or 2d, or a number of seconds."
URL = (
    "a SQLAlchemy URL: sqlite:///study.db, postgresql://user:${DB_PASSWORD}@host/name "
    "or mysql://user:${DB_PASSWORD}@host/name."
)


def trial(body: str) -> str:
    return f"study: digits\ntrial: {{{body}}}\n"


FILE = [
    pytest.param(
        "",
        "the file is empty. Write a study, or let `tuner init` write one to start from.",
        id="empty-file",
    ),
    pytest.param(
        "- a",
        "holds a list, but must be a mapping with keys such as study: and trial:.",
        id="list",
    ),
    pytest.param(
        "hello",
        "holds a single value, but must be a mapping with keys such as study: and trial:.",
        id="text",
    ),
    pytest.param(
        "study: [1",
        "line 1, column 10: not valid YAML: while parsing a flow sequence, "
        "expected ',' or ']', but got the end of the file.",
        id="not-yaml",
    ),
    pytest.param(
        "study: a\nstudy: b",
        "line 2, column 1: the key 'study' is there twice (first on line 1). Keep one.",
        id="repeated-key",
    ),
    pytest.param(
        "study:\n\tx: 1",
        "line 2, column 1: a tab, which YAML does not allow here. Indent with spaces.",
        id="tab",
    ),
]
KEYS = [
    pytest.param(
        SMALL + "samplr: tpe", "unknown key 'samplr'. Did you mean 'sampler'?", id="near-key"
    ),
    pytest.param(
        trial("function: m:f, resorces: {gpus: 1}"),
        "unknown key 'trial.resorces'. Did you mean 'trial.resources'?",
        id="near-key-deep",
    ),
    pytest.param(
        SMALL + "timeout: 1h",
        "unknown key 'timeout'. Did you mean 'trial.timeout'?",
        id="key-of-another-mapping",
    ),
    pytest.param(
        SMALL + "budget: {zzz: 1}",
        "unknown key 'budget.zzz'. Known keys: budget.trials, budget.time, budget.device_hours, "
        "budget.energy.",
        id="far-key",
    ),
    pytest.param(
        SMALL + "path: x",
        "unknown key 'path'. Known keys: study, storage, objectives, trial, search_space, "
        "sampler, prior, transfer, pruner, devices, max_gpus, budget, on_finish, on_best, "
        "on_failure, on_alert, track, checkpoints, usage, widen, confirm.",
        id="name-of-a-property",
    ),
    pytest.param(
        "trial: {function: m:f}",
        "study is missing. Name the study, for example study: digits-mlp.",
        id="no-study",
    ),
    pytest.param(
        "study: x\ntrial:",
        "trial is missing. Say what to run, for example trial: {function: train:main}.",
        id="no-trial",
    ),
]
VALUES = [
    pytest.param(
        "study: 3\ntrial: {function: m:f}",
        'study is 3, but must be text. Put it in quotes: "3".',
        id="study-number",
    ),
    pytest.param(
        "study: a/b\ntrial: {function: m:f}",
        "study is 'a/b', but must be without slashes and line breaks, and at most 200 characters: "
        "it names files too.",
        id="study-slash",
    ),
    pytest.param(
        "study: ''\ntrial: {function: m:f}",
        "study is '', but must be a name, such as digits-mlp.",
        id="study-empty",
    ),
    pytest.param(
        SMALL + "budget: {trials: many}",
        "budget.trials is 'many', but must be a whole number (for example 64).",
        id="trials-text",
    ),
    pytest.param(
        SMALL + "budget: {trials: true}",
        "budget.trials is true, but must be a whole number (for example 64).",
        id="trials-bool",
    ),
    pytest.param(
        SMALL + "budget: {trials: 0}", "budget.trials is 0, but must be at least 1.", id="trials-0"
    ),
    pytest.param(
        SMALL + "budget: {time: soon}", f"budget.time is 'soon', but must be {DURATION}", id="time"
    ),
    pytest.param(
        SMALL + "budget: {device_hours: -1}",
        "budget.device_hours is -1, but must be a number above 0.",
        id="device-hours",
    ),
    pytest.param(
        SMALL + "budget: 3",
        "budget is 3, but must be a mapping, with one `key: value` per line. "
        "Write budget: {trials: 3}",
        id="budget-number",
    ),
    pytest.param(
        SMALL + "objectives: [accuracy]",
        "objectives is ['accuracy'], but must be a mapping, such as {accuracy: maximize}.",
        id="objectives-list",
    ),
    pytest.param(
        SMALL + "objectives: {}",
        "objectives is empty, but must have at least one objective, such as {accuracy: maximize}.",
        id="no-objective",
    ),
    pytest.param(
        SMALL + "objectives: {accuracy: max}",
        "objectives.accuracy is 'max', but must be 'minimize' or 'maximize'. "
        "Did you mean 'maximize'?",
        id="direction",
    ),
    pytest.param(
        SMALL + "objectives: {step: maximize}",
        "objectives has an objective named 'step', which means training steps. Rename it.",
        id="objective-step",
    ),
    pytest.param(
        SMALL + "sampler: 3",
        "sampler is 3, but must be a name or a mapping: {name: auto}.",
        id="sampler-number",
    ),
    pytest.param(
        SMALL + "sampler: {seed: x}",
        "sampler.seed is 'x', but must be a whole number from 0 to 4294967295.",
        id="seed",
    ),
    pytest.param(
        SMALL + "pruner: {name: 3}",
        'pruner.name is 3, but must be text. Put it in quotes: "3".',
        id="pruner-name",
    ),
    pytest.param(
        SMALL + "devices: gpu",
        "devices is 'gpu'. Allowed: auto, all, cpu:N (such as cpu:4), or a list of GPU numbers and "
        "UUIDs (such as [0, 1]). Write auto for every idle GPU.",
        id="devices",
    ),
    pytest.param(
        SMALL + "search_space: {lr: {type: float, low: 1, high: 0.1}}",
        "search_space.lr.low is 1.0, but must be below high, which is 0.1. Swap the two.",
        id="space",
    ),
]
TRIAL = [
    pytest.param(
        trial("retries: 1"),
        "trial has neither function nor command. Give one of them: "
        "function: train:main, or command: [python, train.py].",
        id="nothing-to-run",
    ),
    pytest.param(
        trial("function: m:f, command: [a]"),
        "trial has both function and command. Give one of them: "
        "function: train:main, or command: [python, train.py].",
        id="both",
    ),
    pytest.param(
        trial("command: python train.py"),
        "trial.command is the text 'python train.py', but must be a list of words, such as "
        '[python, train.py, "--lr={lr}"]: the tuner uses no shell, so that no quoting is needed.',
        id="command-text",
    ),
    pytest.param(
        trial("command: []"),
        "trial.command must begin with a program, such as [python, train.py].",
        id="command-empty",
    ),
    pytest.param(
        trial("command: [a, [b]]"),
        "trial.command[1] is ['b'], but must be text or a number.",
        id="command-nested",
    ),
    pytest.param(
        trial("function: train.py"),
        "trial.function is 'train.py', but must be module:function, such as "
        "train:main. Write the name of the function too: train:NAME.",
        id="function-path",
    ),
    pytest.param(
        trial("function: m:f, parallel: ddp, resources: {gpus: 1}"),
        "trial.parallel is 'ddp', but a trial here has one device at most "
        "(trial.resources.gpus is not above 1). Remove trial.parallel.",
        id="parallel-one-gpu",
    ),
    pytest.param(
        trial("function: m:f, resources: {gpus: 0}"),
        "trial.resources.gpus is 0, but must be a number above 0.",
        id="no-gpus",
    ),
    pytest.param(
        trial("function: m:f, resources: {gpus: 1, cpus: 1}"),
        "trial.resources has both gpus and cpus. Give one of them, for example {gpus: 1}.",
        id="two-kinds",
    ),
    pytest.param(
        trial("function: m:f, parallel: ddp"),
        "trial.parallel is 'ddp', but a trial here has one device at most "
        "(trial.resources is not above 1). Remove trial.parallel.",
        id="parallel-without-resources",
    ),
    pytest.param(
        trial("function: m:f, resources: {gpus: 1.5}"),
        "trial.resources.gpus is 1.5, but must be a whole number of devices, or a share of one "
        "below 1.",
        id="one-and-a-half-gpus",
    ),
    pytest.param(
        trial("function: m:f, resources: {gpus: many}"),
        "trial.resources.gpus is 'many', but must be a number, or a parameter in braces, such as "
        '"{world_size}".',
        id="gpus-in-words",
    ),
    pytest.param(
        trial("function: m:f, resources: {gpus: '{world_size}'}")
        + "search_space: {worldsize: {type: int, low: 1, high: 2}}\n",
        "trial.resources.gpus is '{world_size}', but world_size is not in search_space. "
        "Did you mean '{worldsize}'?",
        id="width-by-unknown-parameter",
    ),
    pytest.param(
        trial("function: m:f, resources: {gpus: '{w}'}") + "search_space: m:space\n",
        "trial.resources.gpus is '{w}', but a trial's devices are chosen before its program draws "
        "parameters. Declare w in search_space.",
        id="width-by-parameter-drawn-later",
    ),
    pytest.param(
        trial("function: m:f, resources: {gpus: '{w}'}")
        + "search_space: {a: {type: categorical, choices: [x, y]}, "
        "w: {type: int, low: 1, high: 2, when: {a: x}}}\n",
        "trial.resources.gpus is '{w}', but w is absent in some trials. "
        "Name a parameter without `when`.",
        id="width-by-conditional-parameter",
    ),
    pytest.param(
        trial("function: m:f, resources: {gpus: '{w}'}")
        + "search_space: {w: {type: float, low: 0.5, high: 1.5}}\n",
        "trial.resources.gpus is '{w}', but w can be 1.5, which must be a whole number of "
        "devices, or a share of one below 1.",
        id="width-by-unfit-parameter",
    ),
    pytest.param(
        SMALL + "checkpoints: {keep: 3}",
        "checkpoints.keep is 3, but must be 'all', or 'best' and a number of trials, such as "
        "best 3. Write: best 3.",
        id="keep-number",
    ),
    pytest.param(
        SMALL + "checkpoints: {keep: best 0}",
        "checkpoints.keep is 'best 0', but must be 'all', or 'best' and a number of trials, such "
        "as best 3.",
        id="keep-none",
    ),
    pytest.param(
        SMALL + "checkpoints: {newest: 0}",
        "checkpoints.newest is 0, but must be at least 1.",
        id="newest-none",
    ),
    pytest.param(
        SMALL + "checkpoints: {max_disk: much}",
        "checkpoints.max_disk is 'much', but must be a size, such as 8GiB or 512MiB.",
        id="max-disk",
    ),
    pytest.param(
        trial("function: m:f, max_log: much"),
        "trial.max_log is 'much', but must be a size, such as 8GiB or 512MiB.",
        id="max-log",
    ),
    pytest.param(
        trial("function: m:f, max_log: 10kB"),
        "trial.max_log is '10kB', but must be 1MiB or more.",
        id="max-log-too-small",
    ),
    pytest.param(
        "study: x\ntrial: {function: m:f, profile: {trial: worst}}",
        "trial.profile.trial is 'worst', but must be best or the number of a trial.",
        id="profile-of-no-trial",
    ),
    pytest.param(
        "study: x\ntrial: {function: m:f, profile: {trial: 0, steps: 10}}",
        "trial.profile.steps must be the first and the last step, such as [10, 20].",
        id="profile-of-one-step",
    ),
    pytest.param(
        "study: x\ntrial: {function: m:f, profile: {trial: 0, steps: [9, 3]}}",
        "trial.profile.steps is [9, 3], but the first step must not be after the last.",
        id="profile-backwards",
    ),
    pytest.param(
        "study: x\nobjectives: {a: minimize, b: minimize}\n"
        "trial: {function: m:f, profile: {trial: best}}",
        "trial.profile.trial is 'best', but the study has 2 objectives, so that no trial is the "
        "best. Give the number of a trial.",
        id="profile-of-several-objectives",
    ),
    pytest.param(
        SMALL + "track: runs/",
        "track must be a mapping of trackers, such as {tensorboard: runs/}.",
        id="track-no-mapping",
    ),
    pytest.param(
        SMALL + "track: {tensorboard: 1}",
        "track.tensorboard is 1, but must be text, such as {tensorboard: runs/}, or a mapping.",
        id="track-number",
    ),
    pytest.param(
        SMALL + "track: {tensorboard: ''}",
        "track.tensorboard is '', but must be text, such as {tensorboard: runs/}, or a mapping.",
        id="track-nowhere",
    ),
    pytest.param(
        SMALL + "usage: {every: 100ms}",
        "usage.every is '100ms', but must be a duration above 0, such as 90s, 30m, 1h30m or 2d, "
        "or a number of seconds.",
        id="usage-no-duration",
    ),
    pytest.param(
        SMALL + "usage: {every: 2m}",
        "usage.every is '2m', but must be from 1s to 1m.",
        id="usage-too-seldom",
    ),
    pytest.param(
        SMALL + "search_space: {lr: {type: float, low: 0.1, high: 1.0}}\nprior: {lrr: 0.5}",
        "prior.lrr is no parameter of search_space. Did you mean 'lr'?",
        id="prior-of-nothing",
    ),
    pytest.param(
        SMALL + "search_space: {lr: {type: float, low: 0.1, high: 1.0}}\nprior: {lr: 3}",
        "prior.lr is 3, but must be a number from 0.1 to 1, as search_space has it.",
        id="prior-outside",
    ),
    pytest.param(
        SMALL + "search_space: {lr: {type: float, low: 0.1, high: 1.0}}\nprior: {lr: '0.3'}",
        "prior.lr is '0.3', but must be a number from 0.1 to 1, as search_space has it. "
        "Write it without quotes.",
        id="prior-in-quotes",
    ),
    pytest.param(
        SMALL + "search_space: {o: {type: categorical, choices: [a, b]}}\nprior: {o: c}",
        "prior.o is 'c', but must be one of a, b, as search_space has it.",
        id="prior-no-choice",
    ),
    pytest.param(
        SMALL + "search_space: {x: {type: float, low: 0, high: 1}, n: 3}\nprior: {n: 3}",
        "prior.n is a constant of search_space, which is not searched. Remove it.",
        id="prior-constant",
    ),
    pytest.param(
        SMALL + "sampler: cmaes\nprior: {x: 3}",
        "prior works with auto, curve_gp, tpe, random, gp, but sampler is 'cmaes'. Choose another.",
        id="prior-sampler",
    ),
    pytest.param(
        SMALL + "prior: 3",
        "prior must be a mapping of parameters to the values that you believe in, such as "
        "{lr: 3.0e-4, width: 128}.",
        id="prior-no-mapping",
    ),
    pytest.param(
        SMALL + "prior: {x: [1, 2]}",
        "prior has [1, 2] for 'x', but must have one value of each.",
        id="prior-list",
    ),
    pytest.param(
        SMALL + "budget: {energy: 5 kW}",
        "budget.energy is '5 kW', but must be an energy above 0, such as 5kWh or 800Wh.",
        id="energy-is-no-power",
    ),
    pytest.param(
        SMALL + "budget: {energy: 0}",
        "budget.energy is 0, but must be an energy above 0, such as 5kWh or 800Wh.",
        id="no-energy",
    ),
    pytest.param(
        SMALL + "confirm: {top: 0}",
        "confirm.top is 0, but must be at least 1.",
        id="confirm-nobody",
    ),
    pytest.param(
        SMALL + "confirm: {seeds: 1}",
        "confirm.seeds is 1, but must be at least 2.",
        id="confirm-once",
    ),
    pytest.param(
        SMALL + "confirm: true",
        "confirm is true, but must be a mapping, with one `key: value` per line.",
        id="confirm-no-mapping",
    ),
    pytest.param(
        SMALL + "confirm: {repeats: 3}",
        "unknown key 'confirm.repeats'. Known keys: confirm.top, confirm.seeds.",
        id="confirm-unknown-key",
    ),
    pytest.param(
        SMALL + "objectives: {a: maximize, b: minimize}\nconfirm: {top: 3}",
        "confirm is for one objective, but the study has 2, so that no trial is the best. "
        "Remove it.",
        id="confirm-of-several-objectives",
    ),
    pytest.param(
        SMALL + "transfer: {study: small}",
        "transfer must name studies of the same database, such as digits-small or "
        "[digits-1, digits-2].",
        id="transfer-no-name",
    ),
    pytest.param(
        SMALL + "transfer: [small, digits]",
        "transfer names 'digits', which is this study itself. Name an earlier one.",
        id="transfer-of-itself",
    ),
    pytest.param(
        SMALL + "transfer: small\nsampler: cmaes",
        "transfer works with auto, curve_gp, tpe, random, gp, but sampler is 'cmaes'. "
        "Choose another.",
        id="transfer-with-a-sampler-of-its-own",
    ),
    pytest.param(
        SMALL + "widen: often",
        "widen is 'often', but must be true or false.",
        id="widen-no-choice",
    ),
    pytest.param(
        trial("function: m:f, resources: {gpus: 0.5}") + "widen: true",
        "widen is true, but trials here have a part of a device (trial.resources.gpus). "
        "Give them whole devices, or remove widen.",
        id="widen-shares",
    ),
    pytest.param(
        trial("function: m:f, resources: {gpus: auto}") + "widen: true",
        "widen is true, but trials here have a part of a device (trial.resources.gpus). "
        "Give them whole devices, or remove widen.",
        id="widen-learned-shares",
    ),
    pytest.param(
        trial("command: [python, train.py], resources: {gpus: 2}") + "widen: true",
        "widen is true, but a trial here is one process, however many devices it has. Set "
        "trial.parallel: ddp, or let the command say how many ranks it starts "
        "(--nproc-per-node={gpus}).",
        id="widen-one-process",
    ),
    pytest.param(
        SMALL + "checkpoints: {max_size: 1GiB}",
        "unknown key 'checkpoints.max_size'. Did you mean 'checkpoints.max_disk'?",
        id="checkpoints-unknown",
    ),
    pytest.param(
        SMALL + "checkpoints: best 3",
        "checkpoints is 'best 3', but must be a mapping, with one `key: value` per line. "
        "Write checkpoints: {keep: best 3}",
        id="checkpoints-text",
    ),
    pytest.param(
        trial("function: m:f, resources: {memory: lots}"),
        "trial.resources.memory is 'lots', but must be a size, such as 8GiB or 512MiB.",
        id="memory-in-words",
    ),
    pytest.param(
        trial("function: m:f, resources: {cpus: 1, gpu_type: H200}"),
        "trial.resources has cpus, but gpu_type and min_memory are about GPUs. Remove them.",
        id="gpu-type-of-cpus",
    ),
    pytest.param(
        trial("function: m:f, resources: {gpu_type: 200}"),
        "trial.resources.gpu_type is 200, but must name types of GPU, such as [H200, A100].",
        id="gpu-type-number",
    ),
    pytest.param(
        trial("function: m:f") + "devices: cpu:2\nmax_gpus: 2\n",
        "max_gpus is for GPUs, but devices asks for CPU slots. Remove one of them.",
        id="max-gpus-of-cpus",
    ),
    pytest.param(
        trial("function: m:f, timeout: 1x"),
        f"trial.timeout is '1x', but must be {DURATION}",
        id="timeout",
    ),
    pytest.param(
        trial("function: m:f, retries: -1"),
        "trial.retries is -1, but must be at least 0.",
        id="retries",
    ),
    pytest.param(
        trial("function: m:f, metrics: {pattern: a}"),
        "trial.metrics is for a command only: a function reports through its trial. Remove it.",
        id="metrics-of-a-function",
    ),
    pytest.param(
        trial("command: [a], metrics: {pattern: '('}"),
        "trial.metrics.pattern is '(', which is no regular expression: "
        "missing ), unterminated subpattern at position 0.",
        id="pattern",
    ),
    pytest.param(
        trial("command: [a], metrics: {pattern: 'a'}"),
        "trial.metrics.pattern has no place named after an objective. "
        "The objectives are value: write {name} where its number stands, for example "
        "'value[:= ]+{value}'.",
        id="pattern-without-objective",
    ),
    pytest.param(
        trial("command: [a], metrics: {pattern: '(?P<value>a)(?P<foo>b)'}"),
        "trial.metrics.pattern has a place 'foo', which is no objective. "
        "The objectives are value, beside 'step'. A brace that is no place is written \\{.",
        id="pattern-with-another-group",
    ),
    pytest.param(
        trial("function: m:f, on_timeout: complete"),
        "trial.on_timeout is 'complete', but there is no timeout. Give one, such as timeout: 10m.",
        id="completes-without-timeout",
    ),
    pytest.param(
        trial("function: m:f, value: best") + "\nobjectives: {a: maximize, b: minimize}",
        "trial.value is 'best', but the study has 2 objectives, so that no step is the best. "
        "Remove it, or return the values from the function.",
        id="best-of-several-objectives",
    ),
    pytest.param(
        trial("function: m:f, max_steps: 0"),
        "trial.max_steps is 0, but must be at least 1.",
        id="no-steps",
    ),
    pytest.param(
        trial("function: m:f, env: {CUDA_VISIBLE_DEVICES: 1}"),
        "trial.env sets CUDA_VISIBLE_DEVICES, which the tuner itself sets for each trial. "
        "Remove it.",
        id="env-of-the-tuner",
    ),
    pytest.param(
        trial("function: m:f, env: {A: [1]}"),
        "trial.env.A is [1], but must be text or a number.",
        id="env-list",
    ),
    pytest.param(
        trial("command: [a, '--lr={rl}']") + LR,
        "trial.command[1] is '--lr={rl}', but {rl} is not in search_space. Did you mean '{lr}'?",
        id="place-near",
    ),
    pytest.param(
        trial("command: [a, '--x={batch}']") + LR,
        "trial.command[1] is '--x={batch}', but {batch} is not in search_space. "
        f"Parameters: lr. {FILLED}"
        "A brace that is no place is doubled: {{ }}.",
        id="place-far",
    ),
    pytest.param(
        trial("command: [a, '{lr}']"),
        "trial.command[1] is '{lr}', but {lr} is not in search_space, which is absent. "
        f"Parameters: none. {FILLED}"
        "A brace that is no place is doubled: {{ }}.",
        id="place-without-space",
    ),
    pytest.param(
        trial("function: m:f, env: {A: '{'}"),
        "trial.env.A is '{', which has a lone '{'. "
        "Write '{{' or '}}' for a brace that is no place.",
        id="lone-brace",
    ),
    pytest.param(
        trial("command: [a, --m, '{m}']") + "search_space: {o: {type: categorical, choices: [a, b]}"
        ", m: {type: int, low: 0, high: 3, when: {o: a}}}",
        "trial.command[2] is '{m}', but m is absent in some trials, which would leave '--m' alone. "
        "Write one word: '--m={m}'.",
        id="conditional-place-apart-from-its-flag",
    ),
]
STORAGE = [
    pytest.param(
        SMALL + "storage: postgresql+psycopg://u:s3c@ret@h:port/db",
        f"storage is 'postgresql+psycopg://u:***@h:port/db', but must be {URL}",
        id="malformed",
    ),
    pytest.param(
        SMALL + "storage: postgresql+psycopg:/u:s3cret@h/db",
        f"storage is 'postgresql+psycopg:***@h/db', but must be {URL}",
        id="one-slash",
    ),
    pytest.param(
        SMALL + "storage: postgres:s3cret",
        f"storage is 'postgres:***', but must be {URL}",
        id="no-slash",
    ),
    pytest.param(
        SMALL + "storage: postgres://u:s3cret@h/db",
        f"storage is 'postgres://u:***@h/db', but there is no database 'postgres'. It must be "
        f"{URL} Write postgresql, not postgres.",
        id="postgres",
    ),
    pytest.param(
        SMALL + "storage: ${URL}/db",
        "storage needs ${URL}, but the environment variable URL is not set. "
        "Set it (export URL=...), or read a file: ${file:/path/of/the/password}.",
        id="unset-variable",
    ),
    pytest.param(
        SMALL + "storage: 'sqlite://'",
        "storage is 'sqlite://', a database in memory, which would be gone at the end. "
        "Use a file, such as sqlite:///study.db.",
        id="memory",
    ),
    pytest.param(
        SMALL + "storage: {a: b}",
        "storage must be text, such as sqlite:///study.db.",
        id="mapping",
    ),
]


@pytest.mark.parametrize(("text", "expected"), [*FILE, *KEYS, *VALUES, *TRIAL, *STORAGE])
def test_mistake_gets_one_message(message, text: str, expected: str) -> None:
    assert message(text) == f"study.yaml: {expected}"


def test_several_mistakes_get_a_line_each(message) -> None:
    text = SMALL + "samplr: tpe\nbudget: {trials: many}\n"
    text += "search_space: {a: {type: int}, b: {type: foo}}"
    assert message(text).splitlines() == [
        "study.yaml: search_space.a has no low and no high. "
        "A parameter of type int needs both ends.",
        "study.yaml: search_space.b.type is 'foo', but must be float, int or categorical.",
        "study.yaml: budget.trials is 'many', but must be a whole number (for example 64).",
        "study.yaml: unknown key 'samplr'. Did you mean 'sampler'?",
    ]


def test_mistake_in_a_space_file_names_that_file(message, folder: Path) -> None:
    (folder / "mine.yaml").write_text("a: {type: int}")
    assert message(SMALL + "search_space: mine.yaml") == (
        "mine.yaml: a has no low and no high. A parameter of type int needs both ends."
    )


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        pytest.param(
            {"overrides": ["samplr.seed=1"]},
            "--set: unknown key 'samplr'. Did you mean 'sampler'?",
            id="unknown-key",
        ),
        pytest.param(
            {"overrides": ["budget.trails=1"]},
            "--set: unknown key 'budget.trails'. Did you mean 'budget.trials'?",
            id="unknown-key-deep",
        ),
        pytest.param(
            {"overrides": ["budget.trials=many"]},
            "--set: budget.trials is 'many', but must be a whole number (for example 64).",
            id="wrong-value",
        ),
        pytest.param(
            {"overrides": ["seed"]},
            "--set is given 'seed', but takes KEY=VALUE, such as sampler.seed=1.",
            id="no-value",
        ),
        pytest.param(
            {"overrides": ["study.x=1"]},
            "--set: study.x cannot be set, because study is 'digits', which has no keys. "
            "Set study itself.",
            id="below-a-value",
        ),
        pytest.param(
            {"overrides": ["study=[1"]},
            "--set: study is given a value that is line 1, column 3: not valid YAML: while parsing "
            "a flow sequence, expected ',' or ']', but got the end of the file.",
            id="not-yaml",
        ),
        pytest.param(
            {"overrides": ["storage=postgresql://u:s3cret@h:x/db"]},
            f"--set: storage is 'postgresql://u:***@h:x/db', but must be {URL}",
            id="password",
        ),
        pytest.param(
            {"trials": -3}, "--trials: budget.trials is -3, but must be at least 1.", id="trials"
        ),
        pytest.param(
            {"study": "a/b"},
            "--study: study is 'a/b', but must be without slashes and line breaks, and at most 200 "
            "characters: it names files too.",
            id="study",
        ),
        pytest.param(
            {"extra_arguments": ["--lr=3"]},
            "study.yaml: the arguments after -- (--lr=3) are for the program of trial.command, "
            "and this study has none: its trials are calls of trial.function. Write such values "
            "into search_space as constants (data: /mnt/imagenet), which the function reads from "
            "its parameters, or into trial.env.",
            id="words-for-a-function",
        ),
    ],
)
def test_mistake_on_the_command_line_names_the_flag(
    message, arguments: dict[str, object], expected: str
) -> None:
    assert message(SMALL, **arguments) == expected


def test_set_does_not_take_the_blame_for_the_file(message) -> None:
    text = message("study: x\n", overrides=["trial.retries=2"])
    assert text.startswith("study.yaml: trial has neither function nor command.")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param(
            "nope.yaml",
            "nope.yaml: there is no such file. Give the path of a study file, or write one: "
            "tuner init",
            id="missing",
        ),
        pytest.param(
            "studies",
            "studies: is a folder. Give the study file in it, for example studies/study.yaml.",
            id="folder",
        ),
        pytest.param(
            "binary.yaml",
            "binary.yaml: is not text in UTF-8 (invalid start byte at byte 0). Save it as UTF-8.",
            id="binary",
        ),
    ],
)
def test_unreadable_file_is_named(folder: Path, name: str, expected: str) -> None:
    (folder / "studies").mkdir()
    (folder / "binary.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError) as caught:
        load_study_file(Path(name), environ={})
    assert str(caught.value) == expected
    assert caught.value.exit_code == EXIT_BAD_INPUT
