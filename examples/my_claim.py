"""A claim of your own: state it and its rule before any data is seen, register it, and let a sweep decide."""

import numpy as np

import normlab as nl
from normlab.claims import Claim, Design, EqualWithin, Regime, Sample, Statistic
from normlab.fits import exponent

LAST = "quantity == 'mean_square' and site == 'stream' and sublayer == 'mlp' and layer == depth"


def slopes(rows):
    """Return one number a seed: the slope of ln q_L on ln L."""
    fit = exponent(rows, "mean_square", x="depth")
    return Sample(values=np.array(fit.per_seed), depths=tuple(int(depth) for depth in fit.x))


nl.register_claim(
    Claim(
        id="sandwich-grows-like-pre",
        version=1,
        family="my own",
        statement="A norm on what a sub-layer writes keeps the stream's scale independent of depth.",
        source="me",
        nature="law",
        regimes=(
            Regime(
                name="Peri-LN",
                query="placement == 'peri'",
                models="Peri-LN models",
                statistic=Statistic("slope of ln q_L on ln L", "log-log slope", LAST, slopes),
                rule=EqualWithin(target=0.0, margin=0.1),
                expected="refuted",
            ),
        ),
        refuted_by="a slope outside ± 0.1",
        right_statement="Every sub-layer adds 1 to the mean square: it grows linearly with depth.",
        plot="stream_growth",
        design=Design(grids=({"placement": ["peri"], "depth": [2, 4, 8]},), quick_width=32),
    )
)

if __name__ == "__main__":
    print(nl.claims.check("sandwich-grows-like-pre", quick=True, seeds=range(3), jobs=1).cite())
