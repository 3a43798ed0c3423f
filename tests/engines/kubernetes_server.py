"""The HTTP side of the stand-in: the paths of the API that the tuner uses, and faults."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

from tests.engines.kubernetes_cluster import Cluster, RefusedError


class KubernetesServer:
    """An API server on the loopback interface over a Cluster.

    Attributes:
        faults: HTTP statuses with which the next requests fail; 0 cuts the connection.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.faults: list[int] = []
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._request_class())
        self._stop = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def write_kubeconfig(self, path: Path, namespace: str | None = None) -> Path:
        """A kubeconfig with this server as the current context."""
        context: dict[str, Any] = {"cluster": "c", "user": "ann"}
        if namespace is not None:
            context["namespace"] = namespace
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": self.url}}],
            "users": [{"name": "ann", "user": {}}],
            "contexts": [{"name": "here", "context": context}],
            "current-context": "here",
        }
        path.write_text(yaml.safe_dump(config))
        return path

    @contextmanager
    def running(self) -> Iterator[KubernetesServer]:
        threads = [
            threading.Thread(target=self._http.serve_forever, args=(0.05,)),
            threading.Thread(target=self._step),
        ]
        for thread in threads:
            thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            self._http.shutdown()
            for thread in threads:
                thread.join()
            self._http.server_close()
            self.cluster.close()

    def _step(self) -> None:
        while not self._stop.wait(0.05):
            self.cluster.step()

    def _request_class(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Request(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer("GET")

            def do_POST(self) -> None:
                self._answer("POST")

            def do_DELETE(self) -> None:
                self._answer("DELETE")

            def _answer(self, method: str) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length) or b"null")
                fault = server.faults.pop(0) if server.faults else None
                if fault == 0:
                    self.connection.close()
                    return
                if fault is not None:
                    return self._send(fault, _status(fault, "the server said so"))
                try:
                    with server.cluster.lock:
                        self._send(200, server.respond(method, self.path, body))
                except RefusedError as error:
                    self._send(error.status, _status(error.status, str(error)))

            def _send(self, status: int, answer: object) -> None:
                is_text = isinstance(answer, str)
                data = answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "text/plain" if is_text else "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: object) -> None:
                """Silent."""

        return Request

    def respond(self, method: str, path: str, body: Any) -> object:
        """The answer to one request."""
        parts = urlsplit(path)
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        words = parts.path.strip("/").split("/")
        namespace, what, *rest = words[words.index("namespaces") + 1 :]
        verb = {"POST": "create", "DELETE": "delete"}.get(method, "list")
        if method == "GET" and rest:
            verb, what = "get", "/".join([what, *rest[1:]])
        self.cluster.check_right(verb, what, namespace)
        if verb == "create":
            is_dry_run = query.get("dryRun") == "All"
            return self.cluster.create_job(namespace, body, is_dry_run=is_dry_run)
        if verb == "delete":
            self.cluster.delete_job(namespace, rest[0])
            return _status(200, "")
        if what == "pods/log":
            return self._log(namespace, rest[0])
        return self._list(namespace, what, query)

    def _log(self, namespace: str, name: str) -> str:
        for pod in self.cluster.pods:
            metadata = pod.manifest["metadata"]
            if (metadata["namespace"], metadata["name"]) == (namespace, name):
                return pod.log.read_text()
        raise RefusedError(404, f'pods "{name}" not found')

    def _list(self, namespace: str, what: str, query: dict[str, str]) -> object:
        everything = {
            "jobs": list(self.cluster.jobs.values()),
            "pods": [pod.manifest for pod in self.cluster.pods],
            "events": self.cluster.events,
        }[what]
        items = [
            each
            for each in everything
            if each["metadata"]["namespace"] == namespace
            and _matches(each["metadata"].get("labels", {}), query.get("labelSelector", ""))
            and _matches(_fields(each), query.get("fieldSelector", ""))
        ]
        version = "batch/v1" if what == "jobs" else "v1"
        return {"apiVersion": version, "kind": "List", "metadata": {}, "items": items}


def _fields(item: dict[str, Any]) -> dict[str, str]:
    about = item.get("involvedObject", {})
    return {f"involvedObject.{key}": value for key, value in about.items()}


def _matches(values: dict[str, str], selector: str) -> bool:
    pairs = [part.split("=", 1) for part in selector.split(",") if part]
    return all(values.get(key) == value for key, value in pairs)


def _status(code: int, message: str) -> dict[str, object]:
    state = "Success" if code < 400 else "Failure"
    return {"apiVersion": "v1", "kind": "Status", "status": state, "message": message, "code": code}
