"""One page that says what the theory of a model is, with its numbers put in."""

from collections.abc import Iterator

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
    lines += [f"As the depth L grows (from the recursion at {reached}, infinitely wide):", str(found)]
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
    for step in walked.steps[: len(walked.spec.sublayers(walked.stack))]:
        yield from _sublayer(step, walked.spec)
    yield "Gradients: T (a token's), C (two tokens'); the same factors on the way back (docs/theory.md, B1 to B6)."


def _sublayer(step: Step, spec: ModelSpec) -> Iterator[str]:
    wiring, mixer = step.wiring, step.mixer
    gains = mixer.gains
    if isinstance(mixer, AttentionMap):
        gain = gains["v"] * gains["o"]
        assert isinstance(mixer.weights, AverageWeights)
        logits = f", logits of variance {gains['q'] * gains['k']:.4g} q_z²" if mixer.queries is not None else ""
        what, z = ("attention", "z") if mixer.memory is None else ("cross-attention, m the encoder's output", "m")
        logits = logits if mixer.memory is None else logits.replace("q_z²", "q_z q_m")
        mixed = f"{gain:.4g} [p_{z} + (q_{z} − p_{z}) r"
        yield f"{what}: u_q = {mixed}₁],  u_p = {mixed}₂]{logits}"
        yield (
            f"  r₁ = {mixer.weights.own:.4g}, r₂ = {mixer.weights.pair:.4g} in block 1: the weight that two positions' "
            f"attention puts on one token"
        )
    else:
        activation = ACTIVATIONS[spec.activation]
        kernel = "g_up² z z′ E[φ(g) φ(g′)]" if activation.gated else "E[φ(h) φ(h′)]"
        yield f"MLP: u = {gains['down']:.4g} {kernel}, pre-activations of variance {gains['up']:.4g} q_z"
        value = _at(mixer.value) / _at(mixer.inputs)
        slope = _at(mixer.backward(np.array([1.0, 0.0, 0.0]))[0])
        yield f"  in block 1: gain v = {value:.4g} forward, χ = {slope:.4g} back, χ/v = {slope / value:.4g}"
    a, b = wiring.skip_scale**2, wiring.branch_scale**2
    norm = ", then divided by its q: q = 1" if wiring.norms_stream else ""
    own = "u/u_q" if wiring.output_norm else "u"
    skip = "" if wiring.skip == "none" else f"{a:.4g} q + "
    yield f"  sum: q ← {skip}{b:.4g} {own}_q,  the same for p{norm}"


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
