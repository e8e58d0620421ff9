"""Finding out what a model is made of, by what it computes and not by what its parts are called."""

from normlab.recording.discovery.architecture import Architecture, FoundNorm, FoundStack, FoundSubLayer
from normlab.recording.discovery.configuration import architecture_of
from normlab.recording.discovery.finding import discover
from normlab.recording.discovery.norms import NormKind

__all__ = ["Architecture", "FoundNorm", "FoundStack", "FoundSubLayer", "NormKind", "architecture_of", "discover"]
