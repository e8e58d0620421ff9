"""From what a user names to a model: a folder or file of transformers, a function, or a saved spec."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn

from normlab.errors import DataError, NormlabError, suggest
from normlab.inspection.subject import Subject, short
from normlab.models import build
from normlab.recording.compiled import uncompiled
from normlab.spec import ModelSpec

#: The dtypes of weights.
DTYPES: Final = ("float32", "float64", "bfloat16", "float16")
_WEIGHTS: Final = (".safetensors", ".bin", ".gguf")
#: Weights of other frameworks, which transformers no longer reads.
_FOREIGN: Final = {".h5": "TensorFlow", ".msgpack": "Flax", ".onnx": "ONNX", ".tflite": "TensorFlow Lite"}
#: What weights are saved in without the model.
_ALONE: Final = (".pt", ".pth", ".bin", ".ckpt", ".safetensors")
_WAYS: Final = (
    "give a folder or a .gguf file that transformers loads, package.module:function, or a spec saved as .json"
)


def subject_of(given: Any, *, tokenizer: Any = None, seed: int = 0, dtype: torch.dtype | str | None = None) -> Subject:
    """Return what is inspected or compared: a module, a ``ModelSpec``, or what :func:`load_subject` loads.

    Args:
        given: the model.
        tokenizer: turns text into tokens, as those of transformers; in place of its own where the model has one.
        seed: of the weights of a spec.
        dtype: of the weights, where they are loaded or made; float32 unless given.

    Raises:
        DataError: there is no such model, or a module comes with a dtype.
        SpecError: it describes no model that can be built.
    """
    wanted = dtype_of(dtype)
    if tokenizer is not None and not callable(tokenizer):
        raise DataError(f"tokenizer is {tokenizer!r}: give one as those of transformers, which is called with a text")
    match given:
        case Subject():
            subject = given
        case nn.Module():
            if dtype is not None:
                raise DataError("dtype is of models that are loaded or built: convert a module with model.to(dtype)")
            subject = Subject(type(uncompiled(given)).__name__, uncompiled(given))
        case ModelSpec():
            name = f"{given.placement} {given.norm}, depth {given.depth}, width {given.width}"
            subject = Subject(name, build(given, seed=seed, dtype=wanted or torch.float32))
        case str() | Path():
            subject = load_subject(str(given), seed=seed, dtype=wanted)
        case _:
            raise DataError(f"{type(given).__name__} is no model: give a module, a ModelSpec, or its name: {_WAYS}")
    return subject if tokenizer is None else replace(subject, tokenizer=tokenizer)


def dtype_of(given: torch.dtype | str | None) -> torch.dtype | None:
    """Return one of the dtypes that weights can have, if one is given.

    Raises:
        DataError: it is another one.
    """
    if given is None:
        return None
    name = str(given).removeprefix("torch.")
    if name not in DTYPES:
        raise DataError(f"dtype is {given!r}: choose one of {', '.join(DTYPES)}{suggest(name, DTYPES)}")
    dtype: torch.dtype = getattr(torch, name)
    return dtype


def load_subject(
    name: str, *, seed: int = 0, dtype: torch.dtype | str | None = None, implementation: str | None = None
) -> Subject:
    """Load the model that ``name`` names, in evaluation mode.

    Args:
        name: a folder or file that transformers loads; ``package.module:function``, a function without arguments
            that returns a module, or a pair of a module and a tokenizer; or the file of a saved ``ModelSpec``.
        seed: of the weights of a spec.
        dtype: of the weights; float32 unless given, and what the function's module has.
        implementation: which implementation of attention transformers shall use: ``eager``, ``sdpa``, ...

    Raises:
        DataError: there is no such model or dtype, or its weights are not there.
        SpecError: the file does not describe a model.
    """
    if not isinstance(name, str):
        raise DataError(f"{type(name).__name__} is no model's name: {_WAYS}")
    path, wanted = Path(name), dtype_of(dtype)
    if path.exists():
        subject = _of_path(path, seed, wanted or torch.float32, implementation)
    elif ":" in name:
        subject = _of_function(name, wanted)
    else:
        raise DataError(f"there is no model {name!r}: {_WAYS}")
    if implementation is not None:
        _choose_attention(name, subject.model, implementation)
    subject.model.eval()
    return subject


def _choose_attention(name: str, model: nn.Module, implementation: str) -> None:
    """Set what was not set while the model was loaded: a function returns a model that is there already."""
    choose = getattr(model, "set_attn_implementation", None)
    if choose is None:
        raise DataError(f"{name} is no model of transformers, so it has no attention implementation to choose")
    try:
        choose(implementation)
    except (ValueError, ImportError) as error:
        raise DataError(f"{name} cannot use {implementation} attention ({short(error)}): try eager or sdpa") from error
    if getattr(model.config, "_attn_implementation", implementation) != implementation:
        raise DataError(f"transformers cannot change the attention of {type(model).__name__}: load it from its folder")


def _of_path(path: Path, seed: int, dtype: torch.dtype, implementation: str | None) -> Subject:
    if path.is_dir() or path.suffix == ".gguf":
        return _of_transformers(path, dtype, implementation)
    if path.suffix in _FOREIGN:
        raise _foreign(path, path.suffix)
    if path.suffix in _ALONE:
        raise DataError(
            f"{path} holds weights alone, which are no model: write a function that builds the model and loads them, "
            "and give package.module:function"
        )
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


def _of_function(name: str, dtype: torch.dtype | None) -> Subject:
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
        how = "is called without arguments and " if isinstance(error, TypeError) else ""
        raise DataError(f"{name} {how}failed ({short(error)})") from error
    model, tokenizer = result if isinstance(result, tuple) and len(result) == 2 else (result, None)
    if not (isinstance(model, nn.Module) and (tokenizer is None or callable(tokenizer))):
        kinds = ", ".join(type(one).__name__ for one in (result if isinstance(result, tuple) else (result,)))
        raise DataError(f"{name} returned {kinds}: return a torch module, or (module, tokenizer)")
    return Subject(name, model if dtype is None else model.to(dtype), tokenizer)


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
            raise DataError(f"transformers cannot load {path} ({short(error)}): {_WAYS}") from error
        try:
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **more)
        except Exception as error:
            raise DataError(
                f"{path} has no tokenizer that transformers loads ({short(error)}): add its files"
            ) from error
    return Subject(str(path), model, tokenizer, notes=tuple(_notes(path, gguf, told)))


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


def _notes(path: Path, gguf: str | None, told: Any) -> Iterator[str]:
    if gguf:
        yield (
            "The weights come from a GGUF file: matrices that it holds in few bits are dequantised, "
            "so that their finest digits are not those of the original."
        )
    missing = sorted(told["missing_keys"])
    if missing:
        some = ", ".join(missing[:3]) + (", ..." if len(missing) > 3 else "")
        was = "parameter is not in {} and was" if len(missing) == 1 else "parameters are not in {} and were"
        yield f"{len(missing)} {was.format(path)} drawn at random: {some}."
    unused = sorted(told["unexpected_keys"])
    if unused:
        which = f"The tensor {unused[0]} of {path} is" if len(unused) == 1 else f"{len(unused)} tensors of {path} are"
        yield f"{which} not used{f', such as {unused[0]}' if len(unused) > 1 else ''}."
