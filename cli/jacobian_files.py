"""What ``normlab jacobian`` writes."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from normlab.cli.jacobian_cases import Case
from normlab.cli.output import Output
from normlab.files import write_whole

if TYPE_CHECKING:
    import pandas as pd

    from normlab.jacobian import TokenPart


def write_table(output: Output, out: Path, found: "pd.DataFrame", theory: "pd.DataFrame | None" = None) -> None:
    """Write the table, with theory in it, and the plots that it can fill."""
    from normlab.plots import PLOTS, write_plots
    from normlab.table import concat, to_csv_bytes

    write_whole(out / "jacobian.csv.gz", to_csv_bytes(found if theory is None else concat([found, theory])))
    names = [name for name in ("singular_values", "layer_exponents") if not PLOTS[name].missing(found)]
    for path in [out / "jacobian.csv.gz", *write_plots(found, out / "plots", names=names, theory=theory)]:
        output.note(f"{path}")


def write_images(output: Output, out: Path, case: Case, texts: Sequence[str], stack: str) -> None:
    """Draw the Jacobian of each norm that was named, at the last token of the first sequence unless one was named."""
    from normlab.errors import NormlabError
    from normlab.jacobian import dense
    from normlab.norms import frozen_statistics
    from normlab.plots import norm_jacobian, save

    (out / "plots").mkdir(parents=True, exist_ok=True)
    for text in texts:
        try:
            with frozen_statistics():
                part = _token(case, text, stack)
                if part is None:
                    continue
                matrix = dense(part, part.point)
            ax = norm_jacobian(matrix, title=f"{Path(case.name).name}, seed {case.seed}\n{part.name}")
        except NormlabError as error:
            output.note(f"There is no image of {text}: {error}")
            continue
        figure = ax.get_figure(root=True)
        assert figure is not None
        for suffix in ("svg", "png"):
            path = out / "plots" / f"{part.name.replace(' ', '_')}.{suffix}"
            output.note(f"{save(figure, path)}")


def _token(case: Case, text: str, stack: str) -> "TokenPart | None":
    """Return one token's own block of a norm or another single module; nothing for other parts."""
    from normlab.jacobian import TokenPart
    from normlab.jacobian.part import ModulePart

    named = case.parts(stack).named(text)
    if isinstance(named, TokenPart):
        return named if isinstance(named.part, ModulePart) else None
    return named.token(int(str(case.cell["tokens"])) - 1) if isinstance(named, ModulePart) else None
