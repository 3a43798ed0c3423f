"""`engine`: the source of a study's nodes, and its terms."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator, Strict, WithJsonSchema

from tuner.config.mistakes import Mistake, Refusal
from tuner.config.model import Model
from tuner.config.notation.fields import Duration, PositiveNumber, Size, WholeNumber, text
from tuner.search_spaces.space import nearest

_RANGE = re.compile(r"\s*(\d{1,5})\s*(?:\.\.\s*(\d{1,5})\s*)?")
_NODES_TEXT = r"^\s*\d{1,5}\s*(\.\.\s*\d{1,5}\s*)?$"
#: A host in ssh's form, possibly with a user; never an option.
_HOST = re.compile(r"(?:[\w.-]+@)?(?!-)[\w.:\[\]%-]+")

_ADDRESS = re.compile(r"auto|(?:ray://)?(?:[\w.-]+|\[[\da-fA-F:]+\]):\d{1,5}")


class EngineName(Enum):
    """Engines, which provide nodes."""

    SLURM = "slurm"
    KUBERNETES = "kubernetes"
    RAY = "ray"
    SSH = "ssh"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRange:
    """Minimum and maximum number of a study's allocations."""

    least: int
    most: int

    def __str__(self) -> str:
        return str(self.most) if self.least == self.most else f"{self.least}..{self.most}"


def read_nodes(value: object) -> NodeRange:
    """Reads `4` or `2..16`.

    Raises:
        ValueError: If it is neither; to be read after the key.
    """
    given = str(value) if type(value) is int else value
    found = _RANGE.fullmatch(given) if isinstance(given, str) else None
    if found is None:
        raise ValueError(
            f"is {value!r}, but must be a number of nodes, such as 4, or the least and the most, "
            "such as 2..16."
        )
    least, most = int(found[1]), int(found[2] or found[1])
    if most < max(least, 1):
        wanted = "at least 1" if least == most else "with the smaller number first"
        raise ValueError(f"is {value!r}, but must be {wanted}, such as 2..16.")
    return NodeRange(least=least, most=most)


def _read_node_range(value: object) -> NodeRange:
    return value if isinstance(value, NodeRange) else read_nodes(value)


def _read_name(value: object) -> EngineName:
    if isinstance(value, EngineName):
        return value
    names = [each.value for each in EngineName]
    if value in names:
        return EngineName(value)
    meant = nearest(value, names) if isinstance(value, str) else None
    hint = f" Did you mean '{meant}'?" if meant else ""
    raise ValueError(f"is {value!r}, but must be {', '.join(names[:-1])} or {names[-1]}.{hint}")


def _read_lines(value: object) -> object:
    """One line is a list of one."""
    lines = [value] if isinstance(value, str) else value
    if not isinstance(lines, list | tuple) or not all(isinstance(line, str) for line in lines):
        raise ValueError(f"is {value!r}, but must be text or a list of texts.")
    return tuple(lines)


def _check_one_line(value: str) -> str:
    """Checks a value that is written to one line of a script."""
    if not value or any(ord(char) < 32 for char in value):
        raise ValueError(f"is {value!r}, but must be one line of text.")
    return value


def _check_hosts(hosts: tuple[str, ...]) -> tuple[str, ...]:
    if not hosts:
        raise ValueError("is empty, but must name hosts, such as [gpu01, me@gpu02].")
    for place, host in enumerate(hosts):
        if not _HOST.fullmatch(host):
            problem = f"is {host!r}, but must be a host as ssh takes it, such as gpu01 or me@gpu02."
            raise Refusal([Mistake(key=f"[{place}]", problem=problem)])
    return hosts


def _check_address(address: str) -> str:
    if not _ADDRESS.fullmatch(address):
        raise ValueError(
            f"is {address!r}, but must be auto, or an address with a port, such as "
            "head.example:6379 or ray://head.example:10001."
        )
    return address


_LINES = {
    "title": "text or list of texts",
    "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}],
}
_NODES = {
    "title": "number or range of nodes",
    "anyOf": [
        text(_NODES_TEXT, "a number such as 4, or a range such as 2..16"),
        {"type": "integer", "minimum": 1},
    ],
}
_NAMES = {"enum": [each.value for each in EngineName]}
Name: TypeAlias = Annotated[EngineName, PlainValidator(_read_name), WithJsonSchema(_NAMES)]
Nodes: TypeAlias = Annotated[NodeRange, PlainValidator(_read_node_range), WithJsonSchema(_NODES)]
Lines: TypeAlias = Annotated[
    tuple[Annotated[str, AfterValidator(_check_one_line)], ...],
    BeforeValidator(_read_lines),
    WithJsonSchema(_LINES),
]
Word: TypeAlias = Annotated[str, AfterValidator(_check_one_line)]


class SlurmConfig(Model):
    """Settings for Slurm only."""

    partition: Word | None = Field(
        default=None, description="Partition. Default: that of the cluster.", examples=["gpu"]
    )
    qos: Word | None = Field(default=None, description="Quality of service.", examples=["normal"])
    account: Word | None = Field(
        default=None, description="Account that is charged.", examples=["vision"]
    )
    options: Lines = Field(
        default=(),
        description="Further options of `sbatch`, one a line.",
        examples=[["--exclusive", "--constraint=h100"]],
    )


class KubernetesConfig(Model):
    """Settings for Kubernetes only."""

    image: Word | None = Field(
        default=None,
        description="Image with the tuner, the code and its packages; by digest, so that every "
        "node runs the same. Required on Kubernetes.",
        examples=["registry.example/me/train@sha256:..."],
    )
    namespace: Word | None = Field(
        default=None,
        description="Namespace. Default: that of the current context.",
        examples=["vision"],
    )
    queue: Word | None = Field(
        default=None, description="LocalQueue of Kueue.", examples=["vision-queue"]
    )
    priority: Word | None = Field(
        default=None, description="PriorityClass of the pods.", examples=["normal"]
    )
    secret: Word | None = Field(
        default=None,
        description="Secret that is mounted as files, for `${file:...}` in `storage`.",
        examples=["tuner-db"],
    )
    secret_folder: Word = Field(
        default="/var/run/secrets/tuner",
        description="Absolute folder of these files in the pods. `tuner submit` reads the same "
        "paths on its machine.",
        examples=["/home/me/.tuner"],
    )
    template: Word | None = Field(
        default=None,
        description="YAML file of a pod whose keys are added to those of the tuner, for volumes, "
        "tolerations and the like.",
        examples=["pod.yaml"],
    )


class RayConfig(Model):
    """Settings for Ray only."""

    address: Annotated[Word, AfterValidator(_check_address)] = Field(
        default="auto",
        description="The cluster: `auto` for the one to which this machine belongs, the address of "
        "its head, or `ray://` and the address of its client server.",
        examples=["head.example:6379"],
    )
    autoscaling: Annotated[bool, Strict()] = Field(
        default=False,
        description="Whether the cluster adds nodes while allocations wait for them. If not, more "
        "nodes than it has are refused.",
        examples=[True],
    )
    resources: dict[Word, PositiveNumber] = Field(
        default_factory=dict,
        description="Further resources of Ray that each allocation takes, to choose nodes.",
        examples=[{"accelerator_type:H100": 0.001}],
    )
    python: Word | None = Field(
        default=None,
        description="Python on the nodes. Default: that which runs `tuner submit`.",
        examples=["/opt/train/bin/python"],
    )
    kuberay: Annotated[bool, Strict()] = Field(
        default=False,
        description="Whether `tuner submit --dry-run` prints a RayJob for KubeRay, with image, "
        "namespace, queue, Secret and pod template from `engine.kubernetes`.",
        examples=[True],
    )


class SshConfig(Model):
    """Settings for ssh only."""

    hosts: Annotated[Lines, AfterValidator(_check_hosts)] | None = Field(
        default=None,
        description="Hosts as `ssh` takes them; one allocation each. Required with ssh.",
        examples=[["gpu01", "me@gpu02"]],
    )
    copy_to: Word | None = Field(
        default=None,
        description="Folder on each host to which the code is copied with rsync. Default: none, "
        "the folder of the study is shared between the hosts.",
        examples=["~/tuner"],
    )
    python: Word | None = Field(
        default=None,
        description="Python on the hosts. Default: that which runs `tuner submit`.",
        examples=["~/venvs/train/bin/python"],
    )
    options: Lines = Field(
        default=(), description="Further options of `ssh`.", examples=[["-p", "2222"]]
    )


class EngineConfig(Model):
    """The engine that provides a study's nodes, and its terms."""

    name: Name = Field(description="Engine.", examples=["slurm"])
    nodes: Nodes = Field(
        default=NodeRange(least=1, most=1),
        description="Number of nodes, or the least and the most, such as `2..16`. Each is an "
        "allocation of its own, which runs as soon as the engine has room. `tuner submit` asks for "
        "the most. Default: `1`.",
        examples=["2..16", 4],
        json_schema_extra={"default": 1},
    )
    devices: Annotated[WholeNumber, Field(ge=0)] = Field(
        default=0,
        description="GPUs of one node. 0 asks for none, as for nodes without GPUs.",
        examples=[4],
    )
    cpus: Annotated[WholeNumber, Field(ge=1)] | None = Field(
        default=None, description="CPUs of one node. Default: what the engine gives.", examples=[32]
    )
    memory_bytes: Size | None = Field(
        default=None,
        alias="memory",
        description="Main memory of one node. Default: what the engine gives.",
        examples=["120GiB"],
    )
    time_s: Duration | None = Field(
        default=None,
        alias="time",
        description="Longest time of one allocation. No trial starts that could not save before "
        "its end. Default: the engine's limit.",
        examples=["4h"],
    )
    idle_s: Duration = Field(
        default="10m",
        validate_default=True,
        alias="idle",
        description="Time without a trial to run after which an allocation ends and gives its node "
        "back.",
        examples=["10m"],
    )
    setup: Lines = Field(
        default=(),
        description="Lines of bash that run on the node before the tuner.",
        examples=[["module load cuda/12.4", "source ~/venvs/train/bin/activate"]],
    )
    slurm: SlurmConfig = Field(
        default_factory=SlurmConfig,
        description="Settings of Slurm.",
        examples=[{"partition": "gpu", "account": "vision"}],
    )
    kubernetes: KubernetesConfig = Field(
        default_factory=KubernetesConfig,
        description="Settings of Kubernetes.",
        examples=[{"namespace": "vision", "image": "registry.example/me/train@sha256:..."}],
    )
    ray: RayConfig = Field(
        default_factory=RayConfig,
        description="Settings of Ray.",
        examples=[{"address": "head.example:6379"}],
    )
    ssh: SshConfig = Field(
        default_factory=SshConfig,
        description="Settings of ssh.",
        examples=[{"hosts": ["gpu01", "gpu02"]}],
    )


#: Keys of the mappings inside of `engine`.
ENGINE_KEYS = {
    "engine": EngineConfig.yaml_keys(),
    "engine.slurm": SlurmConfig.yaml_keys(),
    "engine.kubernetes": KubernetesConfig.yaml_keys(),
    "engine.ray": RayConfig.yaml_keys(),
    "engine.ssh": SshConfig.yaml_keys(),
}
