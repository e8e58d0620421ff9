"""One page that says what the theory of a model is, with its numbers put in."""

from collections.abc import Iterator
from typing import Final

import numpy as np

from normlab.activations import ACTIVATIONS
from normlab.spec import ModelSpec
from normlab.theory.attention_averages import AverageWeights
from normlab.theory.backward import at_streams, step_back
from normlab.theory.batches import geometry_of
from normlab.theory.forward import Forward, forward
from normlab.theory.geometry import averages
from normlab.theory.growth import Exponents, exponents
from normlab.theory.head import head
from normlab.theory.limits import beyond
from normlab.theory.mixing import AttentionMap
from normlab.theory.reasons import NoTheory
from normlab.theory.step import Step

#: The mean square of what an update is added to.
_SKIPS: Final = {
    "stream": "q",
    "normed": "q of N(x)",
    "stream+block_input": "(q + q of x_block + 2 their mean product)",
}


def derivation(spec: ModelSpec, *, tokens: int = 64, laws: Exponents | None = None) -> str:
    """Return the recursion of averages of ``spec`` with its numbers, what it gives by layer, and the laws as L → ∞.

    Args:
        spec: the model.
        tokens: positions of a random sequence.
        laws: what :func:`~normlab.theory.exponents` found, where that is at hand already.
    """
    lines = [*_model(spec), ""]
    try:
        walked = forward(spec, averages(geometry_of(spec, 1, tokens)))
    except NoTheory as reason:
        return "\n".join([*lines, f"no theory: {reason}"]) + "\n"
    lines += [*_recursion(walked), "", *_layers(walked), ""]
    found = laws if laws is not None else exponents(spec, tokens=tokens)
    reached = f"L = {found.depths[0]} to {found.depths[-1]}" if found.depths else "no depth"
    lines += [
        f"As the depth L grows (from the recursion at {reached}, infinitely wide, of one sequence of {tokens} tokens):",
        str(found),
    ]
    return "\n".join(lines) + "\n"


def _model(spec: ModelSpec) -> Iterator[str]:
    names = [spec.placement] if isinstance(spec.placement, str) else list(dict.fromkeys(spec.placement))
    yield f"placement {', '.join(names)}; norm {spec.norm}; activation {spec.activation}; init {spec.init}"
    for stack, depth in spec.stacks.items():
        name = f"{stack} " if len(spec.stacks) > 1 else ""
        for layer in dict.fromkeys((1, depth)):
            for sublayer in spec.sublayers(stack):
                equation = spec.wiring(spec.where(stack, layer, sublayer)).equation
                yield f"  {name}block {layer} {sublayer:<5} {equation}"


def _recursion(walked: Forward) -> Iterator[str]:
    yield "q: mean square of a token, p: mean product of two tokens of a sequence, ρ = p/q; z: what F reads"
    count = len(walked.spec.sublayers(walked.stack))
    last = {step.where.sublayer: step for step in walked.steps[-count:]}
    for step in walked.steps[:count]:
        mixer = step.mixer
        yield from _attention(step, mixer, walked) if isinstance(mixer, AttentionMap) else _mlp(step, walked.spec)
        both = (
            " (u: attention's and this one's together)" if step.where.sublayer == "mlp" and walked.spec.parallel else ""
        )
        yield f"  sum: {_sum(step)}{both}"
        other = last[step.where.sublayer]
        if other.wiring != step.wiring:
            yield f"  in block {other.where.layer}: {_sum(other)}"
    yield "Gradients: T (a token's), C (two tokens'); the same factors on the way back (docs/theory.md, B1 to B6)."


def _attention(step: Step, mixer: AttentionMap, walked: Forward) -> Iterator[str]:
    wiring, spec, gains = step.wiring, walked.spec, mixer.gains
    assert isinstance(mixer.weights, AverageWeights)
    z = "z" if mixer.memory is None else "m"
    what = "attention" if mixer.memory is None else "cross-attention, m the encoder's output"
    gain, z, of = (gains["o"], "v", ", v normed") if wiring.qkv_norm else (gains["v"] * gains["o"], z, "")
    if wiring.mid_norm:
        gain, of = gain / gains["o"], f"{of}, normed before W_o with gain {gains['o']:.4g}"
    mixed = f"{gain:.4g} [p_{z} + (q_{z} − p_{z}) r"
    yield f"{what}: u_q = {mixed}₁],  u_p = {mixed}₂]{of}{_logits(step, mixer, spec)}"
    yield (
        f"  r₁ = {mixer.weights.own:.4g}, r₂ = {mixer.weights.pair:.4g} in block 1: the weight that two positions' "
        f"attention puts on one token"
    )


def _logits(step: Step, mixer: AttentionMap, spec: ModelSpec) -> str:
    if mixer.queries is None or mixer.keys is None:
        return ""
    if step.wiring.qkv_norm or spec.qk_norm:
        return f"; q and k normed: logits of variance {_at(mixer.queries.value) * _at(mixer.keys.value):.4g}"
    squares = "q_z²" if mixer.memory is None else "q_z q_m"
    return f", logits of variance {mixer.gains['q'] * mixer.gains['k']:.4g} {squares}"


def _mlp(step: Step, spec: ModelSpec) -> Iterator[str]:
    mixer, gated = step.mixer, ACTIVATIONS[spec.activation].gated
    gains = mixer.gains
    kernel = f"{gains['up']:.4g} · z z′ E[φ(g) φ(g′)]" if gated else "E[φ(h) φ(h′)]"
    own = f"· N[{kernel}]" if step.wiring.mid_norm else f"· {kernel}"
    name = "gate" if gated else "up"
    yield f"MLP: u = {gains['down']:.4g} {own}, pre-activations of variance {gains[name]:.4g} q_z"
    value = _at(mixer.value) / _at(mixer.inputs)
    slope = _at(mixer.backward(np.array([1.0, 0.0, 0.0]))[0])
    yield f"  in block 1: gain v = {value:.4g} forward, χ = {slope:.4g} back, χ/v = {slope / value:.4g}"


def _sum(step: Step) -> str:
    """The recursion of q, with the wiring's numbers."""
    wiring, block = step.wiring, f"in block {step.where.layer}"
    if step.waits:
        return "waits for the MLP's, and is added with it"
    update = f"{wiring.branch_scale**2:.4g} {'û' if wiring.output_norm else 'u'}_q"
    if wiring.output_norm and wiring.branch_scale:
        update += f", û the normed branch (û_q = {_at(step.update) / wiring.branch_scale**2:.4g} {block})"
    skip = "" if wiring.skip == "none" else f"{wiring.skip_scale**2:.4g} {_SKIPS[wiring.skip]} + "
    norm = f", then normed: q = {_at(step.stream):.4g} {block}" if wiring.norms_stream else ""
    kappa = wiring.second_stream
    second = "" if kappa is None else f"; y: q ← q + {kappa**2:.4g} u_q"
    return f"q ← {skip}{update},  the same for p{norm}{second}"


def _at(entries: np.ndarray) -> float:
    return float(entries[0])


def _layers(walked: Forward) -> Iterator[str]:
    """Tabulate a few layers."""
    geometry = walked.geometry
    if not walked.steps:
        yield f"no theory from block 1 on: {walked.broken}"
        return
    last = walked.steps[-1].where.layer
    try:
        gradients = _gradients(walked)
    except NoTheory as reason:
        yield f"no theory of gradients: {reason}"
        gradients = dict.fromkeys(range(1, last + 1), float("nan"))
    yield f"{'layer':>6} {'q':>10} {'ρ':>8} {'update/skip':>12} {'stream gradient':>16}"
    ends = {step.where.layer: step for step in walked.steps}
    for layer in sorted({last, *(2**k for k in range(last.bit_length()))}):
        step = ends[layer]
        ratio = float("nan") if step.skip is None else float(np.sqrt(_at(step.update) / max(_at(step.skip), 1e-300)))
        row = (
            f"{layer:>6} {_at(step.stream):>10.4g} {geometry.overlap(step.stream):>8.4f} {ratio:>12.4g} "
            f"{gradients[layer]:>16.4g}"
        )
        yield row.replace("nan", "  –")
    yield "q, ρ: of the stream after the block; update/skip: rms of its last sub-layer's update over that of what it is"
    yield f"added to; stream gradient: length of ∂loss/∂x there, of one sequence of {geometry.tokens} random tokens."
    if walked.broken:
        yield f"no theory beyond block {last}: {walked.broken}"


def _gradients(walked: Forward) -> dict[int, float]:
    """Return the length of the stream's gradient after each block."""
    loss = head(walked)
    untested = beyond(walked)
    if untested:
        raise NoTheory(untested)
    state = at_streams(walked, loss.gradient, loss.lost)
    lengths: dict[int, float] = {}
    for step in reversed(walked.steps):
        lengths.setdefault(step.where.layer, float(np.sqrt(walked.geometry.trace(state.x))))
        state, _ = step_back(step, state, parameters=False)
    return lengths
