"""The documentation as a site on this machine: built once per version, then opened as files."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tuner.errors import ConfigError, LaunchError
from tuner.host.distribution import DISTRIBUTION

CONFIGURATION = "mkdocs.yml"
_FIRST_PAGE = "index.html"
#: Its path in a wheel, below the environment's folder.
_IN_A_WHEEL = f"share/doc/tuner/{CONFIGURATION}"
_PACKAGES = ("mkdocs", "material")
_BUILDING = "building-"


def find_sources() -> Path:
    """Finds the folder with `mkdocs.yml` and the pages in `docs/`.

    Raises:
        ConfigError: If this installation has none.
    """
    checkout = Path(__file__).resolve().parents[2]
    if (checkout / CONFIGURATION).is_file():
        return checkout
    for file in importlib.metadata.files(DISTRIBUTION) or ():
        path = Path(str(file.locate()))
        if file.as_posix().endswith(_IN_A_WHEEL) and path.is_file():
            return path.resolve().parent
    raise ConfigError(f"The documentation is not installed. Install {DISTRIBUTION} again with pip.")


def check_installed(sources: Path) -> None:
    """Checks that MkDocs is installed.

    Raises:
        LaunchError: If it is not.
    """
    if any(importlib.util.find_spec(name) is None for name in _PACKAGES):
        raise LaunchError(
            "The documentation is built with MkDocs, which is not installed: "
            f"pip install 'gpu-tuner[docs]'\nThe same pages as text are in {sources / 'docs'}"
        )


def build_site(sources: Path, environ: Mapping[str, str]) -> Path:
    """Builds the site, unless that was done before for the same pages.

    Args:
        sources: The folder with `mkdocs.yml`.
        environ: Names the folder for caches.

    Returns:
        The path of the first page.

    Raises:
        LaunchError: If it cannot be built.
    """
    cache = _cache_folder(environ)
    site = cache / _digest(sources)
    if not (site / _FIRST_PAGE).is_file():
        building = Path(tempfile.mkdtemp(prefix=_BUILDING, dir=cache))
        try:
            _build(sources, building, environ)
            # Where another process was faster, its site is as good.
            if not site.exists():
                building.rename(site)
        finally:
            shutil.rmtree(building, ignore_errors=True)
    return site / _FIRST_PAGE


def _cache_folder(environ: Mapping[str, str]) -> Path:
    """The user's folder for caches, or a temporary one if that cannot be written."""
    home = environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME", "~"), ".cache").expanduser()
    cache = Path(home, "tuner", "docs")
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except OSError:
        cache = Path(tempfile.mkdtemp(prefix="tuner-docs-"))
    if not os.access(cache, os.W_OK):
        cache = Path(tempfile.mkdtemp(prefix="tuner-docs-"))
    return cache


def _digest(sources: Path) -> str:
    """A name for the site of these pages, built by this version of the theme."""
    digest = hashlib.sha256(importlib.metadata.version("mkdocs-material").encode())
    pages = (path for path in (sources / "docs").rglob("*") if "__pycache__" not in path.parts)
    for path in (sources / CONFIGURATION, *sorted(pages)):
        if path.is_file():
            digest.update(str(path.relative_to(sources)).encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _build(sources: Path, into: Path, environ: Mapping[str, str]) -> None:
    built = subprocess.run(
        [
            *(sys.executable, "-P", "-m", "mkdocs", "build", "--quiet", "--no-strict"),
            *("--config-file", str(sources / CONFIGURATION), "--site-dir", str(into)),
        ],
        # A notice of the theme's authors about its future would precede an error.
        env={**environ, "NO_MKDOCS_2_WARNING": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if built.returncode or not (into / _FIRST_PAGE).is_file():
        raise LaunchError(
            f"The documentation could not be built:\n{built.stdout.strip()}\n"
            f"The same pages as text are in {sources / 'docs'}"
        )
