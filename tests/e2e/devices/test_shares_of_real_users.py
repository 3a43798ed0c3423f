"""Other users of a divided machine, with their own user ids: names, lies, locks and curiosity."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e.devices.test_shares import (
    DEAF,
    WAIT_S,
    a_study,
    as_guest,
    check_no_device_had_two,
    share,
)
from tests.e2e.study_folder import StudyFolder, wait_until
from tests.nvml_stub import NvmlStub, StubGpu
from tuner.errors import EXIT_BUDGET_REACHED
from tuner.host.process_identity import pid_namespace
from tuner.shares.claims import read_claims

pytestmark = [pytest.mark.programs, pytest.mark.slow]
ANN, BOB, LIAR = 5001, 5002, 5003
#: A tuner without a study: it claims four slots, and says what it may have by its decision.
SEAT = """
import json, sys, time
from pathlib import Path
from tuner.devices.cpu_slots.probe import DividedSlots
from tuner.shares.rules import read_rules
from tuner.shares.rules_watch import RulesWatch
from tuner.shares.seat import Seat

file = Path(sys.argv[1])
seat = Seat(RulesWatch(file, read_rules(file)), unit=1)
seat.offer(DividedSlots(4).devices())
seat.look()
print("claimed", flush=True)
sys.stdin.readline()
seat.look()
standing = seat.standing
print(json.dumps([standing.by_right, standing.part, seat.notes]), flush=True)
sys.stdin.readline()
seat.close()
"""


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that all users can reach."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        claims = folder / "claims"
        claims.mkdir()
        claims.chmod(0o1777)
        yield folder


def in_container(public: Path, uid: int) -> list[str]:
    """Starts a program where `ann` is this user, whoever that is elsewhere."""
    names = public / f"passwd-{uid}"
    names.write_text(f"root:x:0:0::/root:/bin/sh\nann:x:{uid}:{uid}::/:/bin/sh\n")
    guest = " ".join(as_guest()).replace("--reuid=4242", f"--reuid={uid}")
    script = f'mount --bind {names} /etc/passwd && exec {guest} "$@"'
    return ["unshare", "--mount", "sh", "-c", script, "sh"]


def rootless(_public: Path, uid: int) -> list[str]:
    """Starts a program as a user; Bob in a container in which other users have no id."""
    guest = [each.replace("4242", str(uid)) for each in as_guest()]
    return guest if uid == ANN else ["unshare", "--user", "--map-root-user"]


def seats(
    public: Path, rules: str, start: Callable[[Path, int], list[str]] = in_container
) -> dict[int, tuple[int, int, list[str]]]:
    """Two users of a machine: by right and part, in devices, and what they are told."""
    file = public / "shares.yaml"
    file.write_text(f"folder: {public / 'claims'}\ncpu_slots: 4\n{rules}")
    file.chmod(0o644)
    found = {}
    with ExitStack() as stack:
        running = {}
        for uid in (ANN, BOB):
            running[uid] = stack.enter_context(
                subprocess.Popen(
                    [*start(public, uid), sys.executable, "-c", SEAT, str(file)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
        for each in running.values():
            assert each.stdout is not None
            if each.stdout.readline() != "claimed\n":
                pytest.skip("nothing can be mounted here")
        for uid, each in running.items():
            assert each.stdin is not None
            assert each.stdout is not None
            print(file=each.stdin, flush=True)
            by_right, part, notes = json.loads(each.stdout.readline())
            found[uid] = (by_right // 10_000, part // 10_000, notes)
        for each in running.values():
            assert each.stdin is not None
            print(file=each.stdin, flush=True)
    return found


def test_two_users_of_one_name_in_two_containers_are_two_users(public: Path) -> None:
    by_id = seats(public, f'guaranteed: {{"{ANN}": 3}}\n')
    # The fourth is for each of them in turn.
    assert by_id[ANN] in ((3, 3, []), (3, 4, []))
    assert by_id[BOB] in ((0, 1, []), (0, 0, []))
    # By name each takes itself for ann: that is said.
    by_name = seats(public, "guaranteed: {ann: 3}\n")
    for uid, other in ((ANN, BOB), (BOB, ANN)):
        (note,) = by_name[uid][2]
        assert f"A tuner of user id {other}" in note
        assert "give user ids" in note


def test_a_rootless_container_counts_the_users_that_it_does_not_know_as_one(public: Path) -> None:
    found = seats(public, f'guaranteed: {{"{ANN}": 2}}\n', rootless)
    assert found[ANN] == (2, 3, [])
    by_right, part, (note,) = found[BOB]
    assert (by_right, part) == (0, 2)
    assert "count as one user without a guarantee" in note


def lie(public: Path, slots: list[str], since_s: int) -> subprocess.Popen[bytes]:
    """A user who writes, without any tuner, a claim of all devices, and says to have them."""
    claim = {
        "pid": "PID",
        "pid_namespace": pid_namespace(),
        "priority": 100,
        "since_s": since_s,
        "waits_since_s": since_s,
        "wants": len(slots),
        "unit": 1,
        "suits": dict.fromkeys(slots, 10_000),
        "holds": dict.fromkeys(slots, since_s),
        "leaving": [],
        "rules": "",
    }
    text = json.dumps(claim).replace('"PID"', "$$").replace('"', '\\"')
    name = f"claim-{LIAR}-1-lie"
    script = (
        f'cd {public}/claims && echo "{text}" > {name} && exec flock --no-fork -x {name} sleep 600'
    )
    command = ["setpriv", f"--reuid={LIAR}", f"--regid={LIAR}", "--clear-groups"]
    return subprocess.Popen([*command, "sh", "-c", script])


def is_believed(claims: Path) -> bool:
    return any(each.uid == LIAR for each in read_claims(claims).claims)


def run_as_liar(script: str) -> subprocess.CompletedProcess[str]:
    command = ["setpriv", f"--reuid={LIAR}", f"--regid={LIAR}", "--clear-groups", "sh", "-c"]
    return subprocess.run([*command, script], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("since_s", [0, 10_000_000_000])
def test_a_user_who_lies_in_a_claim_takes_nothing_from_a_guarantee(
    study_folder: StudyFolder, public: Path, since_s: int
) -> None:
    as_guest()
    share(study_folder, cpu_slots=2, hold=0.5, grace="5s", guaranteed={str(os.getuid()): 2})
    rules = study_folder.path / "shares.yaml"
    rules.write_text(rules.read_text().replace(str(study_folder.path), str(public)))
    a_study(study_folder, "honest", n_steps=40, devices="cpu:2", budget={"trials": 4})
    liar = lie(public, ["cpu:0", "cpu:1"], since_s)
    try:
        wait_until(lambda: is_believed(public / "claims"), "the lie is a claim", WAIT_S)
        honest = study_folder.start(file="honest.yaml")
        ended = honest.wait(WAIT_S)
    finally:
        liar.kill()
        liar.wait()
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    # But for devices that it needs no more.
    given_back = [line for line in ended.out.splitlines() if "is given back" in line]
    assert all("needs it now" in line for line in given_back), ended.out
    assert [each.outcome for each in study_folder.attempts("honest.db")] == ["completed"] * 4


def test_a_user_who_lies_keeps_no_guarantee_from_being_met(
    study_folder: StudyFolder, public: Path
) -> None:
    guest = as_guest()
    share(study_folder, cpu_slots=2, hold="1h", grace="5s", guaranteed={"4242": 2})
    rules = study_folder.path / "shares.yaml"
    rules.write_text(rules.read_text().replace(str(study_folder.path), str(public)))
    for name in ("lent", "owed"):
        a_study(study_folder, name, n_steps=10, devices="cpu:2", budget={"trials": 2})
    goes_on = study_folder.write("go-on-lent", "")
    lent = study_folder.start(file="lent.yaml")
    wait_until(lambda: lent.out.count("started on") == 2, "the study has all slots", WAIT_S)
    # The liar has asked for longest, and gives nothing back.
    liar = lie(public, ["cpu:0", "cpu:1"], 0)
    try:
        wait_until(lambda: is_believed(public / "claims"), "the lie is a claim", WAIT_S)
        owed = study_folder.start(file="owed.yaml", prefix=guest)
        ended = owed.wait(WAIT_S)
        shown = study_folder.tuner("shares").out
    finally:
        liar.kill()
        liar.wait()
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    assert f"user id {LIAR} (pid {liar.pid}) claims to have cpu:" in shown
    goes_on.unlink()
    assert lent.wait(WAIT_S).code == EXIT_BUDGET_REACHED
    lines = [line for line in lent.out.splitlines() if line.startswith("cpu:")]
    assert sum("is given back to user id 4242, who has" in line for line in lines) == 2


def test_a_user_reads_nothing_of_others_and_can_neither_remove_nor_replace_a_claim(
    study_folder: StudyFolder, public: Path, tmp_path: Path
) -> None:
    as_guest()
    share(study_folder, cpu_slots=2)
    rules = study_folder.path / "shares.yaml"
    rules.write_text(rules.read_text().replace(str(study_folder.path), str(public)))
    state = public / "state"
    # Neither systemd nor cron: this machine's tables are none of the test's.
    python_only = str(Path(os.__file__).parents[2] / "bin")
    study_folder.env |= {"XDG_STATE_HOME": str(state), "PATH": python_only}
    study_folder.write("deaf.py", DEAF)
    study_folder.study(study="secret-name", trial={"function": "deaf:train"})
    study = study_folder.start()
    wait_until(lambda: "started on" in study.out, "it runs", WAIT_S)
    study_folder.study("queued.yaml", study="secret-name", trial={"function": "deaf:train"})
    assert study_folder.tuner("queue", "queued.yaml").code == 0
    (claim,) = (public / "claims").glob(f"claim-{os.getuid()}-{study.process.pid}-*")
    read = run_as_liar(f"cat {public}/claims/*; ls -la {public}/claims")
    assert str(study.process.pid) in read.stdout
    assert "secret-name" not in read.stdout + read.stderr
    for command in (
        f"rm -f {claim}",
        f"mv {claim} {claim}-x",
        f"echo > {claim}",
        f"ln {claim} {public}/claims/other",
        f"ls {state}/tuner/queue/*",
        f"cat {state}/tuner/queue/*/*",
    ):
        assert run_as_liar(command).returncode != 0, command
    assert claim.exists()
    study_folder.write("enough", "")
    assert study.wait(WAIT_S).code == EXIT_BUDGET_REACHED
    queue = "queue"
    wait_until(lambda: "completed" in study_folder.tuner(queue).out, "the queue is over", WAIT_S)


def test_a_program_that_keeps_a_device_locked_without_a_claim_is_named(
    study_folder: StudyFolder, public: Path
) -> None:
    as_guest()
    share(study_folder, cpu_slots=1)
    rules = study_folder.path / "shares.yaml"
    rules.write_text(rules.read_text().replace(str(study_folder.path), str(public)))
    lock = public / "claims" / "cpu:0"
    script = f"exec flock --no-fork -x {lock} sleep 600"
    command = ["setpriv", f"--reuid={LIAR}", f"--regid={LIAR}", "--clear-groups"]
    thief = subprocess.Popen([*command, "sh", "-c", script])
    try:
        wait_until(lock.exists, "it is locked", WAIT_S)
        study_folder.study(devices="cpu:1")
        study = study_folder.start()
        wait_until(lambda: "keeps it locked" in study.out, "it is named", WAIT_S)
        assert f"(pid {thief.pid}, user {LIAR}) keeps it locked" in study.out
    finally:
        thief.kill()
        thief.wait()
    assert study.wait(WAIT_S).code == EXIT_BUDGET_REACHED


FRACTION = """
import os, time
from pathlib import Path
import optuna

def train(trial):
    Path("at-work-STUDY").touch()
    print("sees", os.environ["CUDA_VISIBLE_DEVICES"], flush=True)
    state = trial.load_checkpoint()
    step = state["step"] if state else 0
    while not Path("enough-STUDY").exists():
        step += 1
        time.sleep(0.05)
        trial.save_checkpoint({"step": step}, step)
        trial.report(step, step)
        if trial.should_prune():
            raise optuna.TrialPruned
    return trial.params.x
"""


def test_trials_of_two_users_are_on_one_gpu_that_the_rules_divide(
    gpu_folder: StudyFolder, nvml_stub: NvmlStub, public: Path
) -> None:
    guest = as_guest()
    nvml_stub.write([StubGpu(uuid="GPU-0000")])
    share(gpu_folder, gpu_shares={"0": 4}, guaranteed={"4242": 0.5}, hold="1h", grace="20s")
    rules = gpu_folder.path / "shares.yaml"
    rules.write_text(rules.read_text().replace(str(gpu_folder.path), str(public)))
    for name, n_trials in (("mine", 4), ("other", 2)):
        gpu_folder.write(f"{name}.py", FRACTION.replace("STUDY", name))
        trial = {"function": f"{name}:train", "resources": {"gpus": 0.25}}
        budget = {"trials": n_trials}
        keys = {"trial": trial, "budget": budget, "pruner": "none", "devices": "auto"}
        gpu_folder.study(f"{name}.yaml", study=name, **keys)
    mine = gpu_folder.start(file="mine.yaml")
    wait_until(lambda: mine.out.count("started on") == 4, "it has all four shares", WAIT_S)
    assert "GPU 0 (share 4)" in mine.out
    assert "GPU 0 (share 2)" in gpu_folder.tuner("status", "mine.yaml").out
    other = gpu_folder.start(file="other.yaml", prefix=guest)
    wait_until(lambda: other.out.count("started on") == 2, "the guarantee is met", WAIT_S)
    shown = gpu_folder.tuner("shares").out
    assert shown.count("by right") == 2, shown
    assert "0.5" in shown
    held = gpu_folder.tuner("devices").out
    assert all(f"share {number}: " in held for number in range(1, 5)), held
    for name in ("other", "mine"):
        gpu_folder.write(f"enough-{name}", "")
    assert other.wait(WAIT_S).code == EXIT_BUDGET_REACHED, other.out
    assert mine.wait(WAIT_S).code == EXIT_BUDGET_REACHED, mine.out
    given_back = [line for line in mine.out.splitlines() if line.startswith("GPU 0 (share")]
    assert len([each for each in given_back if "is given back to user id 4242" in each]) == 2
    check_no_device_had_two(gpu_folder, "mine", "other")
    logs = "".join(
        file.read_text() for file in gpu_folder.path.rglob("*.log") if "trial" in str(file)
    )
    assert "sees GPU-0000\n" in logs
    assert "sees GPU-0000#" not in logs
