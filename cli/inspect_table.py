"""A data frame of numbers as a table on the terminal."""

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table


def layer_table(frame: "pd.DataFrame") -> "Table":
    """Return a table with the columns of ``frame``; one that says the same in every row is left out."""
    from rich import box
    from rich.table import Table

    names = [name for name in frame.columns if name != "stack" or frame["stack"].nunique() > 1]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for name in names:
        text = name in ("stack", "sublayer", "site", "status")
        table.add_column(str(name).replace(" ", "\n"), justify="left" if text else "right", no_wrap=True)
    for row in frame[names].itertuples(index=False):
        table.add_row(*(_cell(value) for value in row))
    return table


def _cell(value: object) -> str:
    if not isinstance(value, float):
        return str(value)
    if not math.isfinite(value):
        return "–" if math.isnan(value) else "∞"
    if not value:
        return "0"
    plain = 1e-3 <= abs(value) < 1e5
    text = (f"{value:#.3g}" if abs(value) < 100 else f"{value:.0f}") if plain else f"{value:.1e}"
    return text.rstrip(".").replace("-", "−")
