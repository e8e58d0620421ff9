"""A model of transformers from its configuration alone, without weights and without memory."""

import json
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import nn

from normlab.errors import NormlabError, RecordingError
from normlab.recording.discovery.architecture import Architecture
from normlab.recording.discovery.finding import discover

#: How experts run on the device meta, where a router's choice cannot be looked at.
_EXPERTS = "batched_mm"


def architecture_of(path: Path) -> Architecture:
    """Find what the model that a configuration describes is made of, without weights.

    Args:
        path: a ``config.json`` of transformers or the folder that it is in.

    Raises:
        RecordingError: transformers is not installed, the file is not a configuration that it knows, or the
            model cannot run without weights.
    """
    model = empty_model(path)
    try:
        return discover(model)
    except NormlabError:
        raise
    except Exception as error:  # whatever the model's code raises on tensors without entries
        raise RecordingError(
            f"{type(model).__name__} does not run without weights ({type(error).__name__}: {error}): "
            "load it and call normlab.discover(model)"
        ) from error


def empty_model(path: Path) -> nn.Module:
    """Build the model that a configuration describes on torch's device ``meta``.

    Args:
        path: a ``config.json`` or the folder that it is in.

    Raises:
        RecordingError: transformers is not installed, or the file is not a configuration that it knows.
    """
    try:
        import transformers
    except ImportError as error:
        raise RecordingError("reading an architecture takes transformers: pip install 'normlab[hf]'") from error
    config = _config(path, transformers)
    config._experts_implementation = _EXPERTS
    with torch.device("meta"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model: nn.Module = _class_of(config, transformers)(config)
    return model.eval()


def _config(path: Path, transformers: Any) -> Any:
    file = path / "config.json" if path.is_dir() else path
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
        kind = values.pop("model_type")
        return transformers.AutoConfig.for_model(kind, **values)
    except OSError as error:
        raise RecordingError(f"{file} cannot be read ({error.strerror}): give a config.json or its folder") from error
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        known = "give a config.json of a model that transformers knows"
        raise RecordingError(f"{file} is no configuration ({error}): {known}") from error


def _class_of(config: Any, transformers: Any) -> Any:
    for name in config.architectures or ():
        if hasattr(transformers, name):
            return getattr(transformers, name)
    if config.is_encoder_decoder:
        return transformers.AutoModelForSeq2SeqLM.from_config
    causal = type(config) in transformers.AutoModelForCausalLM._model_mapping
    return (transformers.AutoModelForCausalLM if causal else transformers.AutoModel).from_config
