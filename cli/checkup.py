"""What the doctor looks at: packages, their extras, the machine, and the text that a sweep reads."""

import importlib.metadata
import os
import platform
import re
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import normlab
from normlab.errors import NormlabError

_REQUIREMENT = re.compile(r"(?P<name>[\w.-]+)\s*(?:>=\s*(?P<least>[\d.]+))?")
_EXTRA = re.compile(r"extra\s*==\s*['\"](?P<extra>[\w-]+)['\"]")


@dataclass(frozen=True)
class Package:
    """What is known of a package that normlab needs, or can use.

    Attributes:
        name: of the distribution.
        least: the lowest version that will do, empty where any will.
        installed: the version found, empty where there is none.
        extra: the extra that it belongs to, empty where normlab cannot do without it.
        problem: what is wrong with it and what to do; empty where nothing is.
    """

    name: str
    least: str
    installed: str
    extra: str
    problem: str


def examine() -> dict[str, Any]:
    """Return everything found, as plain values for JSON; ``problems`` are what a sweep cannot do without."""
    packages = [_package(requirement) for requirement in _requirements()]
    problems = [package.problem for package in packages if package.problem and not package.extra]
    if not packages:
        problems.append("normlab itself is not installed: run pip install -e . in its folder")
    machine = {} if problems else _machine()
    problems += [] if problems else _text_problems()
    return {
        "normlab": normlab.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        **machine,
        "packages": [asdict(package) for package in packages],
        "problems": problems,
    }


def _requirements() -> list[str]:
    try:
        declared = importlib.metadata.requires("normlab") or []
    except importlib.metadata.PackageNotFoundError:
        return []
    return [requirement for requirement in declared if not requirement.startswith("normlab")]


def _package(requirement: str) -> Package:
    parts = _REQUIREMENT.match(requirement)
    assert parts is not None, requirement
    name, least = parts["name"], parts["least"] or ""
    marker = _EXTRA.search(requirement)
    extra = marker["extra"] if marker else ""
    remedy = f"run pip install 'normlab[{extra}]'" if extra else f"run pip install '{name}>={least}'"
    try:
        installed = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return Package(name, least, "", extra, f"{name} is not installed: {remedy}")
    if _numbers(installed) < _numbers(least):
        problem = f"{name} {installed} is older than {least}: {remedy}"
    else:
        problem = "" if extra else _import_problem(name, remedy)
    return Package(name, least, installed, extra, problem)


def _import_problem(name: str, remedy: str) -> str:
    try:
        import_module(name.lower().replace("-", "_"))
    except Exception as error:  # a broken binary can raise anything
        return f"{name} cannot be imported ({type(error).__name__}: {error}): {remedy} --force-reinstall"
    return ""


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version.split("+")[0])[:3])


def _machine() -> dict[str, Any]:
    import psutil
    import torch

    from normlab.norms import kernels_info

    cards = [torch.cuda.get_device_name(card) for card in range(torch.cuda.device_count())]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return {
        "device": "cpu",
        "cuda_devices": cards,
        "cores": cores,
        "torch_threads": torch.get_num_threads(),
        "kernels": kernels_info(),
        "sums": _sums(),
        "memory_bytes": int(psutil.virtual_memory().total),
    }


def _sums() -> dict[str, Any]:
    """Say whether the recorder's compiled sums are used, and why not."""
    from normlab.recording import native

    spec = find_spec("normlab.recording._native")
    if spec is None or spec.origin is None:
        why = "the package was built without a C++ compiler: install one, then run make setup or pip install again"
        return {"compiled": False, "why": why}
    try:
        native.loaded(spec.origin)
    except ImportError as error:
        why = f"{spec.origin} cannot be loaded ({error}): build it again with make setup or pip install"
        return {"compiled": False, "why": why}
    return {"compiled": True, "why": "built with a C++ compiler"}


def _text_problems() -> list[str]:
    from normlab.data import Text

    try:
        Text(batch=1, tokens=8).draw(0)
    except (NormlabError, ImportError) as error:
        return [f"the standard library's documentation cannot be read ({error}): give sweeps --text FILE"]
    return []
