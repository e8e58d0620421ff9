"""A placement of your own: defined here, swept beside Pre-LN, and reported.

On the command line the same file is a plugin:

    normlab sweep --plugin my_placement --placements pre,fading --depths 2,4,8,16 --width 64 --out runs/fading
"""

from pathlib import Path

import normlab as nl
from normlab.placements import Placement, Wiring
from normlab.where import Where


def fading(where: Where, *, power: float = 0.5) -> Wiring:
    """Pre-LN whose branch in block ℓ is divided by ℓ^power."""
    return Wiring(inner_norm=True, branch_scale=where.layer**-power)


nl.register_placement(
    Placement(
        name="fading",
        equation="x ← x + ℓ^−p F(N(x)) in block ℓ,  p = ½",
        source="this example",
        wiring=fading,
        final_norm=True,
    )
)


def main() -> None:
    """Print how the stream grows in both placements, and leave a report."""
    specs = nl.grid(placement=["pre", "fading"], depth=[2, 4, 8, 16], width=64)
    print(specs[-1].describe())
    table = nl.sweep(specs, seeds=range(3), data=nl.data.Random(batch=2, tokens=32), out="runs/fading")
    streams = table[(table["site"] == "stream") & (table["quantity"] == "rms") & (table["layer"] == table["depth"])]
    growth = streams[streams["sublayer"] == "mlp"].groupby(["placement", "depth"], observed=True)["value"].mean()
    print(growth.unstack("depth").round(2).to_string())
    print(nl.report("runs/fading", Path("runs/fading/report.html")))


# Worker processes import this file, and so know the placement; without this line each would start a sweep of its own.
if __name__ == "__main__":
    main()
