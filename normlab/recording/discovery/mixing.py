"""Whether a branch mixes positions: which token each entry of its update was computed from."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from normlab.recording.discovery.graph import LAYOUT, PRODUCTS, Flow, Ref, Value
from normlab.recording.discovery.probing import NONE, SEVERAL, is_foreign, probed
from normlab.recording.discovery.replaying import replayed

#: Operations that mix along the axes that they are told, and hold no parameters.
SPECTRAL: Final = ("_fft_r2c", "_fft_c2c", "_fft_c2r")
#: Operations along axes, by the name of the argument that has them.
_ALONG: Final = ("dim", "dims", "normalized_shape")
_PLACED: Final = LAYOUT - {"copy", "as_strided", "lift_fresh"} | {"cat", "stack", "roll", "flip"}
#: Operations that take or put entries where the numbers in a tensor say.
_CHOOSING: Final = ("gather", "index_select", "index", "take", "masked_select", "embedding")
#: Those that take whole entries by numbers of one axis or of several.
_TAKING: Final = ("gather", "index_select", "index")
_PUTTING: Final = ("scatter", "scatter_add", "scatter_reduce", "index_add", "index_copy", "index_put", "masked_scatter")
#: Operations that gather what is near.
_SPREAD: Final = (
    "native_group_norm",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "max_pool2d_with_indices",
    "max_pool3d_with_indices",
    "_adaptive_avg_pool2d",
    "_adaptive_avg_pool3d",
    "upsample_linear1d",
    "upsample_nearest1d",
)
#: Operations that look back only, or of which it is not told which way they look.
_ONE_SIDED: Final = ("cumsum", "cumprod", "cummax", "cummin", "logcumsumexp", "convolution", *_SPREAD)
_MASKING: Final = ("tril", "triu", "le", "ge", "lt", "gt")


def mixes(flow: Flow, base: int, update: int) -> bool | None:
    """Return whether an entry of a branch's update depends on another token than its own of what the branch reads.

    ``None`` if an operation stands between them of which that cannot be told, as one that chooses tokens by their
    entries. Weights that happen to be zero are no reason not to.

    Args:
        flow: the data flow.
        base: what the branch reads, its features along the last axis.
        update: what it gives.
    """
    shape = flow.values[base].shape
    tokens = torch.arange(_size(shape[:-1])).view(*shape[:-1], 1).expand(shape)
    given = _carried_on(flow, base, update, tokens)
    if given is None:
        return None
    own = tokens.reshape(given.shape) if given.numel() == tokens.numel() else given
    return bool(((given == SEVERAL) | (given != own) & (given != NONE)).any())


def looks_ahead(flow: Flow, base: int, update: int) -> bool:
    """Whether the first token of a branch's update is known to depend on a later one of what the branch reads.

    Args:
        flow: the data flow.
        base: what the branch reads, its features along the last axis.
        update: what it gives.
    """
    shape, between = flow.values[base].shape, list(flow.between(base, update))
    if _size(flow.values[update].shape) != _size(shape) or any(value.op in _ONE_SIDED for value in between):
        return False
    if any(value.op in _MASKING for value in flow.made_of(update) if not flow.depends(base, value.index)):
        return False
    for axis in range(len(shape) - 1):
        later = torch.arange(shape[axis]).clamp(max=1).sub(1).neg().mul(NONE)
        places = later.view([-1 if one == axis else 1 for one in range(len(shape))]).expand(shape)
        given = _carried_on(flow, base, update, places)
        # Matrices may have taken all tokens in one row.
        if given is not None and bool((given.reshape(shape).select(axis, 0) != NONE).any()):
            return True
    return False


def _carried_on(flow: Flow, base: int, update: int, tokens: Tensor) -> Tensor | None:
    """Return the labels of what a branch gives for those of what it reads, or nothing where they are not known."""
    labels = {base: tokens}
    for value in flow.between(base, update):
        try:
            found = _labelled(flow, value, labels)
        except (RuntimeError, TypeError, IndexError):  # an operation that takes no whole numbers
            return None
        if found is None or tuple(found.shape) != value.shape:
            return None
        labels[value.index] = found
    return labels[update]


def _labelled(flow: Flow, value: Value, labels: dict[int, Tensor]) -> Tensor | None:
    """Return for each entry of a value the token that it is made of; none for what is decided, as by a router."""
    if not (value.floating or value.dtype.startswith("torch.complex")):
        return torch.tensor(NONE).expand(value.shape)
    if value.function is None:
        return labels[value.inputs[0]].reshape(value.shape) if value.op == "alias" else None
    function, args, kwargs = value.function
    if is_foreign(function):
        return probed(flow, value, labels)

    def label(one: Any) -> Any:
        if not isinstance(one, Ref):
            return one
        return labels.get(one.number, torch.tensor(NONE).expand(flow.values[one.number].shape))

    args, kwargs = tree_map(label, (args, kwargs), is_leaf=lambda one: isinstance(one, Ref))
    own = [labels[one] for one in value.inputs if one in labels]
    if value.op in ("_to_copy", "native_dropout", "copy", "log_sigmoid_forward"):
        return own[-1]
    if value.op == "written":
        return _picked(function, [one.contiguous() if isinstance(one, Tensor) else one for one in args], {}, value)
    if value.op == "view_as_real":
        return own[0][..., None].expand(value.shape)
    if value.op in ("expand", "view", "_unsafe_view", "reshape"):
        return own[0].expand(value.shape) if value.op == "expand" else own[0].reshape(value.shape)
    if value.op == "constant_pad_nd":
        return torch.constant_pad_nd(args[0], args[1], NONE)
    if value.op in _PLACED:
        return _picked(function, args, kwargs, value)
    if torch.Tag.pointwise in function.tags:  # type: ignore[attr-defined]
        whole = [one for one in (*args, *kwargs.values()) if isinstance(one, Tensor)]
        return _together(torch.broadcast_tensors(*whole))
    if value.op in PRODUCTS and len(args) >= PRODUCTS[value.op] + 2:
        return _product(value, args)
    if value.op == "convolution":
        wide = any(extent > 1 for extent in args[1].shape[2:])
        axes = range(1, own[0].dim()) if wide else (1,)
        return _reduced(own[0], axes).expand(value.shape)
    if value.op in _SPREAD:
        return _reduced(own[0], range(1, own[0].dim())).expand(value.shape)
    if value.op in _TAKING and (numbers := _constants(flow, value)):
        # Which tokens are taken is known, as of a permutation.
        args, kwargs = tree_map(
            lambda one: numbers.get(one.number, label(one)) if isinstance(one, Ref) else one,
            value.function[1:],
            is_leaf=lambda one: isinstance(one, Ref),
        )
        return _picked(function, args, kwargs, value)
    if value.op in _PUTTING or (value.op in _CHOOSING and value.op != "gather"):
        return None
    found = _along(function, args, kwargs, own[0], value.shape)
    return None if value.op == "gather" and found is not None and bool((found == SEVERAL).any()) else found


def _constants(flow: Flow, value: Value) -> dict[int, Tensor]:
    """Return the whole numbers among what an operation takes; nothing if those of one are not known."""
    whole = {one: replayed(flow, one, {}) for one in value.inputs if flow.values[one].dtype == "torch.int64"}
    return {one: numbers for one, numbers in whole.items() if numbers is not None} if None not in whole.values() else {}


def _picked(function: Callable[..., Any], args: Any, kwargs: Any, value: Value) -> Tensor:
    """Do to the labels what was done to the entries."""
    result = function(*args, **{key: one for key, one in kwargs.items() if key not in ("dtype", "device")})
    found: Tensor = result[value.output] if isinstance(result, tuple | list) else result
    return found


def _product(value: Value, args: Sequence[Any]) -> Tensor:
    first = PRODUCTS[value.op]
    one, two = args[first : first + 2]
    if value.op == "linear":
        two = two.mT
    found = [_reduced(one, (one.dim() - 1,)), _reduced(two, (two.dim() - 2,))]
    bias = [args[0]] if first else [one for one in args[2:] if isinstance(one, Tensor)]
    return _together(torch.broadcast_tensors(*found, *bias)).expand(value.shape)


def _along(
    function: Callable[..., Any], args: Any, kwargs: Any, taken: Tensor, shape: tuple[int, ...]
) -> Tensor | None:
    """Return the labels after an operation along some axes, such as a mean, a softmax or a Fourier transform."""
    known = function._schema.arguments  # type: ignore[attr-defined]
    names = [argument.name for argument in known]
    usual = {argument.name: argument.default_value for argument in known if argument.has_default_value()}
    given = {**usual, **dict(zip(names, args, strict=False)), **kwargs}
    name = next((one for one in _ALONG if one in names), None)
    if name is None:
        return None
    axes: Any = given.get(name)
    if name == "normalized_shape":
        axes = range(-len(axes), 0)
    numbers = range(taken.dim()) if axes is None or axes == [] else [axes] if isinstance(axes, int) else list(axes)
    numbers = sorted({number % taken.dim() for number in numbers})
    found = _reduced(taken, numbers)
    if len(shape) < taken.dim():
        return found.reshape(shape) if found.numel() == _size(shape) else None
    return found.expand(shape)


def _reduced(labels: Tensor, axes: Sequence[int]) -> Tensor:
    """Return the labels of what entries along axes have together; the axes stay, of extent 1."""
    axes = list(axes)
    (own,) = _narrowed([labels])
    high = own.amax(axes, keepdim=True)
    low = own.masked_fill(own == NONE, torch.iinfo(torch.int64).max).amin(axes, keepdim=True)
    found = torch.where((high == low) | (high == NONE) & (low > high), high, SEVERAL)
    return found.expand([1 if axis in axes else extent for axis, extent in enumerate(labels.shape)])


def _together(labels: Sequence[Tensor]) -> Tensor:
    return _reduced(torch.stack(_narrowed(labels)), (0,))[0].expand(labels[0].shape)


def _narrowed(labels: Sequence[Tensor]) -> list[Tensor]:
    """Return tensors of one shape without the repetitions that all of them have along an axis, as most have."""
    repeated = [all(one.stride(axis) == 0 for one in labels) for axis in range(labels[0].dim())]
    picked = tuple(slice(0, 1) if each else slice(None) for each in repeated)
    return [one[picked] for one in labels]


def _size(shape: Sequence[int]) -> int:
    size = 1
    for extent in shape:
        size *= extent
    return size
