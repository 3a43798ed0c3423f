"""What uploading a state of 100 MB costs a trial that trains meanwhile.

    python -m benchmarks.object_store --saves 4 --between 10 --pairs 3

One trial on one core, once without and once with `checkpoints.store`, in turns. The store is moto
on the same machine with the lowest priority: on a cluster it would be elsewhere, and its processor
time is not counted. Steps per processor second of training say what the upload takes from caches
and memory; the processor time of the process that uploads says what it takes from other cores.
"""

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import psutil

from benchmarks.common.machine import package_versions, this_machine
from benchmarks.common.results import write_json
from benchmarks.common.systems import ROOT
from benchmarks.common.workload import PROGRAMS

PROGRAM = "large_state"
STUDY = """\
study: bench
objectives: {{value: maximize}}
trial: {{function: {program}:train, resources: {{cpus: 1}}}}
search_space: {{x: {{type: float, low: 0.0, high: 1.0}}}}
sampler: random
pruner: none
devices: cpu:1
budget: {{trials: 1}}
{checkpoints}
"""
UPLOADER = "tuner.checkpoints.object_store.uploader"


@contextmanager
def store() -> Iterator[dict[str, str]]:
    """A server of S3 with a bucket; gives what the tuner needs to find it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["nice", "-n", "19", sys.executable, "-m", "moto.server", "-p", str(port)]
    server = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(600):
            try:
                request = urllib.request.Request(f"{url}/bench-bucket", method="PUT")
                urllib.request.urlopen(request, timeout=10).close()
                break
            except OSError:
                time.sleep(0.1)
        yield {
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": url,
        }
    finally:
        server.kill()
        server.wait()


def run(environ: dict[str, str], saves: int, between_s: float) -> dict[str, float]:
    """One study: seconds and steps of its trial, processor seconds of the process that uploads."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copy(PROGRAMS / f"{PROGRAM}.py", folder)
        keys = "checkpoints: {store: s3://bench-bucket/p}" if environ else ""
        (folder / "study.yaml").write_text(STUDY.format(program=PROGRAM, checkpoints=keys))
        out = folder / "out.json"
        ours = {
            "BENCH_OUT": str(out),
            "BENCH_SAVES": str(saves),
            "BENCH_BETWEEN_S": str(between_s),
            "PYTHONPATH": str(ROOT),
        }
        command = [sys.executable, "-m", "tuner.run", "study.yaml"]
        process = subprocess.Popen(
            command, cwd=folder, env={**os.environ, **environ, **ours}, stdout=subprocess.DEVNULL
        )
        found = _processor_s(process)
        assert process.returncode == 0
        return {**json.loads(out.read_text()), "uploader": found}


def _processor_s(process: "subprocess.Popen[bytes]") -> float:
    """Of the process that uploads, as last seen before its end."""
    seconds = 0.0

    def look() -> None:
        nonlocal seconds
        while process.poll() is None:
            try:
                for child in psutil.Process(process.pid).children():
                    if UPLOADER in child.cmdline():
                        times = child.cpu_times()
                        seconds = times.user + times.system
            except psutil.Error:
                pass
            time.sleep(0.05)

    watcher = threading.Thread(target=look)
    watcher.start()
    process.wait()
    watcher.join()
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--saves", type=int, default=4)
    parser.add_argument("--between", type=float, default=10.0)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--output", type=Path, default=Path("benchmark-object-store.json"))
    arguments = parser.parse_args()
    plain, uploaded = [], []
    with store() as environ:
        for _ in range(arguments.pairs):
            plain.append(run({}, arguments.saves, arguments.between))
            uploaded.append(run(environ, arguments.saves, arguments.between))
    rates = [
        (b["steps"] / b["processor"]) / (a["steps"] / a["processor"])
        for a, b in zip(plain, uploaded, strict=True)
    ]
    each = [b["uploader"] / arguments.saves for b in uploaded]
    share = [b["uploader"] / b["processor"] for b in uploaded]
    print(this_machine())
    print("| 100 MB every | steps per processor second, with / without | processor of an upload |")
    print("|---|---|---|")
    print(
        f"| {arguments.between:g} s | {median(rates):.3f} ({min(rates):.3f} to {max(rates):.3f}) "
        f"| {median(each):.2f} s = {100 * median(share):.1f} % of training |"
    )
    write_json(
        arguments.output,
        packages=package_versions(Path(sys.executable), ["torch", "obstore", "moto"]),
        figures={"plain": plain, "uploaded": uploaded},
    )


if __name__ == "__main__":
    main()
