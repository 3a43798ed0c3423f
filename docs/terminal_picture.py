"""Makes docs/images/terminal.svg: the live view of study.yaml, taken from a real terminal (tmux).

python docs/terminal_picture.py
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "images" / "terminal.svg"
WIDTH = 108
HEIGHT = 24
#: The picture is taken when so many trials have begun.
AT_TRIAL = "30 of 48 trials"
TIMEOUT_S = 180


def tmux(*words: str) -> str:
    return subprocess.run(["tmux", *words], check=True, capture_output=True, text=True).stdout


def main() -> None:
    session = f"picture-{os.getpid()}"
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "study.yaml").write_text((ROOT / "study.yaml").read_text())
        size = ["-x", str(WIDTH), "-y", str(HEIGHT)]
        command = f"cd {folder} && PYTHONPATH={ROOT} {sys.executable} -m tuner.run study.yaml"
        tmux("new-session", "-d", "-s", session, *size, command)
        try:
            screen = wait_for(session, AT_TRIAL)
        finally:
            tmux("kill-session", "-t", session)
    console = Console(record=True, width=WIDTH, file=StringIO())
    console.print(Text.from_ansi("$ python -m tuner.run study.yaml\n" + screen.rstrip()))
    console.save_svg(str(PICTURE), title="python -m tuner.run study.yaml")


def wait_for(session: str, words: str) -> str:
    give_up_at_s = time.monotonic() + TIMEOUT_S
    while time.monotonic() < give_up_at_s:
        time.sleep(0.2)
        if words in tmux("capture-pane", "-p", "-t", session):
            return tmux("capture-pane", "-ep", "-t", session)
    raise SystemExit(f"{words!r} was not seen within {TIMEOUT_S} s.")


if __name__ == "__main__":
    main()
