"""The site plan of the zoo's models, read off their module tree."""

from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from torch import nn

from normlab.models import Attention, Defer, Stack, SubLayer, Transformer, TwoStreamStack, TwoStreamSubLayer
from normlab.models.attention import SoftmaxCore
from normlab.recording.plan import Absent, Address, Observed, Parameter, Port, Residual, Scores, SitePlan
from normlab.where import StackName

_Part: TypeAlias = Observed | Residual | Scores | Absent
_At: TypeAlias = Callable[[str], Address]

_MATRICES: Final = ("q", "k", "v", "o", "up", "gate", "down")
_ROLES: Final = {"token": "embed", "gain": "norm_gain", "bias": "norm_bias", "scale": "branch_scale"}


def zoo_plan(model: Transformer) -> SitePlan:
    """Return the site plan of a model that :func:`normlab.build` made."""
    parts: list[_Part] = []
    for name in model.spec.stacks:
        parts += _stack_sites(name, model.stack(name))
        for path, sublayer in model.sublayers(name):
            parts += _sublayer_sites(path, sublayer)
    return SitePlan(
        observed=tuple(part for part in parts if isinstance(part, Observed)),
        residuals=tuple(part for part in parts if isinstance(part, Residual)),
        scores=tuple(part for part in parts if isinstance(part, Scores)),
        absent=tuple(part for part in parts if isinstance(part, Absent)),
        parameters=tuple(_parameters(model)),
        loss=Port("criterion"),
        once=True,
        in_place=False,
    )


def _stack_sites(name: StackName, stack: Stack) -> Iterator[_Part]:
    path, depth = f"stacks.{name}", len(stack.blocks)
    yield Observed(Address(name, 0, "embed", "stream"), Port(f"{path}.embedding"))
    if isinstance(stack, TwoStreamStack):
        yield Observed(Address(name, 0, "embed", "stream2"), Port(f"{path}.blocks.0", "input", (1,)))
        yield Observed(Address(name, depth, "final", "final"), Port(f"{path}.merge"))
    elif stack.final_norm is not None:
        yield Observed(Address(name, depth, "final", "final"), Port(f"{path}.final_norm"))


def _sublayer_sites(path: str, module: SubLayer) -> Iterator[_Part]:
    where = module.where

    def at(site: str) -> Address:
        return Address(where.stack, where.layer, where.sublayer, site)

    yield Observed(at("input"), Port(f"{path}.mixer", "input", (0,)))
    yield Observed(at("branch"), Port(f"{path}.mixer"))
    if where.sublayer == "cross":
        yield Observed(at("memory"), Port(f"{path}.mixer", "input", (1,)))
    if isinstance(module, TwoStreamSubLayer):
        yield Observed(at("stream2"), Port(f"{path}.second_add"))
    if isinstance(module.mixer, Attention):
        yield from _attention_sites(f"{path}.mixer.core", at, module.mixer)
    total = Port(f"{path}.add") if module.add is not None else Port(path)
    if module.outer_norm is not None:
        yield Observed(at("stream"), Port(f"{path}.outer_norm"))
        if module.add is not None:
            yield Observed(at("sum"), total)
    elif not isinstance(module.add, Defer):
        yield Observed(at("stream"), total)
    yield from _residual_sites(path, at, module, total)


def _residual_sites(path: str, at: _At, module: SubLayer, total: Port) -> Iterator[_Part]:
    if module.add is None:
        yield from (Absent(at(site), "no residual sum") for site in ("skip", "update"))
        return
    skip, update = (Port(f"{path}.add", "input", (index,)) for index in (0, 1))
    yield Observed(at("skip"), skip)
    yield Observed(at("update"), update)
    if isinstance(module.add, Defer):
        yield Absent(at("stream"), "parallel")
        yield Residual(at("update"), skip, update, None)
    else:
        yield Residual(at("update"), skip, update, total)


def _attention_sites(path: str, at: _At, attention: Attention) -> Iterator[_Part]:
    ports = [Port(path, "input", (index,)) for index in range(3)]
    if isinstance(attention.core, SoftmaxCore):
        for site, port in zip(("query", "key", "value"), ports, strict=True):
            yield Observed(at(site), port, heads=True)
        yield Scores(at("logits"), ports[0], ports[1], causal=attention.core.causal)
    else:
        yield Observed(at("value"), ports[0], heads=True)
        yield from (Absent(at(site), "uniform attention") for site in ("query", "key", "logits"))


def _parameters(model: Transformer) -> Iterator[Parameter]:
    last = list(model.spec.stacks)[-1]
    for name in model.spec.stacks:
        stack, path, depth = model.stack(name), f"stacks.{name}", len(model.stack(name).blocks)
        tied = model.head.weight is stack.embedding.token
        yield from _named(f"{path}.embedding", Address(name, 0, "embed"), stack.embedding, tied=tied)
        for where, sublayer in model.sublayers(name):
            yield from _named(where, Address(name, sublayer.where.layer, sublayer.where.sublayer), sublayer)
        if stack.final_norm is not None:
            yield from _named(f"{path}.final_norm", Address(name, depth, "final"), stack.final_norm)
        if name == last and not tied:
            yield from _named("head", Address(name, depth, "head"), model.head)


def _named(path: str, address: Address, module: nn.Module, *, tied: bool = False) -> Iterator[Parameter]:
    for name, _ in module.named_parameters():
        role = _role(f"{path}.{name}")
        yield Parameter(f"{path}.{name}", address, "embed+head" if tied and role == "embed" else role)


def _role(name: str) -> str:
    """Return the role of a parameter of the zoo: a matrix has its module's name, the rest its own."""
    *_, owner, last = name.split(".")
    if last == "weight":
        return owner
    if last == "bias" and owner in _MATRICES:
        return f"{owner}_bias"
    return _ROLES.get(last, last)
