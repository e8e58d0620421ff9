"""A part of a model as a function of one tensor, with all else in the forward pass as it was."""

from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from normlab.jacobian.evaluating import UnknownPart, evaluate
from normlab.jacobian.taps import Inputs, run, with_dtype
from normlab.recording.plan import Layout, Port


class Part(nn.Module):
    """x ↦ y between two tensors of a model's forward pass on one batch.

    Whatever else the pass computes (masks, positions, an encoder's memory) is held as the batch gives it. Give it,
    with its :attr:`point`, to :func:`~normlab.jacobian.dense`, :func:`~normlab.jacobian.frobenius` or
    :func:`~normlab.jacobian.spectrum`.

    Args:
        name: what it is, in words.
        point: x on the batch.
        layout: the order of the axes of x and y.
    """

    def __init__(self, name: str, point: Tensor, layout: tuple[Layout, Layout]) -> None:
        super().__init__()
        self.name, self.layout = name, layout
        self.point = point.detach().double()

    def extra_repr(self) -> str:
        """Say which part it is, and of what shape."""
        return f"{self.name}, x {list(self.point.shape)}"

    def __deepcopy__(self, memo: dict[int, Any]) -> "Part":
        # Its model is a copy in float64 already, which nothing changes.
        return self

    def token(self, position: int, *, of: int | None = None, sequence: int = 0) -> "TokenPart":
        """Return one n×n block of the Jacobian's tokens: ∂y_of/∂x_position, of a token's own by default.

        Args:
            position: of the token in x.
            of: position of the token in y; the same unless given.
            sequence: which sequence of the batch.

        Raises:
            UnknownPart: there is no such token.
        """
        return TokenPart(self, position, position if of is None else of, sequence)


class Span(Part):
    """The part between two ports of a model.

    Args:
        name: what it is, in words.
        model: the model.
        inputs: what it is called with.
        start: where x is.
        end: where y is.
        point: x on these inputs.
    """

    def __init__(self, name: str, model: nn.Module, inputs: Inputs, start: Port, end: Port, point: Tensor) -> None:
        super().__init__(name, point, (start.layout, end.layout))
        self.model, self.inputs, self.start, self.end = model, inputs, start, end

    def forward(self, x: Float[Tensor, "*input"]) -> Float[Tensor, "*output"]:
        """Run the model with x in its place, and return y."""
        found = run(
            self.model, with_dtype(self.inputs, x.dtype), reads=[self.end], writes={self.start: lambda _: x.clone()}
        )
        return found[self.end]


class ModulePart(Part):
    """One module, as a function of its first argument.

    Args:
        name: what it is, in words.
        module: the module.
        inputs: what it was called with.
    """

    def __init__(self, name: str, module: nn.Module, inputs: Inputs) -> None:
        super().__init__(name, inputs[0][0], ("sequences first", "sequences first"))
        self.module, self.inputs = module, inputs

    def forward(self, x: Float[Tensor, "*input"]) -> Any:
        """Run the module on x."""
        args, kwargs = with_dtype(self.inputs, x.dtype)
        return evaluate(self.module, x, *args[1:], **kwargs)


class TokenPart(nn.Module):
    """x_j ↦ y_i: one token's vector in, one out, all other tokens as they are.

    Args:
        part: the part.
        position: j.
        of: i.
        sequence: of the batch.
    """

    def __init__(self, part: Part, position: int, of: int, sequence: int) -> None:
        super().__init__()
        self.part = part
        self.name = f"{part.name} token {position}"
        self.name += (f" to {of}" if of != position else "") + (f" sequence {sequence}" if sequence else "")
        self._into = _index(part.point, part.layout[0], sequence, position)
        self._out = _index(part.point, part.layout[1], sequence, of)
        self.point = part.point[self._into]

    def forward(self, x: Float[Tensor, " width"]) -> Float[Tensor, " width"]:
        """Return y_i."""
        whole = self.part.point.to(x).clone()
        whole[self._into] = x
        y: Tensor = self.part(whole)
        return y[self._out]


def _index(point: Tensor, layout: Layout, sequence: int, position: int) -> tuple[int, ...]:
    """Where a token's vector stands; flat tensors are one long sequence."""
    index = {"sequences first": (sequence, position), "tokens first": (position, sequence), "flat": (position,)}[layout]
    if point.dim() == 2:
        index = (position,)
    there = (isinstance(one, int) and 0 <= one < size for one, size in zip(index, point.shape, strict=False))
    if len(index) != point.dim() - 1 or not all(there):
        raise UnknownPart(
            f"there is no token {position} of sequence {sequence} in a tensor of shape {tuple(point.shape)}: "
            f"count both from 0"
        )
    return index
