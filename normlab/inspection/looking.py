"""One pass without gradients in which everything is looked at that needs more of a tensor than its moments."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from normlab.inspection.attention import HeadLogits
from normlab.inspection.heads import Heads
from normlab.inspection.reading import reading
from normlab.inspection.tokens import Place, Tokens, change, lost_in_bfloat16, median_share, tokens_of
from normlab.recording import Address, Port, SitePlan
from normlab.recording.tensors import dtype_name, tensors_in


@dataclass
class Peak:
    """The largest finite entry that a module took or gave.

    Attributes:
        max_abs: its absolute value.
        module: the module's path.
        side: ``takes`` or ``gives``.
        nonfinite: entries of all modules' results that are not finite.
        first: the first module that took or gave one.
        first_side: ``takes`` or ``gives``.
    """

    max_abs: float = 0.0
    module: str = ""
    side: str = ""
    nonfinite: int = 0
    first: str = ""
    first_side: str = ""


@dataclass
class Look:
    """What was seen.

    Attributes:
        streams: the stream at each of its sites, in order.
        changes: for each stack and block, how much the block changes the median token.
        updates: for each sub-layer, the median over tokens of its update's length over the skip's.
        lost: for each update the share that a sum in bfloat16 loses: over all tokens, and of the median token.
        heads: the attention logits of each sub-layer's heads.
        unseen: attention sub-layers whose logits were not seen.
        peak: the largest entry of all.
        tracks: for each massive entry its value at each site of its stream.
        dtypes: the dtype of the tensor at each site.
        broken: parameters with entries that are not finite.
        tokens: the number of tokens of the batch.
    """

    streams: dict[Address, Tokens] = field(default_factory=dict)
    changes: dict[Address, float] = field(default_factory=dict)
    updates: dict[Address, float] = field(default_factory=dict)
    lost: dict[Address, tuple[float, float]] = field(default_factory=dict)
    heads: dict[Address, list[HeadLogits]] = field(default_factory=dict)
    unseen: list[Address] = field(default_factory=list)
    peak: Peak = field(default_factory=Peak)
    tracks: dict[tuple[str, Place], dict[Address, float]] = field(default_factory=dict)
    dtypes: dict[Address, str] = field(default_factory=dict)
    broken: tuple[str, ...] = ()
    tokens: int = 0


def look(model: nn.Module, plan: SitePlan, run: Callable[[], Any], tokens: tuple[int, int]) -> Look:
    """Run a model once, and once more where it has massive entries to be followed.

    Args:
        model: the model.
        plan: its sites.
        run: runs the model on the batch.
        tokens: numbers of sequences and tokens.
    """
    found, heads = Look(tokens=tokens[0] * tokens[1]), Heads(model, plan, tokens)
    eyes = _Eyes(plan, found)
    with torch.no_grad(), heads.watching(), _peaks(model, found.peak):
        with reading(model, eyes.ports, tokens, eyes.see):
            run()
    found.broken = tuple(name for name, weight in model.named_parameters() if not bool(weight.isfinite().all()))
    found.heads = heads.found
    found.unseen = [address for address in heads.expected if address not in heads.found]
    found.streams = {address: found.streams[address] for address in eyes.order if address in found.streams}
    _follow(model, plan, run, tokens, found)
    return found


class _Eyes:
    """Reduces the tensors of streams and residual sums as they appear."""

    def __init__(self, plan: SitePlan, found: Look) -> None:
        self._found = found
        self._streams: dict[Port, list[Address]] = defaultdict(list)
        for observed in plan.observed:
            if observed.address.site == "stream":
                self._streams[observed.port].append(observed.address)
        self.order = [observed.address for observed in plan.observed if observed.address.site == "stream"]
        self._ends = {(address.stack, address.layer): address for address in self.order}
        self._pairs: dict[Port, list[tuple[Address, str]]] = defaultdict(list)
        for residual in plan.residuals:
            self._pairs[residual.skip].append((residual.address, "skip"))
            self._pairs[residual.update].append((residual.address, "update"))
        self._half: dict[Address, dict[str, Tensor]] = defaultdict(dict)
        self._before: dict[str, tuple[int, Tensor]] = {}
        self.ports = [*self._streams, *self._pairs]

    def see(self, port: Port, tensor: Tensor) -> None:
        """Take in one tensor."""
        for address in self._streams.get(port, ()):
            self._found.streams[address] = tokens_of(tensor)
            self._found.dtypes[address] = dtype_name(tensor.dtype)
            if self._ends[address.stack, address.layer] == address:
                self._end_of_block(address, tensor)
        for address, term in self._pairs.get(port, ()):
            half = self._half[address]
            half[term] = tensor.clone()
            if len(half) == 2:
                if half["skip"].shape == half["update"].shape:
                    self._found.updates[address] = median_share(half["update"], half["skip"])
                    self._found.lost[address] = lost_in_bfloat16(half["skip"], half["update"])
                    self._found.dtypes[address] = dtype_name(half["update"].dtype)
                del self._half[address]

    def _end_of_block(self, address: Address, tensor: Tensor) -> None:
        assert address.layer is not None
        number, before = self._before.get(address.stack, (None, tensor))
        if number == address.layer - 1 and before.shape == tensor.shape:
            self._found.changes[address] = change(before, tensor)
        self._before[address.stack] = address.layer, tensor.clone()


def _follow(model: nn.Module, plan: SitePlan, run: Callable[[], Any], tokens: tuple[int, int], found: Look) -> None:
    """Read every massive entry at every site of its stream."""
    places = list(dict.fromkeys((at.stack, place) for at, one in found.streams.items() for place in one.massive))
    if not places:
        return
    addresses = {o.address: o.port for o in plan.observed if o.address in found.streams}
    values: dict[tuple[str, Place], dict[Address, float]] = {key: {} for key in places}

    def see(port: Port, tensor: Tensor) -> None:
        for address in (one for one, own in addresses.items() if own == port):
            for stack, place in places:
                if stack == address.stack:
                    value = float(tensor[place.sequence, place.token, place.channel])
                    values[stack, place][address] = value

    with torch.no_grad(), reading(model, addresses.values(), tokens, see):
        run()
    found.tracks = {key: {at: own[at] for at in addresses if at in own} for key, own in values.items()}


@contextmanager
def _peaks(model: nn.Module, peak: Peak) -> Iterator[None]:
    """Keep the largest entry of everything that modules give, and of what modules with parameters take.

    What other modules take may be masks, whose large negative numbers are none of the model's.
    """

    def hook(path: str, weighty: bool) -> Any:
        def after(module: nn.Module, args: Any, result: Any) -> None:
            if weighty:
                _raise(peak, args, path, "takes")
            _raise(peak, result, path, "gives")

        return after

    named = [(path, module) for path, module in model.named_modules() if path]
    handles = [
        module.register_forward_hook(
            hook(path, not any(module.children()) and any(True for _ in module.parameters(recurse=False)))
        )
        for path, module in named
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _raise(peak: Peak, values: Any, path: str, side: str) -> None:
    for _, tensor in tensors_in(values):
        if not tensor.is_floating_point() or not tensor.numel():
            continue
        size = tensor.detach().abs()
        largest = float(size.max())
        if not largest < float("inf"):
            if _is_mask(tensor):
                continue
            finite = size.isfinite()
            peak.nonfinite += int((~finite).sum()) if side == "gives" else 0
            if not peak.first:
                peak.first, peak.first_side = path, side
            largest = float(size.where(finite, 0.0).max())
        if largest > peak.max_abs:
            peak.max_abs, peak.module, peak.side = largest, path, side


def _is_mask(tensor: Tensor) -> bool:
    """Whether a tensor holds nothing but zero and minus infinity, as masks that are added to logits do."""
    return bool(((tensor == 0) | (tensor == -torch.inf)).all())
