"""What a user can name as a model, and one sentence for each way in which it cannot be loaded."""

import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

import normlab as nl
from normlab.errors import DataError, SpecError
from normlab.inspection import Windows, inspect_subject, load_subject
from normlab.inspection.loading import subject_of

quiet = pytest.mark.filterwarnings("ignore:.*:UserWarning", "ignore:.*:FutureWarning", "ignore:.*:DeprecationWarning")
TEXT = "The quick brown fox jumps over the lazy dog; the slow one does not. " * 40


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return path


def sentence(error: pytest.ExceptionInfo[Exception]) -> str:
    said = str(error.value)
    assert said and "\n" not in said
    return said


def test_a_saved_spec_is_built_from_its_seed(tmp_path: Path) -> None:
    spec = nl.ModelSpec(placement="post", depth=2, width=8, heads=2)
    path = tmp_path / "spec.json"
    path.write_text(spec.to_json())
    loaded, built = load_subject(str(path), seed=5).model, nl.build(spec, seed=5)
    assert all(torch.equal(a, b) for a, b in zip(loaded.parameters(), built.parameters(), strict=True))
    assert not loaded.training


def test_a_function_beside_the_users_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: Path) -> None:
    (tmp_path / "mine_to_inspect.py").write_text(
        "import normlab as nl\n"
        "def make():\n    return nl.build(nl.ModelSpec(depth=2, width=8, heads=2))\n"
        "def wrong():\n    return 3\n"
        "def other():\n    return make(), [3]\n"
        "def broken():\n    raise ValueError('no luck')\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    found = inspect_subject(load_subject("mine_to_inspect:make"), Windows(1, 8, text))
    assert found.architecture.placement == "pre" and found.data["data"].startswith("text:text")
    for function, says in (
        ("wrong", "returned int"),
        ("other", "returned Transformer, list: return a torch module, or"),
        ("broken", "no luck"),
        ("absent", "no function 'absent'"),
    ):
        with pytest.raises(DataError, match=says) as error:
            load_subject(f"mine_to_inspect:{function}")
        sentence(error)


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({}, "neither a config.json nor one .gguf file"),
        ({"config.json": '{"model_type": "llama"}'}, "no weights"),
        ({"config.json": '{"model_type": "bert"}', "tf_model.h5": ""}, "weights of TensorFlow"),
        ({"config.json": '{"model_type": "bert"}', "flax_model.msgpack": ""}, "weights of Flax"),
        ({"a.gguf": "", "b.gguf": ""}, "name one"),
    ],
)
def test_a_folder_that_is_no_checkpoint_is_one_sentence(tmp_path: Path, files: dict[str, str], says: str) -> None:
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=says) as error:
        load_subject(str(tmp_path))
    sentence(error)


@pytest.mark.parametrize(
    ("name", "content", "kind", "says"),
    [
        ("spec.json", "{", DataError, "not JSON"),
        ("spec.json", '{"depth": 2, "widht": 8}', SpecError, "did you mean 'width'"),
        ("config.json", '{"model_type": "llama"}', DataError, "--architecture"),
        ("model.onnx", "", DataError, "weights of ONNX"),
        ("step0.pt", "", DataError, "weights alone, which are no model: write a function"),
        ("model.txt", "", DataError, "is not a model"),
    ],
)
def test_a_file_that_is_no_model_is_one_sentence(
    tmp_path: Path, name: str, content: str, kind: type[Exception], says: str
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(kind, match=says) as error:
        load_subject(str(tmp_path / name))
    sentence(error)


@pytest.mark.parametrize("name", ["nowhere", "no_such_module:make", "json:nothing", ":"])
def test_what_is_not_there_is_one_sentence(name: str) -> None:
    with pytest.raises(DataError, match="give a folder") as error:
        load_subject(name)
    sentence(error)


@quiet
@pytest.mark.needs("transformers")
def test_broken_weights_are_one_sentence(tmp_path: Path, checkpoints: ModuleType) -> None:
    folder = checkpoints.write("llama", tmp_path)
    (folder / "model.safetensors").write_bytes(b"not weights")
    with pytest.raises(DataError, match="transformers cannot load") as error:
        load_subject(str(folder))
    sentence(error)


@quiet
@pytest.mark.needs("transformers")
@pytest.mark.parametrize(
    ("kind", "placement", "loss"),
    [("llama", "pre", "next token"), ("bert", "post", "masked tokens"), ("t5", "pre", "same tokens")],
)
def test_checkpoints_of_each_task(
    tmp_path: Path, checkpoints: ModuleType, text: Path, kind: str, placement: str, loss: str
) -> None:
    subject = load_subject(str(checkpoints.write(kind, tmp_path / kind)))
    found = inspect_subject(subject, Windows(2, 16, text))
    assert found.architecture.placement == placement and loss in found.loss_says
    assert found.loss == pytest.approx(torch.tensor(130.0).log().item(), rel=0.15)  # fresh weights know nothing
    assert not found.look.unseen and not any(one.status == "nonfinite" for one in found.table.itertuples())
    json.dumps(found.to_dict(), allow_nan=False)


@quiet
@pytest.mark.needs("transformers")
def test_parameters_that_are_not_in_the_file_are_said(tmp_path: Path, checkpoints: ModuleType) -> None:
    import transformers

    folder = checkpoints.write("bert", tmp_path)
    headless = transformers.BertModel.from_pretrained(folder)
    headless.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text()) | {"architectures": ["BertForMaskedLM"]}
    (folder / "config.json").write_text(json.dumps(config))
    note, _ = load_subject(str(folder)).notes
    assert "6 parameters are not in" in note and "drawn at random" in note and "cls.predictions" in note


@quiet
@pytest.mark.needs("transformers")
def test_dtype_and_implementation_are_chosen(tmp_path: Path, checkpoints: ModuleType) -> None:
    subject = load_subject(str(checkpoints.write("llama", tmp_path)), dtype=torch.bfloat16, implementation="eager")
    assert subject.model.dtype == torch.bfloat16 and subject.model.config._attn_implementation == "eager"


def test_an_implementation_is_for_models_of_transformers(tmp_path: Path) -> None:
    path = tmp_path / "spec.json"
    path.write_text(nl.ModelSpec(depth=2, width=8, heads=2).to_json())
    with pytest.raises(DataError, match="no model of transformers"):
        load_subject(str(path), implementation="eager")


@quiet
@pytest.mark.needs("transformers")
def test_a_model_of_images_is_refused_in_one_sentence(tmp_path: Path) -> None:
    import transformers

    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    transformers.ViTModel(transformers.ViTConfig(**sizes, image_size=32, patch_size=16)).save_pretrained(tmp_path)
    with pytest.raises(DataError) as error:
        inspect_subject(load_subject(str(tmp_path)), Windows(1, 8))
    sentence(error)


def test_a_module_without_a_stream_is_refused(text: Path) -> None:
    with pytest.raises(nl.NormlabError) as error:
        nl.inspect(torch.nn.Sequential(torch.nn.Embedding(256, 8), torch.nn.Linear(8, 256)), text=text, tokens=8)
    assert "no residual stream" in sentence(error)


def test_a_spec_is_built_and_a_dtype_may_be_a_name() -> None:
    spec = nl.ModelSpec(placement="post", depth=1, width=8, heads=2)
    found = nl.inspect(spec, tokens=8, batch=1, seed=3, dtype="float64")
    assert found.name == "post layernorm, depth 1, width 8" and found.dtype == "float64"
    assert "1 sequence of 8 tokens" in str(found) and "decoder: 1 block of width 8" in str(found)
    assert "x ← LN(x + MLP(x))    block 1\n" in str(found)
    again = nl.inspect(nl.build(spec, seed=3, dtype=torch.float64), tokens=8, batch=1, seed=3)
    assert found.loss == again.loss


@pytest.mark.parametrize("dtype", [torch.int8, "int8", "float61", torch.complex64])
def test_a_dtype_that_weights_cannot_have_is_one_sentence(tmp_path: Path, dtype: object) -> None:
    for given in (nl.ModelSpec(depth=1, width=8, heads=2), str(tmp_path)):
        with pytest.raises(DataError, match="choose one of float32, float64, bfloat16, float16") as error:
            nl.inspect(given, dtype=dtype)  # type: ignore[arg-type]
        sentence(error)


def test_a_module_keeps_its_dtype(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = nl.build(nl.ModelSpec(depth=1, width=8, heads=2))
    with pytest.raises(DataError, match="model.to"):
        nl.inspect(model, dtype=torch.float64)
    (tmp_path / "mine_in_double.py").write_text(
        "import normlab as nl\ndef make():\n    return nl.build(nl.ModelSpec(depth=1, width=8, heads=2)).double()\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for dtype, is_then in ((None, torch.float64), ("float32", torch.float32)):
        assert next(load_subject("mine_in_double:make", dtype=dtype).model.parameters()).dtype == is_then


@pytest.mark.parametrize("given", [3, None, lambda: None])
def test_what_is_no_model_at_all_is_one_sentence(given: object) -> None:
    with pytest.raises(DataError, match="is no model: give a module, a ModelSpec") as error:
        subject_of(given)
    sentence(error)


def test_a_model_without_a_trainable_parameter_runs_forward_only() -> None:
    model = nl.build(nl.ModelSpec(depth=4, width=8, heads=2)).requires_grad_(False)
    found = nl.inspect(model, tokens=8)
    assert not found.backward and "every parameter frozen" in found.notes[-1] and found.notes[-1] in str(found)
    assert found.findings[0].says.endswith("no backward pass was run.")
    model.head.weight.requires_grad_(True)
    assert nl.inspect(model, tokens=8).backward and not nl.inspect(model, tokens=8, backward=False).notes


@quiet
def test_a_compiled_model_is_what_it_compiled() -> None:
    model = nl.build(nl.ModelSpec(depth=2, width=8, heads=2), seed=1)
    found = nl.inspect(torch.compile(model), tokens=8)  # type: ignore[arg-type]
    assert found.name == "Transformer" and found.loss == nl.inspect(model, tokens=8).loss


class Wants(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(256, 8)

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor, *, scale: float) -> torch.Tensor:
        return self.embed(tokens) * mask * scale


def test_a_forward_that_takes_more_than_tokens_is_one_sentence() -> None:
    with pytest.raises(DataError, match="forward of Wants takes tokens and mask and scale: wrap it") as error:
        nl.inspect(Wants(), tokens=8)
    sentence(error)
