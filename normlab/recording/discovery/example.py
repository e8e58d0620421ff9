"""A small batch for models that say what they take."""

import inspect
from typing import Any

import torch
from torch import nn

from normlab.errors import RecordingError
from normlab.models import Transformer

#: Unequal, so that the axes of sequences and tokens can be told apart.
_BATCH, _TOKENS = 2, 5


def describes_itself(model: nn.Module) -> bool:
    """Whether a model says what it takes, as those of transformers do."""
    return getattr(model, "config", None) is not None and bool(getattr(model, "main_input_name", ""))


def example_of(model: nn.Module) -> dict[str, Any]:
    """Make a batch of two sequences of five tokens.

    Raises:
        RecordingError: the model is neither of the zoo nor of transformers, or takes something unusual.
    """
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    if isinstance(model, Transformer):
        tokens = _token_numbers(model.spec.vocab, device)
        return {"tokens": tokens, **({"targets": tokens} if model.spec.kind == "encoder-decoder" else {})}
    if not describes_itself(model):
        raise RecordingError(
            f"discover() cannot make a batch for {type(model).__name__}: give one, as in discover(model, example)"
        )
    return _of_config(model, model.config, str(model.main_input_name), device)


def _of_config(model: nn.Module, config: Any, main: str, device: torch.device) -> dict[str, Any]:
    text = config.get_text_config(decoder=True) if hasattr(config, "get_text_config") else config
    tokens = _token_numbers(int(getattr(text, "vocab_size", 0) or 2), device)
    parameters = inspect.signature(model.forward).parameters
    dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
    batch: dict[str, Any] = {}
    if main == "pixel_values":
        size = config.image_size if isinstance(config.image_size, tuple | list) else (config.image_size,) * 2
        batch[main] = torch.rand((_BATCH, config.num_channels, *size), device=device, dtype=dtype)
    elif main == "input_features":
        shape = (_BATCH, config.num_mel_bins, 2 * config.max_source_positions)
        batch[main] = torch.rand(shape, device=device, dtype=dtype)
    elif main == "input_ids":
        batch[main] = tokens
    else:
        raise RecordingError(f"discover() cannot make {main} for {type(model).__name__}: give it an example batch")
    if "decoder_input_ids" in parameters:
        batch["decoder_input_ids"] = tokens[:, : _TOKENS - 1]
    if "use_cache" in parameters:
        batch["use_cache"] = False
    return batch


def _token_numbers(vocab: int, device: torch.device) -> torch.Tensor:
    numbers = torch.arange(_BATCH * _TOKENS, device=device).reshape(_BATCH, _TOKENS)
    # The highest numbers: the lowest ones often mean padding.
    return vocab - 1 - numbers % max(1, min(vocab, 10))
