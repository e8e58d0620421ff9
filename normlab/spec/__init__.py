"""What a model of the zoo is, as data."""

from normlab.spec.model_spec import ATTENTIONS, KINDS, POSITIONS, ModelSpec

__all__ = ["ATTENTIONS", "KINDS", "POSITIONS", "ModelSpec"]
