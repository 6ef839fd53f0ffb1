"""Fuzzes every parser of outside bytes: `python -m tests.fuzz [--seconds S | --runs N] [NAME...]`.

Each target runs in a process of its own, guided by coverage of our code (atheris) from its seeds.
An input that crashes is kept below `fuzz-out/` and printed; the exit code is then 1.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

OUT = Path("fuzz-out")
NAMES = (
    "prometheus",
    "history",
    "serve",
    "nodes",
    "webhook",
    "webhook_alert",
    "settings",
    "trace",
    "mapped_trace",
    "packed_trace",
    "played_trace",
)


def main() -> int:
    """Fuzz what was asked for, one after the other."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--seconds", type=int, default=0, help="time for each target")
    parser.add_argument("--runs", type=int, default=0, help="inputs for each target")
    parser.add_argument("--seed", type=int, default=1, help="same seed, same inputs")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    unknown = set(asked.names) - set(NAMES)
    if unknown:
        parser.error(f"no such target: {', '.join(sorted(unknown))}")
    if asked.one:
        return _one(asked.one, asked.seconds, asked.runs, asked.seed)
    failed = 0
    for name in asked.names or NAMES:
        began_s = time.monotonic()
        command = [sys.executable, "-m", "tests.fuzz", "--one", name]
        command += ["--runs", str(asked.runs), "--seconds", str(asked.seconds)]
        command += ["--seed", str(asked.seed)]
        done = subprocess.run(command, capture_output=True, text=True)
        took_s = time.monotonic() - began_s
        clean = done.returncode == 0
        failed += not clean
        counts = [line for line in done.stderr.splitlines() if line.startswith("Done ")]
        said = counts[-1] if counts else ""
        print(f"{name:13} {'clean' if clean else 'CRASHED'}  {took_s:5.0f} s  {said}", flush=True)
        if not clean:
            print(done.stdout[-2000:], done.stderr[-4000:], sep="\n")
    return int(failed > 0)


def _one(name: str, seconds: int, runs: int, seed: int) -> int:
    try:
        import atheris
    except ImportError:
        print("fuzzing needs atheris: a wheel exists for Linux on x86-64", file=sys.stderr)
        return 3
    with atheris.instrument_imports(include=["controller", "serve_app"]):
        from tests.fuzz import targets
    OUT.mkdir(exist_ok=True)
    corpus = Path(tempfile.mkdtemp(prefix=f"leadtime-corpus-{name}-"))
    for number, body in enumerate(targets.TARGETS[name].seeds()):
        (corpus / f"seed-{number}").write_bytes(body)
    options = [sys.argv[0], str(corpus), f"-seed={seed}", f"-artifact_prefix={OUT}/{name}-"]
    options += ["-timeout=20", "-rss_limit_mb=4096", "-print_final_stats=0", "-verbosity=1"]
    options += [f"-runs={runs}"] if runs else []
    options += [f"-max_total_time={seconds}"] if seconds else []
    atheris.Setup(options, lambda body: targets.check(name, body))
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
