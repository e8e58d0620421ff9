"""From what a user names to a model: a folder or file of transformers, a function, or a saved spec."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn

from normlab.errors import DataError, NormlabError
from normlab.inspection.subject import Subject, Task
from normlab.models import build
from normlab.spec import ModelSpec

_WEIGHTS: Final = (".safetensors", ".bin", ".gguf")
#: Weights of other frameworks, which transformers no longer reads.
_FOREIGN: Final = {".h5": "TensorFlow", ".msgpack": "Flax", ".onnx": "ONNX", ".tflite": "TensorFlow Lite"}
_WAYS: Final = (
    "give a folder or a .gguf file that transformers loads, package.module:function, or a spec saved as .json"
)


def load_subject(
    name: str, *, seed: int = 0, dtype: torch.dtype = torch.float32, implementation: str | None = None
) -> Subject:
    """Load the model that ``name`` names, in evaluation mode.

    Args:
        name: a folder or file that transformers loads; ``package.module:function``, a function without arguments
            that returns a module, or a pair of a module and a tokenizer; or the file of a saved ``ModelSpec``.
        seed: of the weights of a spec.
        dtype: of the weights.
        implementation: which implementation of attention transformers shall use: ``eager``, ``sdpa``, ...

    Raises:
        DataError: there is no such model, or its weights are not there.
        SpecError: the file does not describe a model.
    """
    path = Path(name)
    if path.exists():
        subject = _of_path(path, seed, dtype, implementation)
    elif ":" in name:
        subject = _of_function(name, dtype)
    else:
        raise DataError(f"there is no model {name!r}: {_WAYS}")
    if implementation is not None and not hasattr(subject.model, "config"):
        raise DataError(f"{name} is no model of transformers, so it has no attention implementation to choose")
    subject.model.eval()
    return subject


def _of_path(path: Path, seed: int, dtype: torch.dtype, implementation: str | None) -> Subject:
    if path.is_dir() or path.suffix == ".gguf":
        return _of_transformers(path, dtype, implementation)
    if path.suffix in _FOREIGN:
        raise _foreign(path, path.suffix)
    if path.suffix != ".json":
        raise DataError(f"{path} is not a model: {_WAYS}")
    try:
        text = path.read_text(encoding="utf-8")
        values = json.loads(text)
    except ValueError as error:
        raise DataError(f"{path} is not JSON ({error}): {_WAYS}") from error
    if isinstance(values, dict) and "model_type" in values:
        raise DataError(
            f"{path} describes an architecture and holds no weights: give the folder that has them too, "
            "or use normlab inspect --architecture"
        )
    return Subject(str(path), build(ModelSpec.from_json(text), seed=seed, dtype=dtype))


def _of_function(name: str, dtype: torch.dtype) -> Subject:
    """Call ``package.module:function``; a module beside the user's own files counts."""
    module, _, function = name.partition(":")
    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))
    try:
        target = import_module(module)
    except (ImportError, ValueError) as error:
        raise DataError(f"the module {module!r} of {name!r} cannot be imported ({error}): {_WAYS}") from error
    if not callable(made := getattr(target, function, None)):
        raise DataError(f"the module {module!r} has no function {function!r}: {_WAYS}")
    try:
        result = made()
    except NormlabError:
        raise
    except Exception as error:  # whatever the user's function raises
        raise DataError(f"{name} failed ({type(error).__name__}: {error}): it is called without arguments") from error
    model, tokenizer = result if isinstance(result, tuple) and len(result) == 2 else (result, None)
    if not isinstance(model, nn.Module):
        raise DataError(f"{name} returned {type(model).__name__}: return a torch module, or (module, tokenizer)")
    return Subject(name, model.to(dtype), tokenizer, task=task_of_class(model) if tokenizer is not None else None)


def _of_transformers(path: Path, dtype: torch.dtype, implementation: str | None) -> Subject:
    folder, gguf = (path.parent, path.name) if path.is_file() else (path, _gguf_in(path))
    _check_weights(folder, gguf)
    transformers = _transformers()
    more: dict[str, Any] = {"local_files_only": True} | ({"gguf_file": gguf} if gguf else {})
    chosen = {} if implementation is None else {"attn_implementation": implementation}
    with _quiet(transformers):
        try:
            config = transformers.AutoConfig.from_pretrained(folder, **more)
            made = _class_of(config, transformers)
            # With its configuration given, a GGUF file's long header is read once less.
            model, told = made.from_pretrained(
                folder, config=config, dtype=dtype, output_loading_info=True, **chosen, **more
            )
        except Exception as error:  # transformers raises a dozen kinds
            raise DataError(f"transformers cannot load {path} ({_short(error)}): {_WAYS}") from error
        try:
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **more)
        except Exception as error:
            raise DataError(
                f"{path} has no tokenizer that transformers loads ({_short(error)}): add its files"
            ) from error
    return Subject(str(path), model, tokenizer, task_of_class(model), tuple(_notes(path, gguf, told)))


def _check_weights(folder: Path, gguf: str | None) -> None:
    if gguf is None and not (folder / "config.json").is_file():
        raise DataError(f"{folder} has neither a config.json nor one .gguf file, so it is no model: {_WAYS}")
    suffixes = {file.suffix for file in folder.iterdir()}
    if suffixes & set(_WEIGHTS):
        return
    for suffix in _FOREIGN:
        if suffix in suffixes:
            raise _foreign(folder, suffix)
    raise DataError(
        f"{folder} has a config.json and no weights (.safetensors, .bin or .gguf): add them, "
        "or use normlab inspect --architecture"
    )


def _foreign(path: Path, suffix: str) -> DataError:
    return DataError(
        f"{path} holds weights of {_FOREIGN[suffix]} ({suffix}), which torch does not read: "
        "convert them to .safetensors"
    )


def _gguf_in(folder: Path) -> str | None:
    """Return the one .gguf file of a folder that has no config.json."""
    files = sorted(folder.glob("*.gguf"))
    if (folder / "config.json").is_file() or not files:
        return None
    if len(files) > 1:
        raise DataError(f"{folder} has {len(files)} .gguf files: name one, such as {files[0]}")
    return files[0].name


def _transformers() -> Any:
    try:
        return import_module("transformers")
    except ImportError as error:
        raise DataError("loading this model takes transformers: pip install 'normlab[hf]'") from error


@contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
    """Keep progress bars and advice of transformers off the terminal."""
    tqdm = import_module("tqdm.auto").tqdm
    log, before = transformers.utils.logging, transformers.utils.logging.get_verbosity()
    starts = tqdm.__init__

    def hidden(self: Any, *args: Any, **kwargs: Any) -> None:
        starts(self, *args, **{**kwargs, "disable": True})

    log.set_verbosity_error()
    tqdm.__init__ = hidden
    try:
        yield
    finally:
        tqdm.__init__ = starts
        log.set_verbosity(before)


def _class_of(config: Any, transformers: Any) -> Any:
    for name in config.architectures or ():
        if hasattr(transformers, name):
            return getattr(transformers, name)
    if config.is_encoder_decoder:
        return transformers.AutoModelForSeq2SeqLM
    causal = transformers.AutoModelForCausalLM._model_mapping
    return causal[type(config)] if type(config) in causal else transformers.AutoModel


def task_of_class(model: nn.Module) -> Task:
    """Return what a model of transformers was trained for, as its class says."""
    name = type(model).__name__
    if bool(getattr(getattr(model, "config", None), "is_encoder_decoder", False)):
        return "same tokens" if "Generation" in name else "probe"
    if name.endswith(("ForCausalLM", "LMHeadModel")):
        return "next token"
    return "masked tokens" if name.endswith("ForMaskedLM") else "probe"


def _notes(path: Path, gguf: str | None, told: Any) -> Iterator[str]:
    if gguf:
        yield (
            "The weights come from a GGUF file: matrices that it holds in few bits are dequantised, "
            "so that their finest digits are not those of the original."
        )
    missing = sorted(told["missing_keys"])
    if missing:
        some = ", ".join(missing[:3]) + (", ..." if len(missing) > 3 else "")
        yield f"{len(missing)} parameters are not in {path} and were drawn at random: {some}."
    unused = sorted(told["unexpected_keys"])
    if unused:
        yield f"{len(unused)} tensors of {path} are not used, such as {unused[0]}."


def _short(error: Exception) -> str:
    line = " ".join(str(error).split())
    return f"{type(error).__name__}: {line[:200]}"
