"""Every plot by name, in the order in which a report shows them."""

from typing import Final

from normlab.plots.branches import INPUT_SCALE, UPDATE_RATIO
from normlab.plots.comparison import DIVERGENCE, STREAM_RATIO
from normlab.plots.exponents import LAYER_EXPONENTS
from normlab.plots.gradients import GRADIENT_PROFILE, LAST_GRADIENT
from normlab.plots.growth import GROWTH
from normlab.plots.norm_image import NORM_JACOBIAN
from normlab.plots.plot import Plot
from normlab.plots.spectra import SINGULAR_VALUES
from normlab.plots.tokens import GRAD_COHERENCE, TOKEN_OVERLAP
from normlab.registry import Registry

#: What claims, commands and reports name a plot by.
PLOTS: Final[Registry[Plot]] = Registry("plot")

for _plot in (
    GROWTH,
    INPUT_SCALE,
    UPDATE_RATIO,
    LAST_GRADIENT,
    GRADIENT_PROFILE,
    GRAD_COHERENCE,
    TOKEN_OVERLAP,
    SINGULAR_VALUES,
    LAYER_EXPONENTS,
    STREAM_RATIO,
    DIVERGENCE,
    NORM_JACOBIAN,
):
    PLOTS.register(_plot)
