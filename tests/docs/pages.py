"""What the pages say, as data: their code, their commands, and the first column of their tables."""

import re
import shlex
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def code(path: Path, language: str = "python") -> list[str]:
    """Return the blocks of a page that are in one language; those in none are what something prints."""
    fences = re.findall(r"^```(.*?)\n(.*?)^```$", path.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    return [block for name, block in fences if name == language]


def commands(path: Path) -> list[list[str]]:
    """Return the words of each call of ``normlab`` that a page shows."""
    lines = [line for block in code(path, "console") for line in block.splitlines()]
    return [shlex.split(line[2:], comments=True)[1:] for line in lines if line.startswith("$ normlab ")]


def first_column(text: str, heading: str) -> list[str]:
    """Return what stands in backticks in the first column of the tables under a heading."""
    section = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("|")]
    return [word for cell in cells for word in re.findall(r"`([^`]+)`", cell)]


def pattern(status: str) -> re.Pattern[str]:
    """Return what a text with … in place of numbers and names stands for."""
    return re.compile(re.escape(status).replace("…", ".+"))
