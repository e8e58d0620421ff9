"""Tiny checkpoints of transformers, written to a folder, with a tokenizer whose tokens are characters."""

from pathlib import Path
from typing import Any


def tokenizer() -> Any:
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {chr(code): code for code in range(128)} | {"[UNK]": 128, "[MASK]": 129}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    return PreTrainedTokenizerFast(tokenizer_object=made, unk_token="[UNK]", mask_token="[MASK]")


def model(kind: str) -> Any:
    import torch
    import transformers

    torch.manual_seed(0)
    sizes = {"vocab_size": 130, "hidden_size": 16, "num_hidden_layers": 4, "num_attention_heads": 2}
    sizes |= {"intermediate_size": 32, "max_position_embeddings": 64}
    match kind:
        case "llama":
            return transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes))
        case "bert":
            return transformers.BertForMaskedLM(transformers.BertConfig(**sizes))
        case "t5":
            config = transformers.T5Config(
                vocab_size=130, d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2, decoder_start_token_id=0
            )
            return transformers.T5ForConditionalGeneration(config)
    raise KeyError(kind)


def write(kind: str, folder: Path) -> Path:
    made = model(kind)
    made.save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder
