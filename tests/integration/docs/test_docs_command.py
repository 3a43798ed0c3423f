"""`tuner docs`: builds the site once, opens it as files, and says what is missing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.docs_site import DOCS, ROOT
from tuner.errors import EXIT_BAD_INPUT, LaunchError
from tuner.host.docs_site import build_site, find_sources

START = "import sys; sys.argv[0] = 'tuner'; from tuner.cli.main import main; main()"
SMALL = "site_name: small\ntheme: {name: material, font: false}\n"


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's folder for caches: the site is built in it once."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def environ(tmp_path: Path, cache: Path) -> dict[str, str]:
    """The environment of a user on a machine without a browser."""
    (tmp_path / "programs").mkdir()
    kept = {k: v for k, v in os.environ.items() if k not in ("BROWSER", "DISPLAY")}
    ours = {
        "PYTHONPATH": str(ROOT),
        "PATH": str(tmp_path / "programs"),
        "XDG_CACHE_HOME": str(cache),
        "TMPDIR": str(tmp_path),
    }
    return kept | ours


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A documentation of one page."""
    folder = tmp_path / "sources"
    (folder / "docs").mkdir(parents=True)
    (folder / "mkdocs.yml").write_text(SMALL)
    (folder / "docs" / "index.md").write_text("# One\n")
    return folder


def docs(
    environ: Mapping[str, str], *words: str, start: str = START
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", start, "docs", *words],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )


def file_of(address: str) -> Path:
    return Path(unquote(urlsplit(address).path))


def test_site_is_built_and_opened_and_the_second_time_only_opened(
    environ: dict[str, str], tmp_path: Path
) -> None:
    browser = tmp_path / "browser"
    browser.write_text(f"#!/bin/sh\necho $1 >> {tmp_path}/opened\n")
    browser.chmod(0o700)
    first = docs(environ | {"BROWSER": str(browser)})
    assert first.returncode == 0, first.stderr
    (address,) = re.findall(r"^Documentation: (file://\S+)$", first.stdout, re.MULTILINE)
    assert (file_of(address).parent / "operations.html").is_file()
    built_at = file_of(address).stat().st_mtime_ns
    second = docs(environ | {"BROWSER": str(browser)})
    assert second.stdout == first.stdout
    assert file_of(address).stat().st_mtime_ns == built_at
    assert (tmp_path / "opened").read_text().split() == [address, address]
    assert list(file_of(address).parents[1].glob("building-*")) == []


def test_without_a_browser_it_says_how_to_read_it_elsewhere(environ: dict[str, str]) -> None:
    ended = docs(environ)
    assert ended.returncode == 0, ended.stderr
    (folder,) = re.findall(r"python -m http\.server .*--directory (\S+) 8000", ended.stdout)
    assert (Path(folder) / "index.html").is_file()


def test_no_browser_is_opened_on_request(environ: dict[str, str], tmp_path: Path) -> None:
    ended = docs(environ | {"BROWSER": f"/bin/touch {tmp_path}/opened; echo"}, "--no-browser")
    assert ended.returncode == 0, ended.stderr
    assert not (tmp_path / "opened").exists()
    assert "http.server" not in ended.stdout


@pytest.mark.parametrize("missing", ["mkdocs", "material"])
def test_without_the_extra_it_says_what_to_install(environ: dict[str, str], missing: str) -> None:
    ended = docs(environ, start=f"import sys; sys.modules[{missing!r}] = None; {START}")
    assert ended.returncode == EXIT_BAD_INPUT
    assert "pip install 'gpu-tuner[docs]'" in ended.stderr
    assert str(DOCS) in ended.stderr
    assert "Traceback" not in ended.stderr


def test_changed_page_is_built_anew(environ: dict[str, str], sources: Path) -> None:
    first = build_site(sources, environ)
    (sources / "docs" / "index.md").write_text("# Two\n")
    second = build_site(sources, environ)
    assert second != first
    assert "Two" in second.read_text()


def test_pages_that_cannot_be_built_are_an_error(
    environ: dict[str, str], sources: Path, tmp_path: Path
) -> None:
    (sources / "mkdocs.yml").write_text(f"{SMALL}plugins: [no-such-plugin]\n")
    with pytest.raises(LaunchError, match="no-such-plugin"):
        build_site(sources, environ | {"XDG_CACHE_HOME": str(tmp_path)})
    assert list((tmp_path / "tuner" / "docs").iterdir()) == []


def test_cache_that_cannot_be_written_is_replaced_by_a_temporary_folder(
    environ: dict[str, str], sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    page = build_site(sources, environ | {"XDG_CACHE_HOME": str(tmp_path / "file")})
    assert page.parents[1].name.startswith("tuner-docs-")
    assert "One" in page.read_text()


def test_sources_of_this_checkout_are_found() -> None:
    assert find_sources() == ROOT


@pytest.mark.parametrize("is_shipped", [True, False])
def test_sources_of_an_installed_package(is_shipped: bool, tmp_path: Path) -> None:
    installed = tmp_path / "lib"
    (installed / "tuner" / "host").mkdir(parents=True)
    for name in (
        "__init__.py",
        "errors.py",
        "host/__init__.py",
        "host/distribution.py",
        "host/docs_site.py",
    ):
        shutil.copy(ROOT / "tuner" / name, installed / "tuner" / name)
    record = installed / "gpu_tuner-0.1.0.dist-info"
    record.mkdir()
    (record / "METADATA").write_text("Metadata-Version: 2.1\nName: gpu-tuner\nVersion: 0.1.0\n")
    (record / "RECORD").write_text("tuner/__init__.py,,\n../share/doc/tuner/mkdocs.yml,,\n")
    share = tmp_path / "share" / "doc" / "tuner"
    if is_shipped:
        share.mkdir(parents=True)
        (share / "mkdocs.yml").touch()
    code = "from tuner.host.docs_site import find_sources; print(find_sources())"
    ended = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=False,
    )
    if is_shipped:
        assert ended.stdout.strip() == str(share.resolve())
    else:
        assert "ConfigError: The documentation is not installed" in ended.stderr


def test_wheel_has_every_file_of_the_site() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    shipped = {
        (target, file.relative_to(ROOT))
        for target, patterns in project["tool"]["setuptools"]["data-files"].items()
        for pattern in patterns
        for file in ROOT.glob(pattern)
    }
    assert all(Path(target, file.name) == Path("share/doc/tuner", file) for target, file in shipped)
    needed = {
        file.relative_to(ROOT)
        for file in (ROOT / "mkdocs.yml", *DOCS.rglob("*"))
        if file.is_file() and (file.suffix != ".py" or file.name == "site_hooks.py")
        if "__pycache__" not in file.parts
    }
    assert {file for _, file in shipped} == needed
