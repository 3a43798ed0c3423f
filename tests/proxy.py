"""A bad network: a TCP proxy in front of a server, which the test cuts, freezes or breaks."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from dataclasses import dataclass

_HOST = "127.0.0.1"


@dataclass(kw_only=True, eq=False)
class _Pair:
    """A connection of a client, and the proxy's own to the server."""

    client: socket.socket
    server: socket.socket
    #: The client hears nothing more, and the next word of the server is the last.
    is_mute: bool = False

    def end(self) -> None:
        for each in (self.client, self.server):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


class Proxy:
    """Forwards to a port of this machine while it is entered.

    Args:
        target: The port.
        swaps: What clients say, and what the server hears instead, such as a header.
        listen: Address and port for clients; any port of this machine where it is not named.
        source: The address that the server takes for the client's, such as 127.0.0.2 on Linux.
    """

    def __init__(
        self,
        target: int,
        swaps: tuple[tuple[bytes, bytes], ...] = (),
        *,
        listen: tuple[str, int] = (_HOST, 0),
        source: str = "",
    ) -> None:
        self._target = target
        self._source = (source, 0)
        self._swaps = swaps
        #: What every request is answered with, instead of asking the server; None asks it.
        self.answer: bytes | None = None
        self.n_answered = 0
        self._pairs: list[_Pair] = []
        self._lock = threading.Lock()
        self._flows = threading.Event()
        self._flows.set()
        self._is_cut = False
        #: What the client says when it is cut off next, whether the server still hears that, and
        #: how often it may say it before.
        self._last_words: tuple[bytes, bool, int] | None = None
        self.n_cut = 0
        self._listener = socket.create_server(listen)
        self.port: int = self._listener.getsockname()[1]

    def __enter__(self) -> Proxy:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.thaw()
        self.cut()
        self._listener.close()

    def cut(self) -> None:
        """Ends all connections, and refuses new ones until `restore`."""
        self._is_cut = True
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            pair.end()

    def restore(self) -> None:
        self._is_cut = False

    def freeze(self) -> None:
        """Takes everything and forwards nothing, until `thaw`: who waits hears nothing at all."""
        self._flows.clear()

    def thaw(self) -> None:
        self._flows.set()

    def cut_at(self, words: bytes, *, is_heard: bool, after: int = 0) -> None:
        """Cuts a connection once, when its client says `words`.

        Args:
            words: Anywhere in what is sent.
            is_heard: Whether the server still gets them, so that only its answer is lost.
            after: How often they may be said before.
        """
        self._last_words = (words, is_heard, after)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._is_cut:
                client.close()
                continue
            try:
                server = socket.create_connection(
                    (_HOST, self._target), source_address=self._source
                )
            except OSError:
                client.close()
                continue
            pair = _Pair(client=client, server=server)
            with self._lock:
                self._pairs.append(pair)
            for pump in (self._pump_words, self._pump_answers):
                threading.Thread(target=pump, args=(pair,), daemon=True).start()

    def _pump_words(self, pair: _Pair) -> None:
        with suppress(OSError):
            while data := pair.client.recv(65536):
                self._flows.wait()
                if self.answer is not None:
                    self.n_answered += 1
                    pair.client.sendall(self.answer)
                    break
                for said, heard in self._swaps:
                    data = data.replace(said, heard)
                is_heard = self._is_last(data)
                if is_heard is not None:
                    self.n_cut += 1
                    if not is_heard:
                        break
                    pair.is_mute = True
                pair.server.sendall(data)
        pair.end()

    def _pump_answers(self, pair: _Pair) -> None:
        with suppress(OSError):
            while data := pair.server.recv(65536):
                self._flows.wait()
                if pair.is_mute:
                    break
                pair.client.sendall(data)
        pair.end()

    def _is_last(self, data: bytes) -> bool | None:
        """None where the connection goes on; else whether the server still hears this."""
        with self._lock:
            if self._last_words is None or self._last_words[0] not in data:
                return None
            words, is_heard, after = self._last_words
            self._last_words = (words, is_heard, after - 1) if after else None
            return None if after else is_heard
