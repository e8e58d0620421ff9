"""ModelSpec: one frozen dataclass that says everything about a model of the zoo."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, Literal, TypeAlias, get_args, no_type_check

from torch import nn

from normlab.activations import ACTIVATIONS
from normlab.errors import SpecError
from normlab.inits import INITS, EmbeddingScale, Init
from normlab.norms import NORMS
from normlab.options import Options
from normlab.placements import PLACEMENTS, Placement, Wiring
from normlab.spec.checks import check, check_names, plain_options, plain_placement
from normlab.spec.describe import describe
from normlab.spec.plain import column, jsonable
from normlab.where import StackName, SubLayerName, Where

Kind: TypeAlias = Literal["decoder", "encoder", "encoder-decoder"]

KINDS: Final[tuple[str, ...]] = get_args(Kind)
ATTENTIONS: Final = ("softmax", "uniform", "none")
POSITIONS: Final = ("none", "learned", "sinusoidal", "rope")


# Fields are checked by sentences that say what to do; a run-time checker of annotations would come first.
@no_type_check
@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """A transformer of the zoo, validated when it is made.

    Attributes:
        depth: L, the number of blocks (of the decoder, where there are two stacks).
        width: d, the number of features of the stream.
        kind: ``decoder`` (causal mask), ``encoder`` (no mask), or ``encoder-decoder``, whose decoder also
            has cross-attention to the encoder's output.
        heads: number of attention heads; must divide the width unless ``head_width`` is given.
        kv_heads: number of key and value heads; as many as ``heads`` unless given.
        head_width: features of a head; ``width / heads`` unless given.
        mlp_width: hidden features of the MLP; four times the width unless given.
        encoder_depth: blocks of the encoder of an encoder-decoder; ``depth`` unless given.
        vocab: number of different tokens.
        context: largest number of tokens; learned positions have as many rows.
        placement: the name of a placement, or a tuple with one name a block.
        placement_options: options of the placement, as sorted pairs.
        norm: the name of the norm that the placement places.
        norm_eps: ε of the norm, in squared units of its input.
        norm_options: options of the norm, as sorted pairs.
        final_norm: a norm after the last block; the placement decides unless given.
        embed_norm: a norm after the embedding; the placement decides unless given.
        activation: the MLP's activation.
        attention: ``softmax``, ``uniform`` (each position averages over those that it may see; no q, k
            parameters), or ``none`` (no attention sub-layer).
        qk_norm: a norm on queries and keys: the name of a norm, over each head's features (``rmsnorm``: Qwen 3;
            ``layernorm``: ViT-22B; ``scalenorm``: unit vectors times a learned number), or that and ``-all``,
            over all heads' together (``rmsnorm-all``: OLMo 2). It has no bias; a gain is shared by the heads.
        v_norm: a norm on values, named likewise.
        init: the name of an initialisation recipe.
        init_options: options of the recipe, as sorted pairs.
        embed_std: standard deviation of the embedding's entries; the recipe decides unless given.
        bias: whether the matrices have biases (0 at initialisation).
        position: ``none``, ``learned``, ``sinusoidal`` (added to the embedding) or ``rope`` (queries and
            keys of self-attention are rotated).
        tie_embeddings: whether the head is the embedding.
        parallel: attention and MLP side by side on the block's input.
        dropout: probability that an entry of a branch is dropped, in train mode.

    Raises:
        SpecError: the values do not describe a model.
        UnknownNameError: a placement, norm, recipe or activation that is not registered.
    """

    depth: int
    width: int
    kind: Kind = "decoder"
    heads: int = 4
    kv_heads: int | None = None
    head_width: int | None = None
    mlp_width: int | None = None
    encoder_depth: int | None = None
    vocab: int = 256
    context: int = 1024
    placement: str | tuple[str, ...] = "pre"
    placement_options: Options = ()
    norm: str = "layernorm"
    norm_eps: float = 1e-5
    norm_options: Options = ()
    final_norm: bool | None = None
    embed_norm: bool | None = None
    activation: str = "gelu"
    attention: str = "softmax"
    qk_norm: str | None = None
    v_norm: str | None = None
    init: str = "xavier"
    init_options: Options = ()
    embed_std: float | None = None
    bias: bool = False
    position: str = "none"
    tie_embeddings: bool = False
    parallel: bool = False
    dropout: float = 0.0

    def __new__(cls, **given: object) -> "ModelSpec":  # noqa: D102 - before __init__, whose TypeError suggests nothing
        check_names(given, [field.name for field in fields(cls)])
        return super().__new__(cls)

    def __post_init__(self) -> None:
        object.__setattr__(self, "placement", plain_placement(self.placement))
        for name in ("placement_options", "norm_options", "init_options"):
            object.__setattr__(self, name, plain_options(self, name))
        for name in ("norm_eps", "embed_std", "dropout"):
            value = getattr(self, name)
            object.__setattr__(self, name, float(value) if isinstance(value, int) else value)
        check(self, kinds=KINDS, attentions=ATTENTIONS, positions=POSITIONS)

    # What follows from the fields.

    def placement_of(self, layer: int) -> Placement:
        """Return the placement of block ``layer``, from 1."""
        return PLACEMENTS[self.placement if isinstance(self.placement, str) else self.placement[layer - 1]]

    @property
    def stacks(self) -> dict[StackName, int]:
        """The stacks and their depths, in the order in which they run."""
        match self.kind:
            case "decoder":
                return {"decoder": self.depth}
            case "encoder":
                return {"encoder": self.depth}
        return {"encoder": self.encoder_depth or self.depth, "decoder": self.depth}

    def sublayers(self, stack: StackName) -> tuple[SubLayerName, ...]:
        """Return the sub-layers of a block of ``stack``, in the order in which they run."""
        if self.attention == "none":
            return ("mlp",)
        return ("attn", "cross", "mlp") if self.kind == "encoder-decoder" and stack == "decoder" else ("attn", "mlp")

    @property
    def features_per_head(self) -> int:
        """The width of a head."""
        return self.head_width if self.head_width is not None else self.width // self.heads

    @property
    def key_value_heads(self) -> int:
        """The number of key and value heads."""
        return self.kv_heads if self.kv_heads is not None else self.heads

    @property
    def hidden_width(self) -> int:
        """The hidden width of the MLP."""
        return self.mlp_width if self.mlp_width is not None else 4 * self.width

    @property
    def has_final_norm(self) -> bool:
        """Whether a norm stands after the last block."""
        return self.placement_of(self.depth).final_norm if self.final_norm is None else self.final_norm

    @property
    def has_embed_norm(self) -> bool:
        """Whether a norm stands after the embedding."""
        return self.placement_of(1).embed_norm if self.embed_norm is None else self.embed_norm

    @property
    def two_streams(self) -> bool:
        """Whether the placement carries a second residual stream."""
        return self.wiring(self.first("decoder" if "decoder" in self.stacks else "encoder")).second_stream is not None

    @property
    def recipe(self) -> Init:
        """The initialisation recipe."""
        return INITS[self.init]

    def embedding_scale(self, stack: StackName) -> EmbeddingScale:
        """Return how the embedding of ``stack`` starts."""
        scale = self.recipe.embedding(self.width, self.tie_embeddings, self.first(stack))
        return scale if self.embed_std is None else EmbeddingScale(std=self.embed_std, multiplier=scale.multiplier)

    def matrices(self, sublayer: SubLayerName) -> dict[str, tuple[int, int]]:
        """Return inputs and outputs of the matrices of a sub-layer, by role."""
        d, hidden, inner = self.width, self.hidden_width, self.heads * self.features_per_head
        if sublayer == "mlp":
            gate = {"gate": (d, hidden)} if ACTIVATIONS[self.activation].gated else {}
            return {"up": (d, hidden), **gate, "down": (hidden, d)}
        if self.attention == "uniform":
            return {"v": (d, inner), "o": (inner, d)}
        shared = self.key_value_heads * self.features_per_head
        return {"q": (d, inner), "k": (d, shared), "v": (d, shared), "o": (inner, d)}

    def build_norm(self, width: int, **overrides: object) -> nn.Module:
        """Build the norm for ``width`` features; ``overrides`` replace those of its options that it has."""
        norm = NORMS[self.norm]
        options = dict(self.norm_options) | {name: value for name, value in overrides.items() if name in norm.options}
        return norm.make(width, eps=self.norm_eps, **options)

    def where(self, stack: StackName, layer: int, sublayer: SubLayerName) -> Where:
        """Return the address of a sub-layer."""
        sublayers = self.sublayers(stack)
        return Where(
            stack=stack,
            layer=layer,
            depth=self.stacks[stack],
            sublayer=sublayer,
            index=(layer - 1) * len(sublayers) + sublayers.index(sublayer) + 1,
            sublayers=len(sublayers),
            encoder_depth=self.stacks.get("encoder", 0),
            decoder_depth=self.stacks.get("decoder", 0),
            width=self.width,
        )

    def first(self, stack: StackName) -> Where:
        """Return the address of the first sub-layer of ``stack``."""
        return self.where(stack, 1, self.sublayers(stack)[0])

    def wiring(self, where: Where) -> Wiring:
        """Return the switches of the sub-layer at ``where``."""
        return self.placement_of(where.layer).at(where, **dict(self.placement_options))

    # Text.

    def to_dict(self) -> dict[str, Any]:
        """Return the fields that differ from their defaults, depth and width always, as JSON values."""
        return {
            field.name: jsonable(getattr(self, field.name))
            for field in fields(self)
            if field.name in ("depth", "width") or getattr(self, field.name) != field.default
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "ModelSpec":
        """Build the spec that :meth:`to_dict` describes.

        Raises:
            SpecError: a field that a spec does not have, one that is missing, or a value that it cannot take.
        """
        check_names(values, [field.name for field in fields(cls)])
        for name in ("depth", "width"):
            if name not in values:
                raise SpecError(f"a model spec needs {name}: give a whole number of at least 1")
        given: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in values.items()
        }
        return cls(**given)

    def to_json(self) -> str:
        """Return :meth:`to_dict` as JSON text with sorted keys."""
        return json.dumps(self.to_dict(), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> "ModelSpec":
        """Build the spec that :meth:`to_json` describes.

        Raises:
            SpecError: the text is not JSON, or does not describe a model.
        """
        try:
            values = json.loads(text)
        except json.JSONDecodeError as error:
            raise SpecError(f"a model spec is not JSON ({error}): give what to_json returns") from error
        if not isinstance(values, dict):
            raise SpecError(f"a model spec is {values!r}: give a JSON object with at least depth and width")
        return cls.from_dict(values)

    @property
    def id(self) -> str:
        """Ten hexadecimal digits that hash the fields that differ from their defaults."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:10]

    def describe(self) -> str:
        """Return the block's equation and every constant of the model, as text of a few lines."""
        return describe(self)

    def columns(self) -> dict[str, object]:
        """Return the values of the cell's columns of a table that belong to a spec.

        Fields that default to ``None`` are resolved: ``final_norm`` is ``on`` or ``off``, ``mlp_width``
        a number.
        """
        resolved = {
            "kv_heads": self.key_value_heads,
            "head_width": self.features_per_head,
            "mlp_width": self.hidden_width,
            "final_norm": self.has_final_norm,
            "embed_norm": self.has_embed_norm,
            "encoder_depth": self.stacks["encoder"] if self.kind == "encoder-decoder" else None,
        }
        values = {field.name: getattr(self, field.name) for field in fields(self)} | resolved
        return {name: column(value) for name, value in values.items()} | {"spec": self.id}
