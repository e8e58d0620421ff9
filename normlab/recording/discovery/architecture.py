"""What discovery found, as data and in words."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from itertools import groupby
from typing import Any

from normlab.errors import counted
from normlab.recording.discovery.norms import NormKind
from normlab.recording.plan import SitePlan


@dataclass(frozen=True)
class FoundNorm:
    """A norm of the model.

    Attributes:
        path: the module that computes it.
        position: ``inner`` (before the sub-layer), ``output`` (after it), ``outer`` (on the sum), ``qk``,
            ``value``, ``mid`` (inside, before the last matrix), ``latent`` (inside, before another matrix),
            ``embed``, ``final``, or ``other``.
        kind: what it computes.
    """

    path: str
    position: str
    kind: NormKind


@dataclass(frozen=True)
class FoundSubLayer:
    """A residual branch.

    Attributes:
        layer: the block's number, from 1.
        sublayer: ``attn`` if it mixes positions, ``cross`` if it also reads another sequence, else ``mlp``.
        block: the block's path; empty where it is no module.
        norms: its norms.
        skip: what its update is added to: ``stream``, ``normed``, ``stream+block_input``, ``gated`` (multiplied by
            what is computed from it) or ``unknown``.
        skip_scale: what the skip is multiplied by: numbers, names of parameters, ``1-name``, ``?(name)`` for something
            else that is computed from parameters, and empty for other tensors.
        branch_scale: what the branch is multiplied by, after its output norm if there is one.
        parallel: whether another branch reads the same stream.
        placement: ``pre``, ``post``, ``peri``, ``reordered``, ``none`` or ``unknown``.
        reason: why it is unknown, or that the norm on its sum closes the block.
        opaque: whether something other than norms and factors stands between the stream and the first matrix.
        scores: whether a softmax over products of queries and keys was found in it.
        output_scale: what the branch is multiplied by before its output norm.
        input_scale: what the first matrix takes is multiplied by, after the inner norm if there is one.
        stream_scale: what the stream is multiplied by before the inner norm.
    """

    layer: int
    sublayer: str
    block: str
    norms: tuple[FoundNorm, ...]
    skip: str
    skip_scale: tuple[float | str, ...]
    branch_scale: tuple[float | str, ...]
    parallel: bool
    placement: str
    reason: str = ""
    opaque: bool = False
    scores: bool = True
    output_scale: tuple[float | str, ...] = ()
    input_scale: tuple[float | str, ...] = ()
    stream_scale: tuple[float | str, ...] = ()

    def has(self, position: str) -> bool:
        """Whether a norm stands at ``position``."""
        return any(norm.position == position for norm in self.norms)

    def branch(self, taken: str = "") -> str:
        """The update in symbols, as a function of the stream x or of ``taken``."""
        function = {"attn": "Attn" if self.scores else "Mix", "cross": "Cross", "mlp": "MLP"}[self.sublayer]
        read = "?(x)" if self.opaque and not taken else _times(self.input_scale, taken or self.read)
        branch = f"{function}({read})"
        return _times(self.branch_scale, self.wrapped("output", _times(self.output_scale, branch)))

    @property
    def read(self) -> str:
        """What it reads in symbols, before that is multiplied by anything."""
        return self.wrapped("inner", _times(self.stream_scale, "x"))

    @property
    def carried(self) -> str:
        """The skip in symbols."""
        skip = {"stream": "x", "stream+block_input": "(x + x_block)", "gated": "g(x)·x"}
        skip["normed"] = self.wrapped("inner", "x") if self.has("inner") else "N(x)"
        return _times(self.skip_scale, skip.get(self.skip, "?"))

    def wrapped(self, position: str, text: str) -> str:
        """Put the names of the norms at ``position`` around ``text``."""
        for norm in self.norms:
            if norm.position == position:
                text = f"{_symbol(norm.kind)}({text})"
        return text


@dataclass(frozen=True)
class FoundStack:
    """A stack of blocks around one residual stream.

    Attributes:
        name: ``encoder`` if a token depends on later ones and nothing reads another sequence, else ``decoder``.
        depth: the number of blocks.
        width: the number of features of the stream.
        placement: the placement of all its sub-layers; ``parallel``, ``residual`` (two streams), ``mixed`` or
            ``unknown``.
        reason: why it is unknown, or what it mixes.
        sublayers: its residual branches, in order.
        final_norm: the norm after the last block.
        copies: numbers of blocks that are equal, entry for entry, though they share no parameter.
        joined: numbers of blocks before which something else is added to the stream: an earlier stream, as in a
            U-Net, or what does not depend on it, as an embedding of the block's number.
        chosen: numbers of blocks after which each token is told to take the result or to keep the stream.
        entered: numbers of blocks within which something else is added to the stream.
    """

    name: str
    depth: int
    width: int
    placement: str
    reason: str
    sublayers: tuple[FoundSubLayer, ...]
    final_norm: FoundNorm | None
    copies: tuple[tuple[int, ...], ...] = ()
    joined: tuple[int, ...] = ()
    chosen: tuple[int, ...] = ()
    entered: tuple[int, ...] = ()

    @property
    def qk_norm(self) -> str:
        """``none``, ``heads`` (each head by itself), ``all`` (all heads together) or ``mixed``."""
        found = {norm.kind.features for part in self.sublayers for norm in part.norms if norm.position == "qk"}
        if not found:
            return "none"
        return "all" if max(found) >= self.width else "heads" if len(found) == 1 else "mixed"

    def _sums(self) -> Iterator[list[FoundSubLayer]]:
        """Yield the sub-layers that share a sum."""
        numbered = enumerate(self.sublayers)
        for _, group in groupby(numbered, key=lambda one: (one[1].layer, -1 if one[1].parallel else one[0])):
            yield [part for _, part in group]

    def equations(self) -> Iterator[str]:
        """Yield the equation of each kind of sub-layer, with the blocks that have it."""
        by_equation: dict[str, list[int]] = {}
        for parts in self._sums():
            by_equation.setdefault(_equation(parts), []).append(parts[0].layer)
        for equation, layers in by_equation.items():
            times = len(layers) // len(set(layers))
            yield f"{equation}    {_blocks(list(dict.fromkeys(layers)))}" + (f", {times} each" * (times > 1))


@dataclass(frozen=True)
class Borrowed:
    """A role of a sub-layer whose parameter is that of another block.

    Attributes:
        stack: the stack of the sub-layer that uses it.
        layer: its block.
        sublayer: ``attn``, ``cross`` or ``mlp``.
        role: the parameter's role.
        owner_stack: the stack at which the parameter stands in the plan.
        owner_layer: the block at which it stands.
    """

    stack: str
    layer: int | None
    sublayer: str
    role: str
    owner_stack: str
    owner_layer: int | None


@dataclass(frozen=True)
class Architecture:
    """A model's residual streams, norms and placement.

    Attributes:
        model: the model's class.
        stacks: its stacks; empty where no residual stream was found.
        norms: every norm that ran.
        back_to_back: pairs of norms where the second takes what the first gives.
        reason: why no residual stream was found.
        borrowed: the parameters that sub-layers of several blocks use, once for each but the first.
        plan: the site plan with which :func:`normlab.record` observes the model.
        skipped: blocks that did not run although others of their class did: what is said leaves them out.
        training: whether the model was in training mode, in which factors of dropped paths are those of this pass.
    """

    model: str
    stacks: tuple[FoundStack, ...]
    norms: tuple[FoundNorm, ...]
    back_to_back: tuple[tuple[str, str], ...] = ()
    reason: str = ""
    borrowed: tuple[Borrowed, ...] = ()
    plan: SitePlan = field(default_factory=SitePlan, repr=False, compare=False)
    skipped: tuple[str, ...] = ()
    training: bool = False

    @property
    def placement(self) -> str:
        """The placement of all stacks; ``unknown`` if that of one is, or else ``mixed``."""
        found = {stack.placement for stack in self.stacks}
        return found.pop() if len(found) == 1 else "mixed" if found and "unknown" not in found else "unknown"

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the site plan as plain values for JSON."""
        found = asdict(self)
        del found["plan"]
        stacks = zip(found["stacks"], self.stacks, strict=True)
        found["stacks"] = [{**values, "qk_norm": stack.qk_norm} for values, stack in stacks]
        return {**found, "placement": self.placement, "norm_count": len(self.norms)}

    def __str__(self) -> str:
        if not self.stacks:
            return f"{self.model}: no residual stream found: {self.reason}"
        norms = counted(len(self.norms), "norm")
        return "\n".join([f"{self.model}: {norms}", *self._cautions(), *(_words(stack) for stack in self.stacks)])

    def _cautions(self) -> Iterator[str]:
        if self.skipped:
            mode = "; the model is in training mode, and model.eval() drops none" if self.training else ""
            number = counted(len(self.skipped), "block")
            stand = "stands" if len(self.skipped) == 1 else "stand"
            yield f"{number} did not run and {stand} in no count: {', '.join(self.skipped)}{mode}"
        factors = {one for stack in self.stacks for part in stack.sublayers for one in part.branch_scale}
        if self.training and any(isinstance(one, float) and abs(one) > 1 for one in factors):
            yield "the model is in training mode: factors above 1 may make up for what is dropped at random"


def _words(stack: FoundStack) -> str:
    placement = stack.placement + (f" ({stack.reason})" if stack.reason else "")
    lines = [f"{stack.name}: {counted(stack.depth, 'block')} of width {stack.width}, placement {placement}"]
    lines += [f"  {equation}" for equation in stack.equations()]
    if any(part.sublayer == "attn" and not part.scores for part in stack.sublayers):
        lines.append(
            "  Mix: a token mixer in which no softmax over products of queries and keys was found; "
            "its rows have the sub-layer attn"
        )
    kinds = dict.fromkeys((norm.position, str(norm.kind)) for part in stack.sublayers for norm in part.norms)
    lines += [f"  {position} norm: {kind}" for position, kind in kinds]
    none = "  no final norm" + (" found" if stack.placement == "unknown" else "")
    lines += [f"  final norm: {stack.final_norm.kind}" if stack.final_norm else none]
    lines += [f"  equal copies: {_blocks(list(group))}" for group in stack.copies]
    if stack.joined:
        lines.append(f"  something else is added to the stream before {_blocks(list(stack.joined))}")
    if stack.entered:
        lines.append(f"  something else is added to the stream within {_blocks(list(stack.entered))}")
    if stack.chosen:
        lines.append(
            f"  where a mask says so, tokens keep the stream from before a sum of {_blocks(list(stack.chosen))}"
        )
    return "\n".join(lines)


def _equation(parts: list[FoundSubLayer]) -> str:
    """Return the sum of sub-layers that read the same stream, with their norm written once if it is one."""
    inner = {norm.path for part in parts for norm in part.norms if norm.position == "inner"}
    shared = len(parts) > 1 and len(inner) == 1
    terms = " + ".join([parts[0].carried, *(part.branch("n" if shared else "") for part in parts)])
    equation = f"x ← {parts[-1].wrapped('outer', terms.replace('+ -', '- '))}"
    return f"n = {parts[0].read},  {equation}" if shared else equation


def _symbol(kind: NormKind) -> str:
    return {"layernorm": "LN", "rmsnorm": "RMS", "l2norm": "L2", "dyt": "DyT", "derf": "Derf"}.get(kind.name, "N")


def _times(factors: tuple[float | str, ...], term: str) -> str:
    sign = "-" if sum(isinstance(one, float) and one < 0 for one in factors) % 2 else ""
    words = [f"{abs(one):.4g}" if isinstance(one, float) else _factor(one) for one in factors if one != -1.0]
    return sign + "·".join([*words, term])


def _factor(name: str) -> str:
    """Return a factor with the last part of each name in it."""
    if name.startswith("?("):
        return f"?({', '.join(_factor(one) for one in name[2:-1].split(', '))})"
    if name.startswith("1-"):
        return f"(1 - {_factor(name[2:])})"
    words = name.split(".")
    # A list of parameters numbers them.
    return next((word for word in reversed(words) if not word.isdigit()), name) or "?"


def _blocks(numbers: list[int]) -> str:
    """Return ``blocks 1-3, 5`` for 1, 2, 3, 5."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    ranges = ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
    return f"block{'' if len(numbers) == 1 else 's'} {ranges}"
