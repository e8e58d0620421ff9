"""``normlab bench``: what things cost on this machine."""

import click

from normlab.cli.lazy import LazyGroup


@click.group(
    cls=LazyGroup,
    commands_at={
        "norms": "normlab.cli.bench_norms:bench_norms",
        "kernels": "normlab.cli.bench_kernels:bench_kernels",
    },
    short_help="Time norms on this machine.",
)
def bench() -> None:
    """Times, taken in turns, and told as ratios with intervals."""
