"""The code of every page runs, its commands exist, and its links lead somewhere."""

import re
from pathlib import Path
from types import ModuleType

import click
import pytest

from normlab.cli import main
from normlab.inspection import check_recorded, parse

ROOT = Path(__file__).parents[2]
NAMES = ["README.md", "CONTRIBUTING.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))]
#: The README's program runs among the examples; that of theory.md takes ten seconds.
WITH_CODE = ["docs/discovery.md", "docs/inspecting.md", "docs/jacobian.md", "docs/recording.md"]


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files that the pages name."""
    monkeypatch.chdir(tmp_path)
    for name in ("book.txt", "config.json"):
        (tmp_path / name).write_text("{}")
    return tmp_path


@pytest.mark.parametrize("name", WITH_CODE)
def test_the_code_of_a_page_runs(name: str, pages: ModuleType, workplace: Path) -> None:
    # A page is one program: what follows uses what stands before it.
    exec(compile("\n".join(pages.code(ROOT / name)), name, "exec"), {"__name__": "__main__"})


@pytest.mark.parametrize("name", [name for name in NAMES if "$ normlab " in (ROOT / name).read_text("utf-8")])
def test_the_commands_of_a_page_are_read(name: str, pages: ModuleType, workplace: Path) -> None:
    found = pages.commands(ROOT / name)
    assert found
    for words in found:
        for word in words:
            if word.startswith(("runs/", "./")):
                (workplace / word).mkdir(parents=True, exist_ok=True)
        command: click.Command = main
        context = None
        while isinstance(command, click.Group):
            context = command.make_context(command.name, [words[0]], parent=context)
            _, inner, words = command.resolve_command(context, words)
            assert inner is not None
            command = inner
        command.make_context(command.name, list(words), parent=context)


def test_the_conditions_of_the_pages_are_read(pages: ModuleType) -> None:
    words = [
        word for name in NAMES for line in pages.commands(ROOT / name) for word in zip(line, line[1:], strict=False)
    ]
    conditions = [parse(after) for before, after in words if before == "--assert"]
    assert len(conditions) > 4
    for condition in conditions:
        check_recorded(condition, backward=True)


@pytest.mark.parametrize("name", NAMES)
def test_the_links_of_a_page_lead_somewhere(name: str) -> None:
    path = ROOT / name
    links = re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", path.read_text(encoding="utf-8"))
    lost = [link for link in links if "://" not in link and not (path.parent / link).exists()]
    assert not lost


def test_the_readme_leads_to_every_page() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert not [name for name in NAMES if name.startswith("docs/") and f"({name})" not in text]
