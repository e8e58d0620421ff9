"""What well-known models are made of, and what a norm costs in parameters."""

from normlab.claims.evidence import Number
from normlab.claims.measured.models import small
from normlab.models import build

_WIDTH = 16


def parameter_counts(seed: int) -> list[Number]:
    """Count what RMSNorm saves in a block, and the norms of a model of Llama 3 8B's depth."""
    ln, rms = (build(small("pre", norm=norm, depth=1)) for norm in ("layernorm", "rmsnorm"))
    saved = sum(p.numel() for p in ln.stack("decoder").blocks.parameters())
    saved -= sum(p.numel() for p in rms.stack("decoder").blocks.parameters())
    deep = build(small("pre", norm="rmsnorm", depth=32))
    norms = sum(type(module).__name__ == "RMSNorm" for module in deep.modules())
    return [
        Number("saved-parameters-from-2d", float(abs(saved - 2 * _WIDTH)), None, {"width": _WIDTH, "depth": 1}),
        Number("norms-of-32-blocks-from-65", float(abs(norms - 65)), None, {"width": _WIDTH, "depth": 32}),
    ]


def census(seed: int) -> list[Number]:
    """Read the specs of well-known models: placement, norm and final norm. 1 where the statement holds."""
    from normlab.presets import PRESETS

    specs = {name: preset.spec for name, preset in PRESETS.items()}
    others = [name for name, spec in specs.items() if not name.startswith("gpt2") and spec.norm == "layernorm"]
    pre = [spec for spec in specs.values() if spec.kind == "decoder" and spec.placement in ("pre", "peri", "reordered")]
    modern = [specs[name] for name in ("llama", "qwen3") if name in specs]
    facts = {
        "gpt2-is-post": specs["gpt2"].placement == "post",
        "only-gpt-uses-layernorm": not others,
        "llama-and-qwen-are-pre-rms": all(s.placement == "pre" and s.norm == "rmsnorm" for s in modern),
        "final-norm-in-every-pre-like-decoder": all(spec.has_final_norm for spec in pre),
    }
    gemma = _gemma_is_pre()
    return [
        *(Number(name, float(holds), None, {"depth": specs["gpt2"].depth}) for name, holds in facts.items()),
        Number("gemma-2-is-pre", gemma),
    ]


def _gemma_is_pre() -> float:
    """1 if a Gemma 2 layer of ``transformers`` has no norm after its sub-layers; NaN without that package."""
    try:
        from transformers.models.gemma2 import modeling_gemma2 as gemma
    except ImportError:
        return float("nan")
    source = gemma.Gemma2DecoderLayer.__init__.__code__.co_names
    return float("post_feedforward_layernorm" not in source)
