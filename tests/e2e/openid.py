"""An OpenID provider on this machine, where everybody is who they say they are.

It does what a client sees of OpenID Connect Core 1.0's code flow (sections 3.1.2 and 3.1.3) with
proof keys (RFC 7636), and signs what it says with a key of its own.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import RSAKey

CLIENT_ID, CLIENT_SECRET = "dashboard", "not a secret in a test"
_KEY_ID = "1"


class Provider:
    """What is known of those who are about to log in. Several threads may use it."""

    def __init__(self, issuer: str) -> None:
        self.issuer = issuer
        self._key = RSAKey.generate_key(2048, parameters={"kid": _KEY_ID})
        self._asked: dict[str, dict[str, str]] = {}

    def metadata(self) -> dict[str, Any]:
        return {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/keys",
            "response_types_supported": ["code"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["RS256"],
            "code_challenge_methods_supported": ["S256"],
        }

    def keys(self) -> dict[str, Any]:
        return {"keys": [self._key.as_dict(private=False, use="sig", alg="RS256")]}

    def login_page(self, asked: dict[str, str]) -> str:
        """Asks who it is."""
        assert asked["client_id"] == CLIENT_ID
        assert asked["code_challenge_method"] == "S256"
        hidden = "".join(
            f'<input type="hidden" name="{escape(name)}" value="{escape(value)}">'
            for name, value in asked.items()
        )
        return (
            f'<!doctype html><title>Provider</title><form action="/agree">{hidden}'
            '<label>Address <input name="email"></label><button>Go on</button></form>'
        )

    def agreed(self, asked: dict[str, str]) -> str:
        """Where the browser is sent, with a code that says who it is."""
        code = secrets.token_urlsafe()
        self._asked[code] = asked
        return f"{asked['redirect_uri']}?{urlencode({'code': code, 'state': asked['state']})}"

    def token(self, told: dict[str, str], authorization: str) -> dict[str, Any]:
        """A code is good once, for the client that has the proof of having asked for it."""
        asked = self._asked.pop(told["code"])
        client = base64.b64encode(f"{CLIENT_ID}:{CLIENT_SECRET}".encode()).decode()
        assert authorization == f"Basic {client}"
        digest = hashlib.sha256(told["code_verifier"].encode()).digest()
        assert asked["code_challenge"] == base64.urlsafe_b64encode(digest).decode().rstrip("=")
        assert told["redirect_uri"] == asked["redirect_uri"]
        now_s = int(time.time())
        claims = {
            "iss": self.issuer,
            "sub": asked["email"],
            "aud": CLIENT_ID,
            "iat": now_s,
            "exp": now_s + 3600,
            "nonce": asked["nonce"],
            "email": asked["email"],
            "email_verified": True,
        }
        signed = jwt.encode({"alg": "RS256", "kid": _KEY_ID}, claims, self._key)
        return {"access_token": "of no use", "token_type": "Bearer", "id_token": signed}


@contextmanager
def provider() -> Iterator[str]:
    """The address of one that answers."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Answers)
    server.daemon_threads = True
    _Answers.provider = Provider(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, daemon=True, name="provider")
    thread.start()
    try:
        yield _Answers.provider.issuer
    finally:
        server.shutdown()
        server.server_close()


class _Answers(BaseHTTPRequestHandler):
    provider: Provider

    def do_GET(self) -> None:
        asked = _first(urlsplit(self.path).query)
        match urlsplit(self.path).path:
            case "/.well-known/openid-configuration":
                self._say(json.dumps(self.provider.metadata()), "application/json")
            case "/keys":
                self._say(json.dumps(self.provider.keys()), "application/json")
            case "/authorize":
                self._say(self.provider.login_page(asked), "text/html")
            case "/favicon.ico":
                self._say("", "image/x-icon")
            case "/agree":
                self.send_response(302)
                self.send_header("Location", self.provider.agreed(asked))
                self.end_headers()
            case _:
                self.send_error(404)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        told = self.provider.token(_first(body), self.headers.get("Authorization", ""))
        self._say(json.dumps(told), "application/json")

    def _say(self, text: str, kind: str) -> None:
        body = text.encode()
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


def _first(query: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(query).items()}
