"""Checks and times the CUDA kernels on a GPU; one command, which resumes where it was stopped.

    python tools/gpu_check.py                 # writes docs/gpu/<device>.json and .html
    python tools/gpu_check.py --dry-run       # the same code with the emulator in the GPU's place, on a few cases

Three parts: the emulator tests' own cases on the device, against the same float64 references; achieved bandwidth
(`normlab bench kernels`); compute-sanitizer's memcheck and racecheck on small cases, where it is installed. What is in
the JSON is not done again: remove the file to start anew. Needs CuPy and a CUDA device; ends with 1 if a case fails.
"""

import argparse
import html
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from cuemu.cases import CASES, SMALL  # noqa: E402
from cuemu.harness import Outcome  # noqa: E402

from normlab.benchmarks.kernels import bench_kernels  # noqa: E402
from normlab.cupy_kernels import Device  # noqa: E402
from normlab.cupy_kernels.calls import Call  # noqa: E402
from normlab.cupy_kernels.launch import CupyDriver, launch  # noqa: E402
from normlab.files import write_whole  # noqa: E402
from normlab.norms import backend  # noqa: E402


@dataclass(frozen=True)
class Runner:
    """Stands where the emulator stands in the cases: runs a call on a device, and gives back what was written."""

    driver: CupyDriver
    device: str
    offsets: Mapping[str, int] = field(default_factory=dict)

    def call(self, call: Call, device: Device) -> Outcome:
        """Run ``call``; which device it was planned for does not matter here."""
        there = {name: self._there(value) for name, value in call.values.items()}
        launch(Call(call.request, there), self.driver, 0)
        return Outcome({name: value.cpu() for name, value in there.items() if isinstance(value, Tensor)})

    def _there(self, value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        # Strides are kept, as the emulator keeps them.
        copy = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=self.device)
        return copy.copy_(value)


def main() -> int:
    """Run what is not done yet, and write the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="the JSON; its page lies beside it (docs/gpu/<device>.json)")
    parser.add_argument("--dry-run", action="store_true", help="let the emulator stand for the GPU, on a few cases")
    parser.add_argument("--small", action="store_true", help="only the small cases, and nothing else; for a sanitizer")
    options = parser.parse_args()
    if options.dry_run:
        runner = _emulated()
    elif backend.MISSING:
        print(f"The kernels cannot be checked here: {backend.MISSING}.", file=sys.stderr)
        return 1
    else:
        runner = Runner(CupyDriver(), "cuda")
    if options.small:
        return int(any(_checked(runner, name) for name in SMALL))
    name = "dry-run" if options.dry_run else torch.cuda.get_device_name().replace(" ", "-")
    out = options.out or (Path(tempfile.gettempdir()) if options.dry_run else ROOT / "docs/gpu") / f"{name}.json"
    found: dict[str, Any] = json.loads(out.read_text()) if out.exists() else {"device": name, "cases": {}}
    _run(found, runner, out, options.dry_run)
    failed = [case for case, problem in found["cases"].items() if problem]
    print(f"{len(found['cases'])} cases, {len(failed)} failed; {out} and {out.with_suffix('.html')}")
    return int(bool(failed) or any(each["failed"] for each in found["sanitizer"].values()))


def _run(found: dict[str, Any], runner: Runner, out: Path, dry: bool) -> None:
    for number, case in enumerate(SMALL[::40] if dry else CASES):
        if case not in found["cases"]:
            found["cases"][case] = _checked(runner, case)
            if number % 20 == 0:
                _save(found, out)
    if "bench" not in found:
        small = {"sizes": ((4, 64),), "dtypes": (torch.float32,), "rounds": 1, "compiled": False} if dry else {}
        found["bench"] = bench_kernels(**small)
        _save(found, out)
    if "sanitizer" not in found:
        found["sanitizer"] = {} if dry else {tool: _sanitized(tool) for tool in ("memcheck", "racecheck")}
    _save(found, out)


def _checked(runner: Runner, name: str) -> str:
    """Run a case; return what is wrong, or nothing."""
    try:
        CASES[name](runner, runner.driver.device(0))  # type: ignore[arg-type]
    except Exception as error:  # a device can fail in any way; the other cases are run
        return f"{type(error).__name__}: {error}"
    return ""


def _sanitized(tool: str) -> dict[str, Any]:
    if shutil.which("compute-sanitizer") is None:
        return {"failed": False, "said": "compute-sanitizer is not installed"}
    command = ["compute-sanitizer", "--tool", tool, "--error-exitcode", "9", sys.executable, __file__, "--small"]
    done = subprocess.run(command, capture_output=True, text=True)
    return {"failed": done.returncode != 0, "said": (done.stdout + done.stderr)[-2000:]}


def _emulated() -> Runner:
    from cuemu.launching import DRIVER, EMULATED

    backend.OPERATORS, backend.DEVICE, backend.MISSING = EMULATED, "cpu", ""
    return Runner(DRIVER, "cpu")


def _save(found: Mapping[str, Any], out: Path) -> None:
    for path, text in ((out, json.dumps(found, indent=1)), (out.with_suffix(".html"), page(found))):
        write_whole(path, text + "\n")


def page(found: Mapping[str, Any]) -> str:
    """Return the report as one page."""
    failed = {case: problem for case, problem in found["cases"].items() if problem}
    bench = found.get("bench", {"timings": [], "slower": [], "copy_bandwidth": 0.0})
    timings = [
        [*(each[name] for name in ("operation", "way", "rows", "d", "dtype")), f"{each['seconds'] * 1e6:.1f}"]
        + [f"{each['bandwidth'] / 1e9:.0f}", f"{each['share_of_copy']:.0%}"]
        for each in bench["timings"]
    ]
    parts = [
        f"<h1>CUDA kernels on {html.escape(found['device'])}</h1>",
        f"<p>{len(found['cases'])} cases against float64, {len(failed)} failed. A copy on the device moves "
        f"{bench['copy_bandwidth'] / 1e9:.0f} GB/s.</p>",
        _table(("case", "problem"), failed.items()) if failed else "",
        "<h2>RMSNorm</h2>",
        _table(("operation", "way", "rows", "d", "dtype", "µs", "GB/s", "of copy"), timings),
        "<h2>Where another way is faster</h2>",
        "".join(f"<p>{html.escape(each)}</p>" for each in bench["slower"]) or "<p>Nowhere.</p>",
        "<h2>compute-sanitizer</h2>",
        _table(("tool", "said"), ((tool, each["said"]) for tool, each in found.get("sanitizer", {}).items())),
    ]
    style = "body{font:16px sans-serif;max-width:60em;margin:2em auto}td,th{padding:.2em .8em;text-align:left}"
    head = f'<meta charset="utf-8"><title>CUDA kernels</title><style>{style}</style>'
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{"".join(parts)}</body></html>'


def _table(headings: Any, rows: Any) -> str:
    lines = [headings, *rows]
    cells = [[f"<{tag}>{html.escape(str(cell))}</{tag}>" for cell in line] for line, tag in _tagged(lines)]
    body = "".join("<tr>" + "".join(line) + "</tr>" for line in cells)
    return f"<table>{body}</table>".replace("\n", "<br>")


def _tagged(lines: list[Any]) -> list[tuple[Any, str]]:
    return [(line, "td" if number else "th") for number, line in enumerate(lines)]


if __name__ == "__main__":
    sys.exit(main())
