"""The servers of the tests themselves: one that dies fails one test and not all that follow."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.databases import watched
from tests.servers import Mariadb, Postgresql, run_mariadb, run_postgresql

pytestmark = pytest.mark.slow


@pytest.fixture(params=[run_postgresql, run_mariadb], ids=["postgresql", "mariadb"])
def server(request: pytest.FixtureRequest) -> Iterator[Postgresql | Mariadb]:
    with request.param() as server:
        yield server


def test_server_that_dies_fails_that_test_and_runs_in_the_next(
    server: Postgresql | Mariadb,
) -> None:
    said = r"(?s)ended with status -9\. Its log:\n.*ready"
    with pytest.raises(pytest.fail.Exception, match=said), watched(server):
        kill(server)

    with watched(server):
        server.new_database()


def kill(server: Postgresql | Mariadb) -> None:
    process = server.daemon.process
    assert process is not None
    process.send_signal(signal.SIGKILL)
    with suppress(ChildProcessError):
        process.wait()
