"""Drawings of the table: axes-level functions, their registry, and whole figures.

``f(table, *, ax=None, x="layer", theory=None, ...) -> Axes`` draws on the given axes, or on those of a new
figure, and never writes a file. :data:`PLOTS` lists them with the rows that they need and the sentence that
states what they show; :func:`draw` makes a figure with a panel for each kind of model, :func:`save` writes it.
"""

from normlab.plots._style import style
from normlab.plots.branches import input_scale, update_ratio
from normlab.plots.catalog import PLOTS
from normlab.plots.comparison import divergence, stream_ratio
from normlab.plots.exponents import layer_exponents
from normlab.plots.figures import draw, save, skipped, write_plots
from normlab.plots.gradients import gradient_profile, last_gradient
from normlab.plots.growth import stream_growth
from normlab.plots.norm_image import norm_jacobian
from normlab.plots.plot import Plot
from normlab.plots.spectra import singular_values
from normlab.plots.tokens import grad_coherence, token_overlap

__all__ = [
    "PLOTS",
    "Plot",
    "divergence",
    "draw",
    "grad_coherence",
    "gradient_profile",
    "input_scale",
    "last_gradient",
    "layer_exponents",
    "norm_jacobian",
    "save",
    "singular_values",
    "skipped",
    "stream_growth",
    "stream_ratio",
    "style",
    "token_overlap",
    "update_ratio",
    "write_plots",
]
