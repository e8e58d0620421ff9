"""A model as it is inspected: how it is called, what it is fed, and what its loss is."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final, Literal, TypeAlias

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn import functional as F

from normlab.errors import DataError, NormlabError
from normlab.models import Transformer
from normlab.recording import Architecture, discover
from normlab.recording.discovery.example import describes_itself

Task: TypeAlias = Literal["next token", "masked tokens", "same tokens", "probe"]

#: What the loss is, in words.
LOSSES: Final[Mapping[Task, str]] = {
    "next token": "mean cross-entropy of the next token, in nats",
    "masked tokens": "mean cross-entropy of the masked tokens (every seventh), in nats",
    "same tokens": "mean cross-entropy of the same tokens, in nats",
    "probe": "no head was found, so the loss is (1/n) Σ ⟨r, x⟩ over the n rows of the result x, with r ~ N(0, I/d)",
}
_EVERY: Final = 7


@dataclass(frozen=True)
class Feed:
    """A batch, ready for one model.

    Attributes:
        tokens: the tokens as the text has them.
        targets: what is to be predicted; ``None`` where the loss is a probe.
        words: each token as text.
        args: positional arguments of the model.
        kwargs: keyword arguments of the model.
    """

    tokens: Int64[Tensor, "batch token"]
    targets: Int64[Tensor, "batch token"] | None
    words: tuple[tuple[str, ...], ...]
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)

    @property
    def shown(self) -> Int64[Tensor, "batch token"]:
        """The tokens that the model reads, some of them hidden behind a mask."""
        shown: Tensor = self.kwargs["input_ids"] if "input_ids" in self.kwargs else self.args[0]
        return shown

    @property
    def digest(self) -> str:
        """Eight digits that tell the tokens that the model reads from others."""
        rows = repr(self.shown.tolist())
        return sha256(rows.encode()).hexdigest()[:8]

    def on(self, device: torch.device) -> "Feed":
        """Return the batch on a device."""

        def moved(value: Any) -> Any:
            return value.to(device) if isinstance(value, Tensor) else value

        kwargs = {name: moved(value) for name, value in self.kwargs.items()}
        args = tuple(moved(value) for value in self.args)
        return Feed(moved(self.tokens), moved(self.targets), self.words, args, kwargs)


@dataclass(frozen=True)
class Subject:
    """A model that was loaded.

    Attributes:
        name: what the user called it.
        model: the module, in evaluation mode.
        tokenizer: turns text into tokens; ``None`` for a model of bytes.
        task: what the loss asks for; where it is ``None`` the model's class says it, or its head.
        notes: what should be known about how it was loaded.
    """

    name: str
    model: nn.Module
    tokenizer: Any = None
    task: Task | None = None
    notes: tuple[str, ...] = ()

    @property
    def aim(self) -> Task | None:
        """What the loss asks for, where it is given or the model is of transformers and its class says it."""
        if self.task is not None or not describes_itself(self.model):
            return self.task
        name = type(self.model).__name__
        if bool(getattr(self.model.config, "is_encoder_decoder", False)):
            return "same tokens" if "Generation" in name else "probe"
        if name.endswith(("ForCausalLM", "LMHeadModel")):
            return "next token"
        if name.endswith("ForMaskedLM"):
            return "same tokens" if self.mask_token is None else "masked tokens"
        return "probe"

    @property
    def mask_token(self) -> int | None:
        """The number of the token that hides another one, where the tokenizer has one."""
        return getattr(self.tokenizer, "mask_token_id", None)

    def architecture(self, feed: Feed) -> Architecture:
        """Find the model's blocks; the example is the start of two sequences of its own batch.

        It is the whole batch where the model takes no other number of tokens.

        Raises:
            RecordingError: no residual stream was found.
        """
        start = {name: value[:2, :5] if isinstance(value, Tensor) else value for name, value in feed.kwargs.items()}
        example = start or tuple(value[:2, :5] for value in feed.args)
        if isinstance(self.model, Transformer) or describes_itself(self.model):
            return discover(self.model)
        try:
            return discover(self.model, example)
        except NormlabError:
            raise
        except Exception:  # the whole batch ran
            return discover(self.model, feed.kwargs or feed.args)

    def forward(self, feed: Feed) -> Any:
        """Run the model.

        Raises:
            DataError: the model does not take such a batch.
        """
        try:
            return self.model(*feed.args, **feed.kwargs)
        except NormlabError:
            raise
        except Exception as error:  # whatever a stranger's model raises
            raise DataError(
                f"{self.name} does not run on tokens of text ({short(error)}): {self._advice(error, feed)}"
            ) from error

    def _advice(self, error: Exception, feed: Feed) -> str:
        """Say what to do about an error of the model's own."""
        length = feed.tokens.shape[1]
        context = getattr(getattr(self.model, "config", None), "max_position_embeddings", None)
        if isinstance(context, int) and context < length:
            return f"it has {context} positions and the batch {length} tokens, so give at most {context} tokens"
        if isinstance(error, IndexError):
            return (
                f"the batch has {length} tokens, numbered up to {int(feed.tokens.max())}, so give fewer tokens or the "
                "tokenizer that belongs to it"
            )
        return "give a model of text, with a tokenizer if it does not read bytes"

    def loss(self, feed: Feed, task: Task) -> Float[Tensor, ""]:
        """Run the model and return the loss."""
        if isinstance(self.model, Transformer) and feed.targets is not None:
            loss: Tensor = self.model.loss(feed.tokens, feed.targets)
            return loss
        result = main_tensor(self.forward(feed))
        if task == "probe" or feed.targets is None:
            return probe(result)
        given = result.shape[1] if result.dim() == 3 else 0
        if not 0 < given <= feed.targets.shape[1]:
            raise DataError(
                f"{self.name} gives {tuple(result.shape)} for {tuple(feed.targets.shape)} tokens: give a model whose "
                "result is [batch, token, vocabulary]"
            )
        # Some models give the last tokens' logits only.
        targets = feed.targets[:, -given:]
        return F.cross_entropy(result.flatten(0, 1).float(), targets.flatten(), ignore_index=-100)


def task_of(subject: Subject, found: Architecture) -> Task:
    """Return what the loss of a model asks for: a model without a head gets a probe."""
    if subject.aim is not None:
        return subject.aim
    headed = any(parameter.role in ("head", "embed+head") for parameter in found.plan.parameters)
    return "next token" if headed or isinstance(subject.model, Transformer) else "probe"


def masked(feed: Feed, mask_token: int) -> Feed:
    """Return the batch with every seventh token masked, and the others no targets."""
    assert feed.targets is not None
    hidden = torch.arange(feed.tokens.shape[1]) % _EVERY == _EVERY // 2
    shown = feed.tokens.masked_fill(hidden, mask_token)
    kwargs = {name: shown if value is feed.tokens else value for name, value in feed.kwargs.items()}
    return Feed(feed.tokens, feed.tokens.masked_fill(~hidden, -100), feed.words, feed.args, kwargs)


def main_tensor(result: Any) -> Float[Tensor, "batch *axes feature"]:
    """Return the first tensor of numbers for each token in what a model gives, or else of each sequence.

    Raises:
        DataError: there is none.
    """
    values = (
        result.values() if isinstance(result, Mapping) else result if isinstance(result, tuple | list) else [result]
    )
    found = [value for value in values if isinstance(value, Tensor) and value.is_floating_point() and value.dim() > 1]
    if not found:
        raise DataError("the model gives no numbers for each token or sequence: give a model of text")
    return next((value for value in found if value.dim() == 3), found[0])


def probe(x: Float[Tensor, "batch *axes feature"]) -> Float[Tensor, ""]:
    """Return (1/n) Σ ⟨r, x⟩ over the n tokens of a batch, or its n sequences, r ~ N(0, I/d) from seed 0."""
    width = x.shape[-1]
    # Drawn in float32 on the CPU, so that the dtype does not change the probe.
    r = torch.randn(x.shape, generator=torch.Generator().manual_seed(0)).to(x) * width**-0.5
    loss: Tensor = (r * x).sum() / (x.numel() // width)
    return loss


def short(error: Exception) -> str:
    """Return an error of somebody else's code in one line."""
    line = " ".join(str(error).split())
    return f"{type(error).__name__}: {line[:200]}"
