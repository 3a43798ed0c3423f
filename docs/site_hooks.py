"""What MkDocs does for these pages beyond its configuration (`hooks` in mkdocs.yml)."""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url

_MERMAID = "assets/mermaid.tiny.js"
#: What the theme would fetch from a server while a page is shown.
_OUTSIDE = re.compile(r"https://unpkg\.com/[\w@./-]*")
_LINK_OUT_OF_DOCS = re.compile(r"\[([^\]]+)\]\(\.\./[^)]+\)")


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Shows links to other folders of the repository as names: the site has only these pages."""
    return _LINK_OUT_OF_DOCS.sub(lambda link: f"`{link[1].strip('`')}`", markdown)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Loads Mermaid on the pages that have a diagram, before the theme looks for it."""
    if 'class="mermaid"' not in output:
        return output
    script = f'<script src="{get_relative_url(_MERMAID, page.url)}"></script>'
    return output.replace("</head>", f"{script}</head>", 1)


def on_post_build(config: MkDocsConfig) -> None:
    """Takes the addresses of servers out of the theme's script.

    Raises:
        PluginError: If the theme has none: then it may fetch Mermaid from elsewhere.
    """
    scripts = Path(config.site_dir, "assets", "javascripts")
    n_found = 0
    for script in scripts.glob("bundle.*.js"):
        text, n_here = _OUTSIDE.subn("", script.read_text(encoding="utf-8"))
        script.write_text(text, encoding="utf-8")
        n_found += n_here
    if not n_found:
        raise PluginError("The theme's script names no server any more: see docs/site_hooks.py.")
