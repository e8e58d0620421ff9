"""Why there is no theory."""

from normlab.errors import NormlabError


class NoTheory(NormlabError):
    """A model, or a part of one, without a mean-field closure; the message says which part."""
