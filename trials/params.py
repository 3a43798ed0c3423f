"""A trial's parameters, as training code reads them."""

from __future__ import annotations

from typing import Any


class Params(dict[str, Any]):
    """The parameters of a trial, a dict: `params["lr"]` or `params.lr`."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            known = ", ".join(self) or "none"
            raise AttributeError(
                f"This trial has no parameter {name!r}. It has: {known}."
            ) from None
