"""Growth laws, exponents, intervals and equivalence: one number a seed, then Student's t over seeds.

Every fit takes a table with a choice of rows, or arrays ``(x, y)`` with y ``[seeds, points]``::

    nl.fits.exponent(table, "grad_norm", x="depth", where="role == 'down' and layer == depth")
    nl.fits.growth_law((layers, mean_squares))
"""

from normlab.fits.curve import Curves, choose, curves
from normlab.fits.increments import increments_exponent, offset_exponent
from normlab.fits.intervals import SeedInterval, p_above, p_below, seed_interval
from normlab.fits.laws import LAWS, GrowthLaw, Law, growth_law, law_errors, left_out
from normlab.fits.margins import Equivalence, equivalence
from normlab.fits.multiplicity import holm
from normlab.fits.power import FEWEST_SEEDS, seeds_to_decide
from normlab.fits.slopes import ExponentFit, exponent, least_squares_slopes

__all__ = [
    # curves: one a seed
    "Curves",
    "choose",
    "curves",
    # exponents
    "ExponentFit",
    "exponent",
    "increments_exponent",
    "offset_exponent",
    "least_squares_slopes",
    # growth laws
    "LAWS",
    "Law",
    "GrowthLaw",
    "growth_law",
    "law_errors",
    "left_out",
    # intervals and tests over seeds
    "SeedInterval",
    "seed_interval",
    "p_above",
    "p_below",
    "Equivalence",
    "equivalence",
    "holm",
    # how many seeds
    "FEWEST_SEEDS",
    "seeds_to_decide",
]
