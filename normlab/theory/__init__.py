"""What measurements are expected to find, by mean-field theory: every curve, without running a model."""

from normlab.theory.beside import beside
from normlab.theory.departures import Departures, departures
from normlab.theory.growth import Exponents, exponents
from normlab.theory.laws import Law, law
from normlab.theory.page import derivation
from normlab.theory.prediction import predict
from normlab.theory.reasons import NoTheory

__all__ = [
    # a table for one model
    "predict",
    # beside a table of measurements
    "beside",
    "departures",
    "Departures",
    # the law of a placement
    "exponents",
    "Exponents",
    "Law",
    "law",
    "derivation",
    # where there is none
    "NoTheory",
]
