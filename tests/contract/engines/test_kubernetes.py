"""What only Kubernetes does: quotas, rights, images, the pod failure policy, grace, templates."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.contract.engines.conftest import (
    REAL_KUBECONFIG,
    KubernetesBench,
    by_number,
    kubernetes_engine,
    until,
)
from tuner.domain.allocation import AllocationState
from tuner.engines.kubernetes.manifest import ENV_TIME
from tuner.engines.kubernetes.names import job_name, study_label
from tuner.engines.port import AllocationOrder
from tuner.errors import EngineError

if TYPE_CHECKING:
    from tests.engines.kubernetes_server import KubernetesServer

pytestmark = [pytest.mark.slow, pytest.mark.engines]

EXAMPLES = Path(__file__).parents[3] / "examples/kubernetes/manifests"
#: Says which code it ends with at each start, the next one from a file.
ENDS_WITH = """
import pathlib, sys
codes = pathlib.Path(sys.argv[1])
first, *rest = codes.read_text().split()
codes.write_text(" ".join(rest))
print("ends with", first)
sys.exit(int(first))
"""


def test_pod_without_room_says_why_it_waits(kubernetes: KubernetesBench) -> None:
    order = replace(kubernetes.order("digits"), devices=8)
    kubernetes.engine.submit(order, [0])
    until(lambda: bool(by_number(kubernetes.engine, "digits")[0].reason), "it has a reason")
    waiting = by_number(kubernetes.engine, "digits")[0]
    assert waiting.state is AllocationState.PENDING
    assert waiting.reason == "0/2 nodes are available: 2 Insufficient nvidia.com/gpu."


def test_absent_image_is_named_by_the_allocation(kubernetes: KubernetesBench) -> None:
    engine = kubernetes_engine(image="train:2")
    engine.submit(kubernetes.order("digits"), [0])
    until(lambda: bool(by_number(engine, "digits")[0].reason), "it has a reason")
    assert by_number(engine, "digits")[0].reason == (
        'ImagePullBackOff: Back-off pulling image "train:2". Correct engine.kubernetes.image, or '
        "add imagePullSecrets in engine.kubernetes.template; then tuner cancel and tuner submit"
    )


@pytest.mark.parametrize("codes", ["75 0", "75 75 75 0"])
def test_exit_code_75_makes_another_pod(
    kubernetes: KubernetesBench, tmp_path: Path, codes: str
) -> None:
    order = _ends_with(kubernetes, tmp_path, codes)
    kubernetes.engine.submit(order, [0])
    until(
        lambda: by_number(kubernetes.engine, "digits")[0].state is AllocationState.ENDED,
        "it has ended",
    )
    assert (tmp_path / "codes").read_text() == ""


@pytest.mark.parametrize("code", [1, 2])
def test_failure_of_the_study_starts_no_other_pod(
    kubernetes: KubernetesBench, tmp_path: Path, code: int
) -> None:
    order = _ends_with(kubernetes, tmp_path, f"{code} 0")
    kubernetes.engine.submit(order, [0])
    until(
        lambda: by_number(kubernetes.engine, "digits")[0].state is AllocationState.FAILED,
        "it has failed",
    )
    assert f"exit code {code}" in by_number(kubernetes.engine, "digits")[0].reason
    assert (tmp_path / "codes").read_text() == "0"


def test_ended_allocation_is_submitted_again(kubernetes: KubernetesBench, tmp_path: Path) -> None:
    order = _ends_with(kubernetes, tmp_path, "0 0")
    for left in ("0", ""):
        kubernetes.engine.submit(order, [0])
        until(
            lambda: by_number(kubernetes.engine, "digits")[0].state is AllocationState.ENDED,
            "it has ended",
        )
        assert (tmp_path / "codes").read_text() == left


def test_nothing_is_left_where_one_of_several_is_refused(
    kubernetes: KubernetesBench, kubernetes_server: KubernetesServer
) -> None:
    original = kubernetes_server.cluster.create_job
    made = []

    def refuse_the_third(namespace: str, job: dict[str, object], *, is_dry_run: bool) -> object:
        made.append(job)
        if len(made) == 3:
            kubernetes_server.cluster.forbidden.add(("create", "jobs"))
            kubernetes_server.cluster.check_right("create", "jobs", namespace)
        return original(namespace, job, is_dry_run=is_dry_run)

    kubernetes_server.cluster.create_job = refuse_the_third  # type: ignore[method-assign]
    with pytest.raises(EngineError, match="cannot create"):
        kubernetes.engine.submit(kubernetes.order("digits"), [0, 1, 2])
    assert kubernetes.engine.allocations("digits") == ()


def test_forbidden_says_which_rights_are_missing(
    kubernetes: KubernetesBench, kubernetes_server: KubernetesServer
) -> None:
    kubernetes_server.cluster.forbidden.add(("create", "jobs"))
    with pytest.raises(EngineError) as refused:
        kubernetes.engine.check(kubernetes.order("digits"))
    assert 'User "ann" cannot create resource "jobs"' in str(refused.value)
    assert "examples/kubernetes/manifests/rbac.yaml" in str(refused.value)


def test_absent_namespace_is_named(kubernetes: KubernetesBench) -> None:
    engine = kubernetes_engine(namespace="visoin")
    with pytest.raises(EngineError, match="namespace is 'visoin', but the cluster has no such"):
        engine.check(kubernetes.order("digits"))


def test_missing_image_is_said_before_anything_is_asked(kubernetes: KubernetesBench) -> None:
    engine = kubernetes_engine(image=None)
    with pytest.raises(EngineError, match=r"engine\.kubernetes\.image is missing"):
        engine.check(kubernetes.order("digits"))


def test_time_that_is_too_short_to_save_is_refused(kubernetes: KubernetesBench) -> None:
    with pytest.raises(EngineError, match=r"engine.time is 20 s, .* more than 22 s"):
        kubernetes.engine.check(replace(kubernetes.order("digits"), time_s=20.0))


def test_check_leaves_nothing_behind(kubernetes: KubernetesBench) -> None:
    kubernetes.engine.check(kubernetes.order("digits"))
    assert kubernetes.engine.allocations("digits") == ()


@pytest.mark.parametrize("faults", [[503], [429, 500], [0]])
def test_request_is_repeated_where_the_server_is_overloaded(
    kubernetes: KubernetesBench,
    kubernetes_server: KubernetesServer,
    monkeypatch: pytest.MonkeyPatch,
    faults: list[int],
) -> None:
    monkeypatch.setattr("tuner.engines.kubernetes.api._PAUSES_S", (0.0, 0.0))
    kubernetes_server.faults += faults
    (one,) = kubernetes.engine.submit(kubernetes.order("digits"), [0])
    assert one.number == 0
    assert kubernetes_server.faults == []


def test_server_that_is_away_is_named(
    kubernetes: KubernetesBench,
    kubernetes_server: KubernetesServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tuner.engines.kubernetes.api._PAUSES_S", (0.0, 0.0))
    kubernetes_server.faults += [0] * 40
    with pytest.raises(EngineError, match="Kubernetes does not answer"):
        kubernetes.engine.allocations("digits")


def test_without_a_kubeconfig_the_message_says_how_to_name_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("kubernetes")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "absent"))
    with pytest.raises(EngineError, match="export KUBECONFIG"):
        kubernetes_engine().allocations("digits")


def test_exceeded_quota_is_the_reason_of_a_job_without_pods(
    kubernetes: KubernetesBench, kubernetes_server: KubernetesServer
) -> None:
    kubernetes_server.cluster.step = lambda: None  # type: ignore[method-assign]
    kubernetes.engine.submit(kubernetes.order("digits"), [0])
    name = job_name("digits", 0)
    about = {"kind": "Job", "name": name}
    words = "exceeded quota: gpus, requested: 4, used: 4, limited: 4"
    kubernetes_server.cluster.events.append(
        {
            "metadata": {"name": "e1", "namespace": "default"},
            "involvedObject": about,
            "type": "Warning",
            "reason": "FailedCreate",
            "message": words,
        }
    )
    waiting = by_number(kubernetes.engine, "digits")[0]
    assert waiting.reason == (
        f"FailedCreate: {words}. Ask for fewer nodes or devices, or wait until others have ended: "
        "kubectl describe resourcequota"
    )


def test_exceeded_quota_of_jobs_is_refused_with_what_to_do(
    kubernetes: KubernetesBench, kubernetes_server: KubernetesServer
) -> None:
    kubernetes_server.cluster.max_jobs = 2
    with pytest.raises(EngineError) as refused:
        kubernetes.engine.submit(kubernetes.order("digits"), [0, 1, 2])
    assert "exceeded quota: jobs, requested: count/jobs.batch=1, used: " in str(refused.value)
    assert "count/jobs.batch=2. Ask for fewer nodes or devices" in str(refused.value)
    assert "rbac.yaml" not in str(refused.value)
    assert kubernetes.engine.allocations("digits") == ()


def test_manifest_has_the_users_template_below_ours(
    kubernetes: KubernetesBench, tmp_path: Path
) -> None:
    (tmp_path / "pod.yaml").write_text(
        """
        spec:
          restartPolicy: Always
          tolerations: [{key: nvidia.com/gpu, operator: Exists}]
          volumes: [{name: data, hostPath: {path: /data}}]
          containers:
            - name: tuner
              env: [{name: NCCL_DEBUG, value: WARN}]
              volumeMounts: [{name: data, mountPath: /data}]
        """
    )
    engine = kubernetes_engine(
        template="pod.yaml",
        queue="vision-queue",
        priority="normal",
        secret="tuner-db",
        secret_folder="/home/me/.tuner",
    )
    order = replace(
        kubernetes.order("digits"), devices=4, cpus=8, memory_bytes=2**30, setup=("source env",)
    )
    manifest = yaml.safe_load(engine.render(order, [3]))
    pod = manifest["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert manifest["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "vision-queue"
    assert pod["restartPolicy"] == "Never"
    assert pod["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists"}]
    assert {each["name"] for each in pod["volumes"]} == {"shm", "tuner-secret", "data"}
    assert {each["name"] for each in container["env"]} >= {"NCCL_DEBUG", "GREETING"}
    assert container["resources"]["limits"] == container["resources"]["requests"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "4"
    assert container["command"][:2] == ["bash", "-c"]
    assert container["command"][2].startswith("source env\nexec ")
    assert pod["terminationGracePeriodSeconds"] == order.notice_s
    assert pod["activeDeadlineSeconds"] + order.notice_s == order.time_s
    assert pod["priorityClassName"] == "normal"
    mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    assert mounts == {"shm": "/dev/shm", "tuner-secret": "/home/me/.tuner", "data": "/data"}
    engine.check(order)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("spec: [", "cannot be read"),
        ("kind: Pod", "is no pod"),
        (None, "cannot be read"),
    ],
    ids=["no-yaml", "no-spec", "absent"],
)
def test_wrong_template_is_named(
    kubernetes: KubernetesBench, tmp_path: Path, text: str | None, words: str
) -> None:
    if text is not None:
        (tmp_path / "pod.yaml").write_text(text)
    engine = kubernetes_engine(template="pod.yaml")
    with pytest.raises(EngineError, match=f"engine.kubernetes.template: .*pod.yaml {words}"):
        engine.check(kubernetes.order("digits"))


def test_unknown_key_of_a_template_is_refused_by_the_server(
    kubernetes: KubernetesBench, tmp_path: Path
) -> None:
    (tmp_path / "pod.yaml").write_text("spec: {tolerationz: []}")
    with pytest.raises(EngineError, match="tolerationz"):
        kubernetes_engine(template="pod.yaml").check(kubernetes.order("digits"))


@pytest.mark.parametrize(
    "study", ["digits", "Digits MLP", "x" * 200, "ünïcode", "a/b:c", "-", "digits-mlp"]
)
def test_each_study_has_labels_that_kubernetes_takes(
    kubernetes: KubernetesBench, study: str
) -> None:
    engine = kubernetes_engine()
    engine.check(replace(kubernetes.order("digits"), study=study))
    others = {"digits", "Digits MLP", "digits_mlp", "digits mlp"} - {study}
    assert study_label(study) not in {study_label(each) for each in others}


def test_own_allocation_knows_its_deadline(kubernetes: KubernetesBench) -> None:
    environ = {"TUNER_ALLOCATION": "tuner-digits-3", "TUNER_ALLOCATION_NUMBER": "3"}
    own = kubernetes.engine.own_allocation(environ | {ENV_TIME: "3600"})
    assert own is not None
    assert (own.engine, own.name, own.number) == ("kubernetes", "tuner-digits-3", 3)
    assert own.is_requeued
    assert own.deadline is not None
    unlimited = kubernetes.engine.own_allocation(environ)
    assert unlimited is not None
    assert unlimited.deadline is None


def test_pod_that_is_asked_to_end_has_its_grace(
    kubernetes: KubernetesBench, tmp_path: Path
) -> None:
    (one,) = kubernetes.engine.submit(kubernetes.order("digits"), [0])
    until((tmp_path / "started").exists, "it has started")
    kubernetes.engine.cancel([one.name])
    until((tmp_path / "asked").exists, "it has got SIGTERM")


def test_rights_and_pod_of_the_example_are_valid() -> None:
    for name in ("rbac.yaml", "pod.yaml"):
        for document in yaml.safe_load_all((EXAMPLES / name).read_text()):
            kubernetes_validate = pytest.importorskip("kubernetes_validate")
            kubernetes_validate.validate(document, "1.31", strict=True)


def test_rights_of_the_example_are_those_that_are_used(
    kubernetes: KubernetesBench, kubernetes_server: KubernetesServer
) -> None:
    """Everything that the engine asks of the server is in the Role of the submitter."""
    role = next(
        each
        for each in yaml.safe_load_all((EXAMPLES / "rbac.yaml").read_text())
        if each["kind"] == "Role"
    )
    allowed = {
        (verb, what)
        for rule in role["rules"]
        for verb in rule["verbs"]
        for what in rule["resources"]
    }
    used: set[tuple[str, str]] = set()

    def note(verb: str, what: str, namespace: str) -> None:
        used.add((verb, what))

    kubernetes_server.cluster.check_right = note  # type: ignore[method-assign]
    kubernetes.engine.check(kubernetes.order("digits"))
    step, kubernetes_server.cluster.step = kubernetes_server.cluster.step, lambda: None  # type: ignore[method-assign]
    (one,) = kubernetes.engine.submit(kubernetes.order("digits"), [0])
    kubernetes_server.cluster.step = step  # type: ignore[method-assign]
    until(lambda: by_number(kubernetes.engine, "digits")[0].started_at is not None, "it runs")
    kubernetes.engine.log_of(one.name, Path())
    kubernetes.engine.cancel([one.name])
    assert used == allowed


@pytest.mark.skipif(
    REAL_KUBECONFIG not in os.environ, reason="KUBECONFIG_FOR_TESTS names none of a real cluster"
)
def test_a_real_server_takes_the_manifest(
    kubernetes: KubernetesBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", os.environ[REAL_KUBECONFIG])
    engine = kubernetes_engine(queue="q", secret="tuner-db")
    engine.check(replace(kubernetes.order("digits"), devices=1, cpus=1, memory_bytes=2**30))


def _ends_with(kubernetes: KubernetesBench, folder: Path, codes: str) -> AllocationOrder:
    (folder / "codes").write_text(codes)
    (folder / "ends.py").write_text(ENDS_WITH)
    order = kubernetes.order("digits")
    return replace(
        order, command=(order.command[0], str(folder / "ends.py"), str(folder / "codes"))
    )
