"""A matrix that stays empty until an initialisation recipe fills it."""

from torch import nn


class Linear(nn.Linear):
    """``nn.Linear`` without its default initialisation, which :func:`normlab.build` would overwrite.

    A stack of a thousand blocks would spend most of its building time on it.
    """

    def reset_parameters(self) -> None:
        """Do nothing: :mod:`normlab.models.initialise` fills the weight, and zeroes the bias."""
