"""Every mistake in the section `trial` gets one message."""

from __future__ import annotations

import pytest

from tests.unit.config.mistakes.study_texts import DURATION, FILLED, LR, SMALL, trial

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
        "The objectives are value: write {name} in place of its number, for example "
        "'value[:= ]+{value}'.",
        id="pattern-without-objective",
    ),
    pytest.param(
        trial("command: [a], metrics: {pattern: '(?P<value>a)(?P<foo>b)'}"),
        "trial.metrics.pattern has a place 'foo', which is no objective. "
        "The objectives are value, and 'step'. A brace that is no place is written \\{.",
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


@pytest.mark.parametrize(("text", "expected"), TRIAL)
def test_mistake_gets_one_message(message, text: str, expected: str) -> None:
    assert message(text) == f"study.yaml: {expected}"
