"""Claims of the catalogue that nothing here tests: about training."""

from typing import Final

from normlab.claims.claim import Claim, register_claim
from normlab.claims.families.norms import B, C

_TRAINING: Final[tuple[tuple[str, str, str, str], ...]] = (
    ("postln-warmup-sensitive", "Post-LN needs a learning-rate warm-up, Pre-LN is less sensitive to it.",
     f"{B}; Xiong et al. 2020", "a Post-LN that trains as well without warm-up"),
    ("deepnorm-trains-deep", "DeepNorm trains Post-LN transformers of up to 1000 layers.",
     f"{B}; Wang et al. 2022 (DeepNet)", "a deep DeepNorm model that diverges where Pre-LN trains"),
    ("tfixup-no-norm-no-warmup", "T-Fixup trains transformers without normalization and without warm-up.",
     f"{B}; Huang et al. 2020", "a T-Fixup model that diverges at the published settings"),
    ("trained-growth-law", "During training a Pre-LN stream's variance grows exponentially with depth, Peri-LN's "
    "linearly.",
     "Kim et al. 2025, arXiv 2502.02732", "a power law that fits Pre-LN's growth better"),
    ("qknorm-bounds-logits-in-training", "Without QK-norm attention logits grow until training diverges; QK-norm "
    "prevents "
     "it.", f"{C}; Wortsman et al. 2023", "logits that stay bounded without QK-norm at the same learning rate"),
    ("dyt-derf-match-layernorm", "DyT and Derf reach the quality of LayerNorm and RMSNorm, or better.",
     f"{C}; Zhu et al. 2025, Chen et al. 2025", "a loss that is higher by more than the margin"),
    ("rms-matches-layernorm", "RMSNorm trains to the quality of LayerNorm.", f"{B}; {C}; Zhang and Sennrich 2019",
     "a loss that is higher by more than the margin"),
    ("postln-wins-when-shallow", "At moderate depth and well tuned, Post-LN ends at a slightly better quality.", B,
     "a Post-LN loss that is not lower"),
    ("preln-unstable-beyond-60", "Beyond 60 layers Pre-LN too may become unstable.", C,
     "Pre-LN models of more than 60 layers that train without spikes"),
    ("batchnorm-noise-still-trains", "With noise injected after BatchNorm training is as fast as with BatchNorm alone.",
     f"{B}; Santurkar et al. 2018", "a loss that the noise raises by more than the margin"),
    ("norm-smooths-landscape", "Normalization makes the loss smoother and its gradient more predictable.",
     f"{B}; {C}; Santurkar et al. 2018", "a gradient that is no more predictable at equal loss"),
    ("batchnorm-14x", "BatchNorm makes training 14 times faster.", f"{C}; Ioffe and Szegedy 2015",
     "fewer steps saved at equal quality"),
    ("clip-1.0-saves", "Clipping gradients at a norm of 1.0 keeps a bad batch from ruining a run.", C,
     "runs that diverge alike with and without"),
    ("bf16-survives", "bfloat16's range prevents the overflows that break float16 training.", C,
     "a float16 run without overflows at the same settings"),
    ("gain-weight-decay", "Norm gains are best left out of weight decay.", B, "no difference, or a lower loss with "
    "decay"),
    ("adam-second-moment-mismatch", "A mismatch of Adam's second moments contributes to loss spikes.", B,
     "spikes without a mismatch before them"),
    ("completep-transfer", "With CompleteP the best learning rate carries over from shallow to deep models.",
     "Dey et al. 2025, arXiv 2505.01618", "a best learning rate that moves with depth"),
)  # fmt: skip


for _id, _statement, _source, _refuted_by in _TRAINING:
    register_claim(
        Claim(
            id=_id,
            version=1,
            family="training",
            statement=_statement,
            source=_source,
            nature="trend",
            regimes=(),
            refuted_by=_refuted_by,
            right_statement="Not judged here.",
            not_tested="training",
        )
    )
