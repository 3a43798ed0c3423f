"""Processes of dispatchers: this one, one that has ended, and one that cannot be checked."""

from __future__ import annotations

from dataclasses import replace

from tuner.host.process_identity import own_process
from tuner.store.records.provenance import HostFacts, host_facts

#: pids end at 4,194,304.
NO_PID = 4_999_999
#: This process, on a host of this name.
ALIVE = replace(host_facts(), process=replace(own_process(), host="here"))


def with_process(facts: HostFacts, **changes: str | int) -> HostFacts:
    """The host with another process on it."""
    return replace(facts, process=replace(facts.process, **changes))


DEAD = with_process(ALIVE, pid=NO_PID)
#: Only the database tells of its dispatcher.
ELSEWHERE = with_process(DEAD, host="there")
