from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from normlab.cli import main

CONFIG = """
[sweep]
depths = [2, 4]
width = 16
placement = ["pre", "post"]
final-norm = true
seeds = 3
json = true
dry-run = true
[claims.judge]
strict = true
"""


def dry_run(tmp_path: Path, config: str, *arguments: str, **env: str) -> Result:
    path = tmp_path / "normlab.toml"
    path.write_text(config)
    return CliRunner().invoke(main, ["sweep", "--config", str(path), *arguments], env=env)


def seeds_of(result: Result) -> int:
    import json

    seeds = json.loads(result.stdout)["seeds"]
    assert isinstance(seeds, int)
    return seeds


def test_a_table_sets_the_options_of_its_command(tmp_path: Path) -> None:
    import json

    plan = json.loads(dry_run(tmp_path, CONFIG).stdout)
    assert (plan["models"], plan["cells"]) == (4, 12)
    assert plan["specs"][0] == {"depth": 2, "width": 16, "final_norm": True, **plan["specs"][0]}


def test_flag_beats_environment_beats_file(tmp_path: Path) -> None:
    assert seeds_of(dry_run(tmp_path, CONFIG)) == 3
    assert seeds_of(dry_run(tmp_path, CONFIG, NORMLAB_SWEEP_SEEDS="4")) == 4
    assert seeds_of(dry_run(tmp_path, CONFIG, "--seeds", "5", NORMLAB_SWEEP_SEEDS="4")) == 5


def test_a_list_in_an_environment_variable(tmp_path: Path) -> None:
    assert seeds_of(dry_run(tmp_path, CONFIG, NORMLAB_SWEEP_DEPTHS="2,4,8")) == 3


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        ("[sweep]\ndepht = 2", "no option of sweep in .* is named 'depht'; did you mean 'depth'"),
        ("[sweeps]\ndepth = 2", "no table in .* is named 'sweeps'; did you mean 'sweep'"),
        ("[sweep]\nconfig = 'x'", "is named 'config'"),
        ("sweep = 2", r"write \[sweep\] above its options"),
        ("[sweep", "cannot be read as TOML"),
        ("[sweep]\ndepth = 0", "0 is not a whole number"),
    ],
)
def test_a_wrong_file_is_a_usage_error(tmp_path: Path, config: str, complaint: str) -> None:
    result = dry_run(tmp_path, config)
    assert result.exit_code == 2
    with pytest.raises(click.ClickException, match=complaint):
        raise click.ClickException(" ".join(result.stderr.split()))
