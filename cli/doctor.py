"""``normlab doctor``: what is installed, what would be used, and what to do about what is broken."""

from itertools import groupby
from pathlib import Path
from typing import Any

import click

from normlab.cli.common import common
from normlab.cli.failures import Command, Failure
from normlab.cli.output import Output, write_json


@click.command(cls=Command, short_help="Say what is installed and what would be used.")
@common(out="Also write what --json prints to this file.", options=False)
def doctor(output: Output, out: Path | None, seed: int, plugin: tuple[str, ...]) -> None:
    """Say what is installed, which device would be used and how many threads.

    Exits with 1, and the remedy, if something that normlab cannot do without is broken.
    """
    from normlab.cli.checkup import examine

    found = examine()
    if out is not None:
        write_json(out, found)
    output.machine(found)
    output.result("\n".join(_lines(found)))
    if found["problems"]:
        raise Failure("; ".join(found["problems"]))


def _lines(found: dict[str, Any]) -> list[str]:
    """Return what people read."""
    lines = [f"normlab {found['normlab']}, Python {found['python']}, {found['platform']}", ""]
    lines += [
        f"  {package['name']:<12} {package['installed'] or 'missing':<14} needs {package['least']}"
        for package in found["packages"]
        if not package["extra"]
    ]
    lines += ["", *_extras(found["packages"])]
    if "cores" in found:
        cards = ", ".join(found["cuda_devices"]) or "none"
        lines += [
            "",
            f"Device: {found['device']} (CUDA devices: {cards})",
            f"Threads: a sweep runs up to {found['cores']} workers of one thread each; "
            f"in this process torch would use {found['torch_threads']}",
            f"Kernels on CUDA tensors: {found['kernels']['backend']} ({found['kernels']['why']})",
            _sums(found["sums"]),
            f"Memory: {found['memory_bytes'] / 2**30:.1f} GiB",
        ]
    return lines


def _sums(found: dict[str, Any]) -> str:
    if found["compiled"]:
        return f"Sums of recorded tensors: compiled ({found['why']})"
    return f"Sums of recorded tensors: torch, at a few times the cost; {found['why']}"


def _extras(packages: list[dict[str, Any]]) -> list[str]:
    extras = []
    for extra, members in groupby((package for package in packages if package["extra"]), lambda each: each["extra"]):
        missing = [package["name"] for package in members if package["problem"]]
        state = f"not here ({', '.join(missing)}): pip install 'normlab[{extra}]'" if missing else "installed"
        extras.append(f"  Extra {extra}: {state}")
    return extras
