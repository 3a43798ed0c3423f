"""Install the peers, each in a virtual environment of its own.

    python benchmarks/peers.py setup --venv DIR

Uses the standard library alone, so that any Python can run it. Optuna needs no environment: it
is a dependency of the tuner, and both then run with the same interpreter, torch and Optuna.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

PEERS = ("ray", "syne-tune")
DEFAULT_VENVS = Path(tempfile.gettempdir()) / "peers-venvs"


def python_of(venvs: Path, peer: str) -> Path:
    return venvs / peer / "bin" / "python"


def requirements_of(peer: str) -> Path:
    return Path(__file__).parent / f"requirements-{peer}.txt"


def setup(venvs: Path, peers: Sequence[str]) -> None:
    """Create or update the environments."""
    for peer in peers:
        print(f"{peer}: installing into {venvs / peer}", flush=True)
        python = python_of(venvs, peer)
        if not python.exists():
            subprocess.run([sys.executable, "-m", "venv", str(venvs / peer)], check=True)
        subprocess.run(
            [str(python), "-m", "pip", "install", "-q", "-r", str(requirements_of(peer))],
            check=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description="Install the peers for the benchmarks.")
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("setup", help="create the virtual environments")
    command.add_argument("--venv", type=Path, default=DEFAULT_VENVS, help="folder of them all")
    command.add_argument("--peers", nargs="+", choices=PEERS, default=PEERS)
    args = parser.parse_args()
    setup(args.venv.resolve(), args.peers)


if __name__ == "__main__":
    main()
