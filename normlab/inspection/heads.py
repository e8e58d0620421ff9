"""To which sub-layer the attention logits of a running model belong."""

import os.path
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import Tensor, nn

from normlab.inspection.attention import HeadLogits, fits, head_logits, softmaxes
from normlab.recording import Address, SitePlan

#: Parameters of an attention sub-layer that do not stand inside its attention module.
_OUTSIDE = ("norm_gain", "norm_bias", "branch_scale")


class Heads:
    """Collects the logits of each head of each attention sub-layer while a model runs.

    Args:
        model: the model.
        plan: its sites; the sub-layers are those whose parameters it names, and those that share them.
        tokens: numbers of sequences and tokens.

    Attributes:
        found: the logits of the heads of each sub-layer that was seen, in the order in which they ran.
        expected: the attention sub-layers, in order.
    """

    def __init__(self, model: nn.Module, plan: SitePlan, tokens: tuple[int, int]) -> None:
        self.found: dict[Address, list[HeadLogits]] = {}
        self._model, (self._batch, self._length) = model, tokens
        self._owned = _owners(plan)
        owned = {address for each in self._owned.values() for own in each.values() for address in own}
        # What shares the matrices of another sub-layer, and shows at no module inside that one's.
        others = dict.fromkeys(one.address._replace(site="") for one in plan.absent if one.address.site == "logits")
        self.expected = [*(address for address in _attention(plan) if address in owned)]
        self.expected += [address for address in others if address not in owned]
        self._running: list[str] = []
        self._calls: dict[str, int] = defaultdict(int)
        self._seen: dict[str, int] = {}

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch the model run."""
        with ExitStack() as stack:
            for path in self._owned:
                module = self._model.get_submodule(path)
                stack.callback(module.register_forward_pre_hook(self._starts(path)).remove)
                stack.callback(module.register_forward_hook(self._ends).remove)
            stack.enter_context(softmaxes(self._take))
            yield

    def _starts(self, path: str) -> Any:
        def starts(module: nn.Module, args: Any) -> None:
            self._running.append(path)
            self._calls[path] += 1
            self._seen[path] = 0

        return starts

    def _ends(self, module: nn.Module, args: Any, result: Any) -> None:
        self._running.pop()

    def _take(self, x: Tensor) -> None:
        if not self._running or not fits(x, self._batch, self._length):
            return
        path = self._running[-1]
        number = self._seen[path]
        self._seen[path] += 1
        own = self._owned[path].get(self._calls[path] - 1, [])
        if number < len(own):
            self.found.setdefault(own[number], head_logits(x, self._batch))


def _attention(plan: SitePlan) -> Iterator[Address]:
    """Yield the attention sub-layers in the order of the plan, those last that it observes nowhere."""
    places = [one.address for one in plan.observed] + [one.address for one in plan.parameters]
    yield from dict.fromkeys(at._replace(site="") for at in places if at.sublayer in ("attn", "cross"))


def _owners(plan: SitePlan) -> dict[str, Mapping[int, list[Address]]]:
    """Return for each module that holds all matrices of attention sub-layers which they are, by its call."""
    names: dict[Address, list[str]] = defaultdict(list)
    for parameter in plan.parameters:
        if parameter.address.sublayer in ("attn", "cross") and parameter.role not in _OUTSIDE:
            names[parameter.address].append(parameter.name)
    owned: dict[str, dict[int, list[Address]]] = defaultdict(lambda: defaultdict(list))
    for address, each in names.items():
        owned[_common(each)][0].append(address)
    # A block that takes its turn with another one's matrices shows at the same modules, in a later call.
    for observed in plan.observed:
        address, port = observed.address._replace(site=""), observed.port
        if address.sublayer not in ("attn", "cross") or address in names or not port.call:
            continue
        for path, own in owned.items():
            inside = port.module == path or port.module.startswith(f"{path}.")
            if inside and address not in own[port.call]:
                own[port.call].append(address)
    return {path: dict(own) for path, own in owned.items()}


def _common(names: list[str]) -> str:
    """Return the innermost module that holds all parameters."""
    modules = [name.split(".")[:-1] for name in names]
    # A lone matrix still belongs to a module around it, in which the softmax is taken.
    prefix = os.path.commonprefix([path[:-1] for path in modules])
    return ".".join(prefix)
