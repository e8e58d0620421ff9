"""The parts of a model by name: a norm, a sub-layer, a block, several blocks, all of it."""

from collections.abc import Iterator
from functools import cached_property
from typing import Any, Final, cast

import torch
from torch import Tensor, nn

from normlab.errors import suggest
from normlab.jacobian.evaluating import JacobianError, NonFiniteJacobian, UnknownPart, prepared
from normlab.jacobian.naming import part_named
from normlab.jacobian.norm_paths import found_final_norm, found_norms, zoo_final_norm, zoo_norms
from normlab.jacobian.part import ModulePart, Part, Span, TokenPart
from normlab.jacobian.taps import call, inputs_of, run
from normlab.models import Transformer
from normlab.recording import Architecture, Observed, Port, SitePlan, discover
from normlab.recording.compiled import uncompiled
from normlab.recording.zoo import zoo_plan

#: (layer, sub-layer, site) of a tensor.
Place = tuple[int, str, str]
#: Modules that are named where one was asked for that is not there.
_LISTED: Final = 12


class Parts:
    """The parts of a model on one batch, as functions whose Jacobians can be taken.

    ::

        parts = nl.jacobian.parts(model, batch)
        block = parts.block(3)
        nl.jacobian.spectrum(block, block.point, k=20)

    A model of the zoo says where its tensors are; in any other they are found by :func:`normlab.discover`. The
    model is copied to float64 as it is now, so it is not changed, and no recorder takes note.

    Args:
        model: any module with a residual stream.
        batch: a tensor, a tuple of positional arguments or a dictionary of keyword arguments.
        stack: ``decoder`` or ``encoder``; the last one unless given.
        sites: a site plan of your own, as for :func:`normlab.record`.

    Raises:
        JacobianError: no residual stream was found, the model has no such stack, or it does not run on the batch.
    """

    def __init__(self, model: nn.Module, batch: Any, *, stack: str = "", sites: SitePlan | None = None) -> None:
        if not isinstance(model, nn.Module):
            raise JacobianError(f"the model is a {type(model).__name__}: give a torch module")
        model, self.inputs = uncompiled(model), inputs_of(batch)
        self.model = cast(nn.Module, prepared(model))
        plan = sites or (zoo_plan(model) if isinstance(model, Transformer) else self.architecture.plan)
        stacks = list(dict.fromkeys(one.address.stack for one in plan.observed if one.address.site == "stream"))
        if not stacks:
            raise JacobianError(f"no residual stream was found in {type(model).__name__}: {self.architecture.reason}")
        if stack and stack not in stacks:
            raise UnknownPart(
                f"the model has no stack {stack!r}: its stacks are {', '.join(stacks)}{suggest(stack, stacks)}"
            )
        self.stack = stack or stacks[-1]
        self._sites = {place: one for place, one in _sites(plan, self.stack)}
        self._absent = {
            (part.address.layer or 0, part.address.sublayer, part.address.site): part.reason
            for part in plan.absent
            if part.address.stack == self.stack
        }

    @cached_property
    def architecture(self) -> Architecture:
        """What discovery found."""
        with torch.no_grad():
            call(self.model, self.inputs)  # what the model does not take is refused before anything else
        return discover(self.model, self.inputs[1] if self.inputs[1] else self.inputs[0])

    @property
    def depth(self) -> int:
        """The number of blocks."""
        return max(layer for layer, _, _ in self._sites)

    @property
    def entries(self) -> int:
        """The number of entries of the stream: tokens of the batch times features."""
        return self._values[self.site(self.stream(0)).port].numel()

    def sublayers(self, layer: int) -> tuple[str, ...]:
        """Return the names of the sub-layers of a block after which the stream can be read, in order."""
        return tuple(name for at, name, site in self._sites if at == layer and site == "stream")

    def block(self, layer: int) -> Part:
        """Return block ``layer``, from 1: the stream before it to the stream after it."""
        return self.blocks(layer, layer)

    def blocks(self, first: int, last: int) -> Part:
        """Return the blocks from ``first`` to ``last``, both included.

        Raises:
            JacobianError: there are no such blocks.
        """
        self._check(first, last)
        name = f"block {first}" if first == last else f"blocks {first}-{last}"
        return self.span(self.stream(first - 1), self.stream(last), name)

    def _check(self, first: int, last: int) -> None:
        if not 1 <= first <= last <= self.depth:
            asked = f"block {first} was" if first == last else f"blocks {first} to {last} were"
            raise UnknownPart(f"{asked} asked for: the blocks are 1 to {self.depth}")

    def sublayer(self, layer: int, sublayer: str) -> Part:
        """Return a sub-layer with its residual sum: the stream before it to the stream after it."""
        return self.span(self.before(layer, sublayer), (layer, sublayer, "stream"), f"block {layer} {sublayer}")

    def branch(self, layer: int, sublayer: str) -> Part:
        """Return F alone: what the sub-layer's first matrix sees to what its last one gives."""
        self.before(layer, sublayer)
        start, end = (layer, sublayer, "input"), (layer, sublayer, "branch")
        return self.span(start, end, f"block {layer} {sublayer} branch")

    def norm(self, layer: int, sublayer: str, position: str = "") -> Part:
        """Return a norm of a sub-layer.

        Args:
            layer: the block, from 1.
            sublayer: ``attn``, ``cross`` or ``mlp``.
            position: ``inner``, ``output`` or ``outer`` (``qk``, ``value``, ``mid`` inside it); the inner one unless
                given, or the only one.

        Raises:
            JacobianError: there is no such norm.
        """
        self._check(layer, layer)
        if isinstance(self.model, Transformer):
            norms = list(zoo_norms(self.model, self.stack, layer, sublayer))
        else:
            norms = list(found_norms(self.architecture, self.stack, layer, sublayer))
        has = list(dict.fromkeys(where for where, _ in norms))
        wanted = position or ("inner" if len(has) != 1 else has[0])
        paths = [path for where, path in norms if where == wanted]
        if not paths:
            raise UnknownPart(
                f"block {layer}, {sublayer} has no {wanted} norm: its norms are {', '.join(has) or 'none'}"
            )
        return self.module(paths[0], f"block {layer} {sublayer} {wanted} norm")

    def final_norm(self) -> Part:
        """Return the norm after the last block.

        Raises:
            JacobianError: there is none.
        """
        if isinstance(self.model, Transformer):
            path = zoo_final_norm(self.model, self.stack)
        else:
            path = found_final_norm(self.architecture, self.stack)
        if not path:
            raise UnknownPart(f"the {self.stack} has no final norm: name another part")
        return self.module(path, "final norm")

    def end_to_end(self) -> Part:
        """Return everything between what the first block receives and what the head sees."""
        final = next((place for place in self._sites if place[2] == "final"), None)
        return self.span(self.stream(0), final or self.stream(self.depth), "end to end")

    def module(self, path: str, name: str = "") -> Part:
        """Return the module at ``path`` of the model, as a function of its first argument.

        Raises:
            JacobianError: there is none, it did not run once, or its first argument is no tensor.
        """
        try:
            module = self.model.get_submodule(path)
        except AttributeError as error:
            paths = [one for one, _ in self.model.named_modules() if one]
            listed = ", ".join(paths[:_LISTED]) + (", ..." if len(paths) > _LISTED else "")
            raise UnknownPart(
                f"the model has no module {path!r}: its modules are {listed}{suggest(path, paths)}"
            ) from error
        calls: list[Any] = []
        handle = module.register_forward_pre_hook(
            lambda _, args, kwargs: calls.append((args, kwargs)), with_kwargs=True
        )
        try:
            with torch.no_grad():
                call(self.model, self.inputs)
        finally:
            handle.remove()
        if len(calls) != 1:
            raise JacobianError(f"module {path!r} ran {len(calls)} times: give one that runs once in a pass")
        if not (calls[0][0] and isinstance(calls[0][0][0], Tensor)):
            raise JacobianError(f"module {path!r} takes no tensor as its first argument: give another module")
        return self._finite(ModulePart(name or f"module {path}", module, calls[0]))

    def span(self, start: Place, end: Place, name: str = "") -> Part:
        """Return the part between two sites, each (layer, sub-layer, site); layer 0 has the sub-layer ``embed``.

        Raises:
            JacobianError: the model has no such site, or x is a tensor that other modules see as a view.
        """
        one, two = self.site(start), self.site(end)
        if not one.gradient:
            raise JacobianError(f"x = {_words(start)} cannot be replaced: modules see it in several views")
        name = name or f"{_words(start)} → {_words(end)}"
        return self._finite(Span(name, self.model, self.inputs, one.port, two.port, self._values[one.port]))

    def _finite(self, part: Part) -> Part:
        if bool(torch.isfinite(part.point).all()):
            return part
        streams = {place: self._values[one.port] for place, one in self._sites.items() if place[2] == "stream"}
        first = [_words(place) for place, value in streams.items() if not bool(torch.isfinite(value).all())]
        since = f"the first stream that is not finite is the {first[0]}" if first else "the streams are finite"
        raise NonFiniteJacobian(f"{part.name}: what it receives on this batch is not finite; {since}")

    def named(self, text: str) -> Part | TokenPart:
        """Return the part that a text names.

        ``all``; ``block 3``; ``blocks 2-5``; ``block 3 attn``; ``block 3 attn branch``; ``block 3 attn norm``, or
        ``... output norm``, ``... outer norm``; ``final norm``; ``module PATH``; and each with ``token 5`` after it
        for a token's own block, ``token 5 to 7`` for ∂y_7/∂x_5, ``token 5 sequence 1`` for another sequence.

        Raises:
            JacobianError: the text names no part.
        """
        return part_named(self, text)

    def stream(self, layer: int) -> Place:
        """Return where the stream after block ``layer`` is; 0 for what the first block receives.

        Raises:
            JacobianError: no module shows it.
        """
        if layer and not self.sublayers(layer):
            reasons = [reason for (at, _, site), reason in self._absent.items() if at == layer and site == "stream"]
            raise JacobianError(
                f"the stream after block {layer} cannot be read: {reasons[-1] if reasons else 'unknown'}"
            )
        return (layer, self.sublayers(layer)[-1] if layer else "embed", "stream")

    def before(self, layer: int, sublayer: str) -> Place:
        """Return where the stream before a sub-layer is."""
        self._check(layer, layer)
        names = self.sublayers(layer)
        if sublayer not in names:
            has = ", ".join(names) or "none"
            raise UnknownPart(f"block {layer} has no sub-layer {sublayer!r} with a stream after it: it has {has}")
        place = names.index(sublayer)
        return (layer, names[place - 1], "stream") if place else self.stream(layer - 1)

    def site(self, place: Place) -> Observed:
        """Return where a site is observed.

        Raises:
            JacobianError: the model has no such site.
        """
        if place not in self._sites:
            reason = self._absent.get(place, "there is none")
            raise JacobianError(f"{_words(place)} cannot be read: {reason}")
        return self._sites[place]

    def has(self, place: Place) -> bool:
        """Whether the model has a site."""
        return place in self._sites

    @cached_property
    def _values(self) -> dict[Port, Tensor]:
        ports = list(dict.fromkeys(one.port for one in self._sites.values()))
        with torch.no_grad():
            return run(self.model, self.inputs, reads=ports)


def parts(model: nn.Module, batch: Any, *, stack: str = "", sites: SitePlan | None = None) -> Parts:
    """Return the parts of ``model`` on ``batch``; see :class:`Parts`.

    Raises:
        JacobianError: no residual stream was found, or the model has no such stack.
    """
    return Parts(model, batch, stack=stack, sites=sites)


def _sites(plan: SitePlan, stack: str) -> Iterator[tuple[Place, Observed]]:
    for one in plan.observed:
        if one.address.stack == stack and one.address.head is None and not one.heads:
            yield (one.address.layer or 0, one.address.sublayer, one.address.site), one


def _words(place: Place) -> str:
    layer, sublayer, site = place
    return f"{site} of layer {layer}, {sublayer}"
