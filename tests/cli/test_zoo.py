import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from normlab.activations import ACTIVATIONS
from normlab.cli import main
from normlab.inits import INITS
from normlab.norms import NORMS
from normlab.placements import PLACEMENTS
from normlab.presets import PRESETS


def zoo(*words: str) -> Result:
    return CliRunner().invoke(main, ["zoo", *words], prog_name="normlab", catch_exceptions=False)


def test_json_is_the_registries(tmp_path: Path) -> None:
    result = zoo("--json", "--out", str(tmp_path / "zoo.json"))
    found = json.loads(result.stdout)
    registries = {
        "placements": PLACEMENTS,
        "norms": NORMS,
        "inits": INITS,
        "activations": ACTIVATIONS,
        "presets": PRESETS,
    }
    assert {kind: sorted(entry["name"] for entry in listed) for kind, listed in found.items()} == {
        kind: sorted(registry) for kind, registry in registries.items()
    }
    assert json.loads((tmp_path / "zoo.json").read_text()) == found
    (lns,) = [entry for entry in found["placements"] if entry["name"] == "lns"]
    assert lns == {
        "name": "lns",
        "equation": PLACEMENTS["lns"].equation,
        "source": PLACEMENTS["lns"].source,
        "options": {},
    }


def test_people_see_every_name() -> None:
    words = zoo().stdout.split()
    assert {*PLACEMENTS, *NORMS, *INITS, *ACTIVATIONS, *PRESETS} <= set(words)


def test_a_plugins_entries_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_placement.py").write_text(
        "from normlab.placements import Placement, Wiring, register_placement\n"
        "register_placement(Placement(name='own', equation='x', source='', wiring=Wiring(), final_norm=False))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    try:
        assert "own" in zoo("--plugin", "own_placement").stdout.split()
    finally:
        PLACEMENTS._entries.pop("own", None)


def test_the_tables_are_as_wide_as_columns_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    assert max(map(len, zoo().stdout.splitlines())) <= 60
    monkeypatch.delenv("COLUMNS")
    assert 60 < max(map(len, zoo().stdout.splitlines())) <= 120
