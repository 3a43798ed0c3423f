"""Strikes studies at random for a while, then lets them come to their end."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from tests.chaos.databases import Database
from tests.chaos.faults import FAULTS, RARE, Blow
from tests.chaos.site import Site

_POLL_S = 0.05
_FIRST_TRIAL_S = 120.0
_LAST_TRIAL_S = 420.0
_RARELY_S = 300.0
_DATABASE = "database"


@dataclass(frozen=True, kw_only=True)
class Struck:
    """A fault that happened."""

    kind: str
    study: str
    victim: str
    #: Since the start.
    at_s: float
    lasts_s: float


@dataclass(kw_only=True)
class _Open:
    """One that is to be undone."""

    group: str
    ends_at_s: float
    undo: Callable[[], None]


@dataclass(kw_only=True)
class Play:
    """Some studies, their database, and what is done to them.

    Args:
        sites: The studies.
        database: On which they live.
        chance: Decides what happens, where and when.
        interval_s: Between two faults, on average.
        batch: Trials that a study is allowed at a time; when all are done, so many more.
    """

    sites: Sequence[Site]
    database: Database
    chance: random.Random
    interval_s: float
    batch: int = 40
    struck: list[Struck] = field(default_factory=list)
    #: Seconds since the epoch.
    began_at_s: float = 0.0
    say: Callable[[str], None] = print
    _open: list[_Open] = field(default_factory=list)
    _bag: list[str] = field(default_factory=list)
    _last_at_s: dict[str, float] = field(default_factory=dict)

    def run(self, seconds: float) -> float:
        """Plays for so long, and waits for the end of all trials; gives seconds in all.

        Raises:
            TimeoutError: If nothing begins, or does not come to an end.
        """
        self._began_at_s = time.monotonic()
        self.began_at_s = time.time()
        for site in self.sites:
            site.allow(self.batch)
            site.start()
        self._await(self._have_all_begun, _FIRST_TRIAL_S, "a first trial of each study")
        self._strike_until(time.monotonic() + seconds)
        self._undo(everything=True)
        self.database.check_up()
        self.say("no more faults; the rest is let run to its end")
        self._await(self._are_all_done, _LAST_TRIAL_S, "the end of all studies")
        return self._passed_s()

    def _strike_until(self, ends_at_s: float) -> None:
        next_at_s = 0.0
        while (now_s := time.monotonic()) < ends_at_s:
            self._undo()
            self._keep_all()
            if now_s >= next_at_s:
                self._strike()
                next_at_s = now_s + self.chance.uniform(0.3, 1.7) * self.interval_s
            time.sleep(_POLL_S)

    def _keep_all(self) -> None:
        for site in self.sites:
            if site.keep():
                site.allow(site.n_trials + self.batch)
                site.start()

    def _strike(self) -> None:
        """The next kind that finds a victim; each has its turn before one comes again."""
        for kind in self._kinds():
            for site in self.chance.sample(self.sites, len(self.sites)):
                group = _DATABASE if kind.startswith(_DATABASE) else f"{site.study} {kind}"
                if any(each.group == group for each in self._open):
                    continue
                blow = self._blow(kind, site)
                if blow is not None:
                    self._bag.remove(kind)
                    self._note(kind, site, group, blow)
                    return

    def _kinds(self) -> Iterator[str]:
        if not self._bag:
            self._bag = self.chance.sample(self._all, len(self._all))
        yield from list(self._bag)
        # What is left of the bag cannot be done now, and shall not hold up the rest.
        self._bag = self.chance.sample(self._all, len(self._all))
        yield from list(self._bag)

    @property
    def _all(self) -> list[str]:
        return [*FAULTS, *self.database.faults]

    def _blow(self, kind: str, site: Site) -> Blow | None:
        now_s = time.monotonic()
        if kind in RARE and now_s - self._last_at_s.get(kind, 0.0) < _RARELY_S:
            return None
        if kind in FAULTS:
            return FAULTS[kind](site, self.chance)
        return self.database.faults[kind](self.chance)

    def _note(self, kind: str, site: Site, group: str, blow: Blow) -> None:
        self._last_at_s[kind] = now_s = time.monotonic()
        study = "" if group == _DATABASE else site.study
        struck = Struck(
            kind=kind, study=study, victim=blow.victim, at_s=self._passed_s(), lasts_s=blow.lasts_s
        )
        self.struck.append(struck)
        self.say(
            f"{struck.at_s:6.1f} s  {kind}  {study} {blow.victim}"
            + (f" for {blow.lasts_s:.1f} s" if blow.lasts_s else "")
        )
        if blow.undo is not None:
            self._open.append(_Open(group=group, ends_at_s=now_s + blow.lasts_s, undo=blow.undo))

    def _undo(self, *, everything: bool = False) -> None:
        now_s = time.monotonic()
        due = [each for each in self._open if everything or each.ends_at_s <= now_s]
        for each in due:
            self._open.remove(each)
            with suppress(ProcessLookupError):
                each.undo()

    def _have_all_begun(self) -> bool:
        for site in self.sites:
            site.keep()
        return all(
            any(line.what == "saved" and line.step == site.first_aim for line in site.log.read())
            for site in self.sites
        )

    def _are_all_done(self) -> bool:
        return all([site.keep() for site in self.sites])

    def _await(self, condition: Callable[[], bool], limit_s: float, what: str) -> None:
        give_up_at_s = time.monotonic() + limit_s
        while not condition():
            if time.monotonic() > give_up_at_s:
                raise TimeoutError(f"waited {limit_s:.0f} s in vain for {what}")
            time.sleep(_POLL_S)

    def _passed_s(self) -> float:
        return time.monotonic() - self._began_at_s
