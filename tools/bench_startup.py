"""How long the command takes to answer, beside a bare ``import click``: ratios of medians, runs interleaved.

python tools/bench_startup.py [ROUNDS]
"""

import json
import statistics
import subprocess
import sys
import time

COMMANDS = {
    "import click": ("-c", "import click"),
    "python": ("-c", "pass"),
    "import normlab": ("-c", "import normlab"),
    "normlab --help": ("-m", "normlab", "--help"),
    "normlab --version": ("-m", "normlab", "--version"),
    "normlab sweep --help": ("-m", "normlab", "sweep", "--help"),
}


def seconds(arguments: tuple[str, ...]) -> float:
    """Return the wall time of a fresh interpreter."""
    start = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def main(rounds: int) -> None:
    """Print medians and their ratios to the bare import as JSON."""
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(rounds):
        for name, arguments in COMMANDS.items():
            times[name].append(seconds(arguments))
    medians = {name: statistics.median(of) for name, of in times.items()}
    bare = medians["import click"]
    print(
        json.dumps(
            {name: {"seconds": round(t, 4), "ratio": round(t / bare, 2)} for name, t in medians.items()}, indent=2
        )
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 15)
