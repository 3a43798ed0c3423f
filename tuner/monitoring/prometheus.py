"""Metrics of a running study for Prometheus, over HTTP.

Scrapes are served in a thread from the loop's last snapshot: they never block the loop, and an
error affects only that response.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, generate_latest, start_http_server
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from tuner.domain.attempt import Outcome
from tuner.errors import ConfigError
from tuner.monitoring.counters import BUSY, Figures
from tuner.monitoring.demand import devices_wanted

_CLOSE_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsAddress:
    """Address of the metrics."""

    host: str
    #: 0 for any that is free.
    port: int


class MetricsServer:
    """Serves Prometheus metrics until it is closed.

    Args:
        address: The address to listen on.
        about: Labels of the dispatcher: the study, the host.

    Raises:
        ConfigError: If it cannot listen there.
    """

    def __init__(self, address: MetricsAddress, about: Mapping[str, str]) -> None:
        self._collector = _FiguresCollector(about)
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self._collector)
        try:
            self._server, self._thread = start_http_server(
                address.port, address.host, registry=registry
            )
        except OSError as error:
            raise _refusal(address, error) from error
        host = f"[{address.host}]" if ":" in address.host else address.host
        self.url = f"http://{host}:{self._server.server_port}/metrics"

    def publish(self, figures: Figures) -> None:
        """Sets the metrics to serve."""
        self._collector.figures = figures

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        # A daemon, which blocks nothing.
        self._thread.join(_CLOSE_S)


class _FiguresCollector(Collector):
    def __init__(self, about: Mapping[str, str]) -> None:
        self._about = dict(about)
        self.figures: Figures | None = None

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        yield InfoMetricFamily(
            "tuner_dispatcher", "The dispatcher that serves these metrics.", self._about
        )
        # Once: the loop may publish another one meanwhile.
        figures = self.figures
        if figures is not None:
            yield from _of_trials(figures)
            yield from _of_devices(figures)
            yield from _of_dispatcher(figures)
            yield from _of_user(figures)


def figures_text(figures: Figures) -> str:
    """Figures as a scrape shows them."""
    collector = _FiguresCollector({})
    collector.figures = figures
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    return generate_latest(registry).decode()


def _of_trials(figures: Figures) -> Iterator[Metric]:
    now = figures.snapshot
    n_ended = now.n_completed + now.n_pruned + now.n_failed
    trials = GaugeMetricFamily(
        "tuner_trials", "Trials of the study, by all dispatchers.", labels=["state"]
    )
    trials.add_metric(["completed"], now.n_completed)
    trials.add_metric(["pruned"], now.n_pruned)
    trials.add_metric(["failed"], now.n_failed)
    trials.add_metric(["running"], max(0, now.n_begun - n_ended))
    trials.add_metric(["waiting"], now.n_waiting)
    yield trials
    attempts = CounterMetricFamily(
        "tuner_attempts", "Attempts that this dispatcher has seen end.", labels=["outcome"]
    )
    for outcome in Outcome:
        attempts.add_metric([outcome.value], figures.n_ended.get(outcome, 0))
    yield attempts
    best = GaugeMetricFamily("tuner_best_value", "Of the best trial.", labels=["objective"])
    for name, value in (now.best.values if now.best else {}).items():
        best.add_metric([name], value)
    yield best
    if now.n_trials is not None:
        yield _gauge("tuner_budget_trials", "So many trials are allowed.", now.n_trials)
        yield _gauge(
            "tuner_devices_wanted",
            "Devices that trials of the budget which have not ended could use at once.",
            devices_wanted(now),
        )
    if now.fraction is not None:
        yield _gauge("tuner_budget_spent_ratio", "Spent share of the budget.", now.fraction)


def _of_devices(figures: Figures) -> Iterator[Metric]:
    busy = CounterMetricFamily(
        "tuner_device_busy_seconds", "Seconds in which a trial had it.", labels=["device"]
    )
    idle = CounterMetricFamily(
        "tuner_device_idle_seconds", "Seconds in which no trial had it.", labels=["device", "cause"]
    )
    for (device, cause), seconds in figures.device_s.items():
        if cause == BUSY:
            busy.add_metric([device], seconds)
        else:
            idle.add_metric([device, cause], seconds)
    yield from (busy, idle)


def _of_dispatcher(figures: Figures) -> Iterator[Metric]:
    now = figures.snapshot
    yield _gauge("tuner_queue_length", "Trials that wait for a device.", now.n_queued)
    yield _gauge("tuner_store_lag_seconds", "Since the last commit.", now.store_lag_s)
    yield _gauge("tuner_store_unsaved_reports", "Not in the database yet.", now.n_unsaved_reports)
    yield _gauge("tuner_dispatcher_uptime_seconds", "Since its start.", now.elapsed_s)
    yield _gauge(
        "tuner_dispatcher_last_round_timestamp_seconds",
        "When its loop went round last; one that lies back shows that it hangs.",
        figures.at_s,
    )
    yield _gauge("tuner_dispatcher_stopping", "1 once no trial starts any more.", now.is_stopping)


def _of_user(figures: Figures) -> Iterator[Metric]:
    share = figures.snapshot.share
    if share is None:
        return
    devices = GaugeMetricFamily(
        "tuner_user_devices",
        "Devices of this user on a machine that is divided among its users.",
        labels=["of"],
    )
    devices.add_metric(["held"], share.held)
    devices.add_metric(["guaranteed"], share.by_right)
    devices.add_metric(["part"], share.part)
    yield devices


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value)


def _refusal(address: MetricsAddress, error: OSError) -> ConfigError:
    if error.errno == errno.EADDRINUSE:
        problem = (
            f"is {address.port}, which another program listens on (at {address.host}). Name "
            "another port, or 0 for any that is free."
        )
        return ConfigError(problem, key="--metrics-port")
    if error.errno == errno.EACCES:
        problem = f"is {address.port}, which only root may use. Name one above 1023."
        return ConfigError(problem, key="--metrics-port")
    problem = (
        f"is {address.host!r}, which this machine cannot listen at: {error.strerror or error}. "
        "Name one of its addresses, 127.0.0.1 for this machine alone or 0.0.0.0 for all."
    )
    return ConfigError(problem, key="--metrics-host")
