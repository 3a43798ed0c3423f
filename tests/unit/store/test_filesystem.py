"""Which file systems SQLite is refused on, from what Linux says of its mounts."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import make_url

from tuner.errors import StoreError
from tuner.store.connection.filesystem import (
    Mount,
    check_is_local,
    mount_of,
    path_of,
    refuse_shared,
)

# proc_pid_mountinfo(5); lines of a cluster's node, a WSL machine, a container and gVisor.
NODE = r"""
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard
40 27 0:35 / /home rw,relatime shared:20 - autofs systemd-1 rw,fd=29,pgrp=1,timeout=0
41 40 0:36 /export/home /home rw,relatime shared:21 - nfs4 nas:/export/home rw,vers=4.2
42 27 0:37 / /mnt/my\040share rw,relatime - cifs //nas/share rw,vers=3.1.1
43 27 0:38 / /scratch rw,noatime - lustre 10.0.0.1@tcp:/scratch rw,flock
44 41 0:39 / /home/ann/remote rw,nosuid - fuse.sshfs ann@far:/ rw,user_id=1000
45 41 8:1 / /home/ann/local rw,relatime master:1 - xfs /dev/sdb1 rw
46 27 0:40 / /dev/shm rw - tmpfs tmpfs rw
"""
WSL = r"""
60 1 8:48 / / rw,relatime - ext4 /dev/sdd rw
71 60 0:58 / /mnt/c rw,noatime - 9p C:\134 rw,aname=drvfs;path=C:\,trans=fd
"""
GVISOR = """
2 1 0:15 / / rw - 9p none rw,trans=fd,rfdno=4,wfdno=4
"""
DOCKER = """
712 680 0:61 / / rw,relatime master:218 - overlay overlay rw,lowerdir=/var/lib/docker/l
730 712 254:1 /home/ann/studies /studies rw,relatime - ext4 /dev/vda1 rw
731 712 0:90 / /host rw,relatime - virtiofs share rw
"""


@pytest.mark.parametrize(
    ("mountinfo", "path", "kind"),
    [
        (NODE, "/var/lib/x", "ext4"),
        (NODE, "/", "ext4"),
        (NODE, "/home/bob", "nfs4"),
        (NODE, "/homes", "ext4"),
        (NODE, "/home/ann/remote/study", "fuse.sshfs"),
        (NODE, "/home/ann/local/study", "xfs"),
        (NODE, "/mnt/my share/a", "cifs"),
        (NODE, "/dev/shm", "tmpfs"),
        (WSL, "/mnt/c/Users", "9p"),
        (DOCKER, "/studies/study", "ext4"),
        ("", "/studies", None),
    ],
)
def test_mount_of_a_path_is_the_innermost_and_the_last(
    mountinfo: str, path: str, kind: str | None
) -> None:
    mount = mount_of(path, mountinfo)
    assert (mount.kind if mount else None) == kind


@pytest.mark.parametrize(
    ("mountinfo", "path", "is_shared"),
    [
        (NODE, "/var/lib", False),
        (NODE, "/home/bob", True),
        (NODE, "/home/ann/local", False),
        (NODE, "/home/ann/remote", True),
        (NODE, "/mnt/my share", True),
        (NODE, "/scratch/ann", True),
        (WSL, "/home/ann", False),
        (WSL, "/mnt/c/Users", True),
        (GVISOR, "/studies", False),
        (DOCKER, "/studies", False),
        (DOCKER, "/tmp", False),
        (DOCKER, "/host", False),
    ],
)
def test_file_systems_of_several_machines_are_known(
    mountinfo: str, path: str, is_shared: bool
) -> None:
    mount = mount_of(path, mountinfo)
    assert mount is not None
    assert mount.is_shared == is_shared


def test_refusal_names_the_mount_and_the_way_out() -> None:
    with pytest.raises(StoreError) as caught:
        refuse_shared(Path("/home/ann/study.db"), Mount(point="/home", kind="nfs4"))
    text = str(caught.value)
    assert "/home/ann/study.db is on a network file system (nfs4, mounted at /home)" in text
    assert "Name a file on a local disk in storage, or a database server: postgresql://" in text


def test_file_of_this_machine_is_accepted(tmp_path: Path) -> None:
    check_is_local(tmp_path / "study.db")
    check_is_local(tmp_path / "no folder" / "study.db")


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:////a/b.db", "/a/b.db"),
        ("sqlite:///file:/a/b%20c.db?uri=true", "/a/b c.db"),
        ("sqlite://", None),
        ("sqlite:///:memory:", None),
        ("postgresql+psycopg://me@host/name", None),
    ],
)
def test_path_of_a_database_is_that_of_its_file(url: str, path: str | None) -> None:
    assert path_of(make_url(url)) == (None if path is None else Path(path))
