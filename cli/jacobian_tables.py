"""What ``normlab jacobian`` found, as tables for a terminal and as JSON values."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from normlab.digits import minus

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table

    from normlab.jacobian import Examination


#: What the columns of a table are, in the order in which they stand.
_MEANINGS: Final = {
    "lyapunov": "λ: ½ ln(‖J‖²_F/(n d)), J the Jacobian of the block after layer ℓ and n d the entries of the stream: "
    "the growth of a random change of its input. mean log: the mean of its logarithm, which lies lower.",
    "singular_value": "σ₁: the largest singular value of J, the most that the block stretches a change.",
    "apjn": "APJN: ‖∂x_L/∂x_ℓ‖²_F/(n d), the mean square of a random change's growth up to the last layer.",
}


def layer_table(found: "pd.DataFrame", theory: "pd.DataFrame") -> "Table":
    """One row a layer: the map to the next, and the map to the last."""
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
    table = _table(["layer ℓ", *(title for title, *_ in chosen)])
    for layer in sorted({int(one) for one in found["layer"].dropna()}):
        cells = [
            _number(own[own["layer"] == layer], geometric=quantity != "lyapunov", error=title != "theory")
            for title, own, quantity in chosen
        ]
        table.add_row(f"{layer}", *cells)
    return table


def layer_words(found: "pd.DataFrame", probes: int) -> str:
    """Say what the columns of :func:`layer_table` are."""
    measured = set(found["quantity"].unique())
    seeds = len(found[["model_seed", "data_seed"]].drop_duplicates())
    alone = f"of the estimate from {probes} random vectors; another seed differs by more: give several by --seeds"
    over = f"over {seeds} seeds" if seeds > 1 else alone
    spread = [f"±: the standard error {over}."] if measured & {"lyapunov", "apjn"} or seeds > 1 else []
    return "\n".join([*(words for name, words in _MEANINGS.items() if name in measured), *spread])


def lyapunov_words(found: "pd.DataFrame") -> str:
    """Say what the Lyapunov spectrum is, where it was measured."""
    rows = found[(found["quantity"] == "lyapunov") & found["name"].str.startswith("qr ")]
    values = [_number(rows[rows["name"] == name], geometric=False) for name in sorted(rows["name"].unique())]
    return f"Lyapunov exponents by QR, in nats per block: {', '.join(values)}" if values else ""


def part_words(found: Sequence["Examination"], probes: int) -> str:
    """Say what the columns of :func:`part_table` are."""
    lines = [
        f"‖J‖_F: the root of the sum of all entries' squares, ± its standard error, from {probes} random vectors.",
        "σ: singular values of J. residual: the largest ‖Jᵀu − σv‖/σ₁ of them; 0 where they have converged.",
    ]
    if any(one.spectrum.complete for one in found):
        lines.append("condition: σ₁ over the smallest σ that is not 0. ln volume: the sum of ln σ over those.")
    return "\n".join(lines)


def _table(names: Sequence[str]) -> "Table":
    from rich import box
    from rich.table import Table

    return Table(*names, box=box.SIMPLE_HEAD, pad_edge=False)


def part_table(found: Sequence["Examination"], most: int) -> "Table":
    """One row a part with its ``most`` largest singular values.

    What only all singular values tell is left out where no part has them.
    """
    whole = {"rank": "rank", "condition": "condition", "log_volume": "ln volume"}
    if not any(one.spectrum.complete for one in found):
        whole = {}
    table = _table(["part", "shape", "‖J‖_F", "largest σ", "residual", *whole.values()])
    for one in found:
        values = report(one)
        last = [values[name] for name in whole]
        table.add_row(
            one.name,
            " × ".join(str(size) for size in one.spectrum.shape),
            minus(f"{one.norm.value:.4g} ± {one.norm.se:.2g}"),
            minus(", ".join(f"{value:.4g}" for value in one.spectrum.values[:most])),
            minus(f"{one.spectrum.residuals.max():.1e}"),
            *("" if value is None else minus(f"{value:.4g}") for value in last),
        )
    return table


def report(one: "Examination") -> dict[str, Any]:
    """What was found as JSON values; condition number and volume are those of the range."""
    spectrum = one.spectrum
    rank = spectrum.rank if spectrum.complete and spectrum.values[0] > 0 else None
    return {
        "part": one.name,
        "shape": list(spectrum.shape),
        "dtype": one.dtype,
        "agreement": one.agreement if one.agreement == one.agreement else None,
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
    return minus(f"{mean:.3g} ± {se:.1g}" if error and se > 0 else f"{mean:.4g}")
