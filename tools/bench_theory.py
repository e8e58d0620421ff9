"""What theory costs: seconds and peak memory of predictions, each in a process of its own, with one thread.

Seconds are processor time of a second call, when tables are at hand; the first call's are given too. Run it on a
machine that does nothing else::

    python tools/bench_theory.py
    python tools/bench_theory.py --depth 100 --case tokens
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable

CASES = {
    "tokens": "covariance of all pairs of 64 random tokens, Jacobians included",
    "averages": "three averages, Jacobians included",
    "text": "all pairs of a text's 4 × 128 tokens, at depth 12",
}


def predicting(case: str, depth: int) -> Callable[[], object]:
    """Return the prediction of a case, after a small one has loaded what every one needs."""
    import torch

    import normlab as nl

    torch.set_num_threads(1)
    nl.theory.predict(nl.ModelSpec(depth=1, width=256), 1, 2)
    if case == "text":
        batch = nl.data.text_batch(4, 128, seed=1)
        return lambda: nl.theory.predict(nl.ModelSpec(depth=12, width=256), batch)
    return lambda: nl.theory.predict(nl.ModelSpec(depth=depth, width=256), 1, 64, detail=case)


def seconds(call: Callable[[], object]) -> float:
    """Return the processor time that a call takes."""
    start = time.process_time()
    call()
    return time.process_time() - start


def measure(case: str, depth: int) -> dict[str, float]:
    """Measure one case in this process."""
    call = predicting(case, depth)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    first = seconds(call)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    again = min(seconds(call) for _ in range(3))
    megabytes = {"process_mb": round(peak / 1e3), "more_than_before_mb": round((peak - before) / 1e3)}
    return {"first_seconds": round(first, 3), "seconds": round(again, 3), **megabytes}


def main() -> None:
    """Measure each case in a new process, and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--depth", type=int, default=1000)
    parser.add_argument("--case", choices=list(CASES))
    options = parser.parse_args()
    if options.case:
        print(json.dumps(measure(options.case, options.depth)))
        return
    found = {}
    for case, what in CASES.items():
        command = [sys.executable, __file__, "--case", case, "--depth", str(options.depth)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        found[case] = {"what": what, **json.loads(done.stdout)}
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
