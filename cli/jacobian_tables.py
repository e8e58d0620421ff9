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

    theory = theory[theory["stack"].isin(list(found["stack"].unique()))]
    columns = [
        ("λ to ℓ+1 (nats)", found, "lyapunov", ""),
        ("theory", theory, "lyapunov", ""),
        ("mean log (nats)", found, "lyapunov", "mean log"),
        ("σ₁ to ℓ+1", found, "singular_value", "001"),
        ("APJN to L", found, "apjn", ""),
        ("theory", theory, "apjn", ""),
    ]
    measured = set(found["quantity"].unique())
    chosen = []
    for title, rows, quantity, name in columns:
        own = rows[(rows["quantity"] == quantity) & (rows["name"] == name)]
        if quantity in measured and len(own):
            chosen.append((title, own, quantity))
    table = Table("layer ℓ", *(title for title, *_ in chosen), box=box.SIMPLE_HEAD, pad_edge=False)
    for layer in sorted({int(one) for one in found["layer"].dropna()}):
        cells = [
            _number(own[own["layer"] == layer], geometric=quantity != "lyapunov", error=title != "theory")
            for title, own, quantity in chosen
        ]
        table.add_row(f"{layer}", *cells)
    return table


def lyapunov_words(found: "pd.DataFrame") -> str:
    """Say what the Lyapunov spectrum is, where it was measured."""
    rows = found[(found["quantity"] == "lyapunov") & found["name"].str.startswith("qr ")]
    values = [_number(rows[rows["name"] == name], geometric=False) for name in sorted(rows["name"].unique())]
    return f"Lyapunov exponents by QR, in nats per block: {', '.join(values)}" if values else ""


def part_table(found: Sequence["Examination"]) -> "Table":
    """One row a part; what only all singular values tell is left out where no part has them."""
    from rich import box
    from rich.table import Table

    whole = {"rank": "rank", "condition": "condition", "log_volume": "ln volume"}
    if not any(one.spectrum.complete for one in found):
        whole = {}
    names = ("part", "shape", "‖J‖_F", "largest σ", "residual", *whole.values())
    table = Table(*names, box=box.SIMPLE_HEAD, pad_edge=False)
    for one in found:
        values = report(one)
        last = [values[name] for name in whole]
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


def _number(rows: "pd.DataFrame", *, geometric: bool, error: bool = True) -> str:
    """Mean over seeds with its standard error, of the estimate where there is one seed; or that there is none."""
    import numpy as np

    if (rows["status"] == "nonfinite").any():
        return "not finite"
    rows = rows[rows["value"].notna()]
    values = rows["value"].to_numpy()
    if not len(values):
        return ""
    if geometric and not values.all():
        return "0"
    samples = np.log(values) if geometric else values
    mean, se = float(samples.mean()), float(rows["se"].iloc[0])
    if len(values) > 1:
        se = float(samples.std(ddof=1)) / len(values) ** 0.5
    if geometric:
        mean, se = float(np.exp(mean)), se * (float(np.exp(mean)) if len(values) > 1 else 1.0)
    return f"{mean:.3g} ± {se:.1g}" if error and se > 0 else f"{mean:.4g}"
