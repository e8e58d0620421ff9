"""What ``normlab jacobian`` found, as tables for a terminal and as JSON values."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table

    from normlab.jacobian import Examination


def layer_table(found: "pd.DataFrame", theory: "pd.DataFrame") -> "Table":
    """One row a layer: the map to the next, and the map to the last."""
    from rich import box
    from rich.table import Table

    table = Table(
        "layer ℓ", "λ to ℓ+1", "theory", "σ₁ to ℓ+1", "APJN to L", "theory", box=box.SIMPLE_HEAD, pad_edge=False
    )
    for layer in sorted({int(one) for one in found["layer"].dropna()}):
        table.add_row(
            f"{layer}",
            _number(_mean(found, layer, "lyapunov")),
            _number(_mean(theory, layer, "lyapunov")),
            _number(_mean(found, layer, "singular_value", "001")),
            _number(_mean(found, layer, "apjn")),
            _number(_mean(theory, layer, "apjn")),
        )
    return table


def part_table(found: Sequence["Examination"]) -> "Table":
    """One row a part."""
    from rich import box
    from rich.table import Table

    names = ("part", "shape", "‖J‖_F", "largest σ", "residual", "rank", "condition", "ln volume")
    table = Table(*names, box=box.SIMPLE_HEAD, pad_edge=False)
    for one in found:
        values = report(one)
        last = [values[name] for name in ("rank", "condition", "log_volume")]
        table.add_row(
            one.name,
            " × ".join(str(size) for size in one.spectrum.shape),
            f"{one.norm.value:.4g} ± {one.norm.se:.2g}",
            ", ".join(f"{value:.4g}" for value in one.spectrum.values[:4]),
            f"{one.spectrum.residuals.max():.1e}",
            *("" if value is None else f"{value:.4g}" for value in last),
        )
    return table


def report(one: "Examination") -> dict[str, Any]:
    """What was found as JSON values; condition number and volume are those of the range."""
    spectrum = one.spectrum
    rank = spectrum.rank if spectrum.complete and spectrum.values[0] > 0 else None
    return {
        "part": one.name,
        "shape": list(spectrum.shape),
        "frobenius": {"value": one.norm.value, "se": one.norm.se, "low": one.norm.low, "high": one.norm.high},
        "singular_values": [float(value) for value in spectrum.values],
        "residuals": [float(value) for value in spectrum.residuals],
        "rank": rank,
        "condition": spectrum.condition(rank=rank) if rank else None,
        "log_volume": spectrum.log_volume(rank=rank) if rank else None,
    }


def records(table: "pd.DataFrame") -> Iterator[dict[str, Any]]:
    """Yield rows without what does not apply."""
    for row in table.to_dict("records"):
        yield {str(name): value for name, value in row.items() if value == value and value is not None and value != ""}


def _mean(table: "pd.DataFrame", layer: int, quantity: str, name: str = "") -> float:
    """Mean over seeds, geometric but for exponents."""
    import numpy as np

    rows = table[(table["layer"] == layer) & (table["quantity"] == quantity) & (table["name"] == name)]
    values = rows["value"].dropna().to_numpy()
    if not len(values):
        return float("nan")
    return float(values.mean()) if quantity == "lyapunov" else float(np.exp(np.log(values).mean()))


def _number(value: float) -> str:
    return "" if value != value else f"{value:.4g}"
