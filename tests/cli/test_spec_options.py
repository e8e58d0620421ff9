from dataclasses import fields

import click
import pytest
from click.testing import CliRunner

from normlab.cli.spec_options import FIELDS, axes, spec_options
from normlab.spec import ModelSpec


def axes_of(line: str) -> dict[str, list[object]]:
    """What a command with these options makes of a command line."""
    found: dict[str, list[object]] = {}

    @click.command()
    @spec_options
    def command(**values: object) -> None:
        found.update(axes(values))

    result = CliRunner().invoke(command, line.split())
    if result.exit_code:
        raise ValueError(result.stderr)
    return found


def test_every_field_of_a_spec_is_an_option() -> None:
    assert sorted(field.name for field in FIELDS) == sorted(field.name for field in fields(ModelSpec))


def test_repeated_and_plural_options_join_without_duplicates() -> None:
    assert axes_of("--depth 8 --depths 2,8,4 --depth 16 --width 8")["depth"] == [8, 16, 2, 4]


def test_each_option_reaches_its_field() -> None:
    line = """--kind decoder --depth 2 --width 12 --heads 3 --kv-heads 1 --head-width 6 --mlp-width 5 --vocab 300
        --context 64 --placement peri --norm rmsnorm --norm-eps 1e-3 --norm-option gain=false --final-norm off
        --embed-norm on --activation relu --attention uniform --init gpt2 --embed-std 0.5 --bias on
        --position learned --tie-embeddings on --dropout 0.25"""
    spec = ModelSpec(**{name: value for name, (value,) in axes_of(line).items()})
    assert spec == ModelSpec(
        kind="decoder", depth=2, width=12, heads=3, kv_heads=1, head_width=6, mlp_width=5, vocab=300, context=64,
        placement="peri", norm="rmsnorm", norm_eps=1e-3, norm_options=(("gain", False),), final_norm=False,
        embed_norm=True, activation="relu", attention="uniform", init="gpt2", embed_std=0.5, bias=True,
        position="learned", tie_embeddings=True, dropout=0.25,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("--width 8", "no depth was given"),
        ("--depth 2", "no width was given"),
        ("--depth 2 --width 8 --placement pre,post", "pre,post is a list: give --placements pre,post"),
        ("--depth 2,4 --width 8", "2,4 is a list: give --depths 2,4"),
        ("--depth 0 --width 8", "0 is not a whole number of at least 1"),
        ("--depths 2,,4 --width 8", "empty item"),
        ("--depth 2 --width 8 --final-norm yes", "neither on nor off"),
        ("--depth 2 --width 8 --norm-option gain", "give name=value"),
        ("--depth 2 --width 8 --norm-eps nan", "nan is not a number"),
    ],
)
def test_what_cannot_be_read_is_said(line: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        axes_of(line)
