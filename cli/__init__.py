"""The command ``normlab``. Nothing heavy is imported before a command runs."""

import click

import normlab
from normlab.cli.lazy import LazyGroup

_COMMANDS = {
    "sweep": "normlab.cli.sweep:sweep",
    "report": "normlab.cli.report:report",
    "plot": "normlab.cli.plot:plot",
    "inspect": "normlab.cli.inspect:inspect",
    "compare": "normlab.cli.compare:compare",
    "claims": "normlab.cli.claims:claims",
    "zoo": "normlab.cli.zoo:zoo",
    "kernels": "normlab.cli.kernels:kernels",
    "theory": "normlab.cli.theory:theory",
    "jacobian": "normlab.cli.jacobian:jacobian",
    "bench": "normlab.cli.bench:bench",
    "doctor": "normlab.cli.doctor:doctor",
}


@click.group(
    "normlab",
    cls=LazyGroup,
    commands_at=_COMMANDS,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "auto_envvar_prefix": "NORMLAB",
        "show_default": True,
        "max_content_width": 110,
    },
)
@click.version_option(normlab.__version__, prog_name="normlab", message="%(prog)s %(version)s")
def main() -> None:
    """Measure how the scale of activations and gradients changes with depth in transformers.

    \b
    The main job:
      normlab sweep --placement pre --placement post --depths 2,4,8,16 --width 128 --out runs/first
    leaves tables, plots, verdicts on claims and one report in runs/first.

    Each option can also be set by an environment variable (NORMLAB_SWEEP_DEPTHS) or in a TOML file (--config).
    Exit codes: 0 done, 1 failed, 2 usage, 3 some cells failed, 130 interrupted.
    """


if __name__ == "__main__":
    main()
