"""The site plan of the zoo's models, read off their module tree."""

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

from normlab.errors import RecordingError
from normlab.models import Attention, Defer, SubLayer, Transformer, TwoStreamStack, TwoStreamSubLayer
from normlab.models.attention import SoftmaxCore
from normlab.recording.compiled import plain, uncompiled
from normlab.recording.plan import Absent, Address, Observed, Parameter, Port, Residual, Scores, SitePlan
from normlab.recording.tree import Tree
from normlab.where import StackName

_Part: TypeAlias = Observed | Residual | Scores | Absent
_At: TypeAlias = Callable[[str], Address]

_MATRICES: Final = ("q", "k", "v", "o", "up", "gate", "down")
_ROLES: Final = {"token": "embed", "bias": "norm_bias", "scale": "branch_scale"}
#: What the norms of others call their parameters.
_OF_NORMS: Final = {
    **dict.fromkeys(("gain", "scale", "weight", "gamma", "g"), "norm_gain"),
    **dict.fromkeys(("bias", "beta", "b"), "norm_bias"),
}


class _SubLayer(NamedTuple):
    """What the sites of a sub-layer follow from; ``causal`` is None without attention logits."""

    path: str
    stack: StackName
    layer: int
    sublayer: str
    two_streams: bool
    attends: bool
    causal: bool | None
    sums: bool
    defers: bool
    outer_norm: bool


class _Stack(NamedTuple):
    """What the sites of a stack follow from."""

    name: StackName
    depth: int
    two_streams: bool
    final_norm: bool
    sublayers: tuple[_SubLayer, ...]


def zoo_plan(model: Transformer, tree: Tree | None = None) -> SitePlan:
    """Return the site plan of a model that :func:`normlab.build` made; the same object for models of one form.

    Args:
        model: the model.
        tree: its modules and parameters as they are now, where somebody has them already.

    Raises:
        RecordingError: a block stands in several places.
    """
    parameters = (tree or Tree.of(model)).numbered()
    stacks = tuple(_stack(model, name) for name in model.spec.stacks)
    return _plan(stacks, tuple(map(plain, parameters)), tuple(parameters.values()))


def _stack(model: Transformer, name: StackName) -> _Stack:
    stack = uncompiled(model.stack(name))
    if len({id(block) for block in stack.blocks}) < len(stack.blocks):
        raise RecordingError(
            f"two blocks of the {name} are one and the same, while each block of the zoo has a layer of its own: "
            "give sites=normlab.discover(model, tokens).plan, which tells its calls apart"
        )
    two_streams, final_norm = isinstance(stack, TwoStreamStack), stack.final_norm is not None
    sublayers = tuple(_sublayer(path, uncompiled(module)) for path, module in model.sublayers(name))
    return _Stack(name, len(stack.blocks), two_streams, final_norm, sublayers)


def _sublayer(path: str, module: SubLayer) -> _SubLayer:
    # Several times as fast as attributes, which modules look for in many places.
    where = module.where
    parts = {name: part if part is None else uncompiled(part) for name, part in module._modules.items()}
    add, mixer = parts.get("add"), parts["mixer"]
    core = uncompiled(mixer.core) if isinstance(mixer, Attention) else None
    return _SubLayer(
        path,
        where.stack,
        where.layer,
        where.sublayer,
        two_streams=isinstance(module, TwoStreamSubLayer),
        attends=core is not None,
        causal=core.causal if isinstance(core, SoftmaxCore) else None,
        sums=add is not None,
        defers=isinstance(add, Defer),
        outer_norm=parts.get("outer_norm") is not None,
    )


# It knows nothing of a model but its form, so that what it remembers is always right.
@lru_cache(maxsize=4)
def _plan(stacks: tuple[_Stack, ...], names: tuple[str, ...], numbers: tuple[int, ...]) -> SitePlan:
    parts = [part for stack in stacks for part in _sites(stack)]
    return SitePlan(
        observed=tuple(part for part in parts if isinstance(part, Observed)),
        residuals=tuple(part for part in parts if isinstance(part, Residual)),
        scores=tuple(part for part in parts if isinstance(part, Scores)),
        absent=tuple(part for part in parts if isinstance(part, Absent)),
        parameters=tuple(_parameters(stacks, dict(zip(names, numbers, strict=True)))),
        loss=Port("criterion"),
        once=True,
        in_place=False,
    )


def _sites(stack: _Stack) -> Iterator[_Part]:
    name, path = stack.name, f"stacks.{stack.name}"
    yield Observed(Address(name, 0, "embed", "stream"), Port(f"{path}.embedding"))
    if stack.two_streams:
        yield Observed(Address(name, 0, "embed", "stream2"), Port(f"{path}.blocks.0", "input", (1,)))
        yield Observed(Address(name, stack.depth, "final", "final"), Port(f"{path}.merge"))
    elif stack.final_norm:
        yield Observed(Address(name, stack.depth, "final", "final"), Port(f"{path}.final_norm"))
    for sublayer in stack.sublayers:
        yield from _sublayer_sites(sublayer)


def _sublayer_sites(of: _SubLayer) -> Iterator[_Part]:
    def at(site: str) -> Address:
        return Address(of.stack, of.layer, of.sublayer, site)

    path = of.path
    yield Observed(at("input"), Port(f"{path}.mixer", "input", (0,)))
    yield Observed(at("branch"), Port(f"{path}.mixer"))
    if of.sublayer == "cross":
        yield Observed(at("memory"), Port(f"{path}.mixer", "input", (1,)))
    if of.two_streams:
        yield Observed(at("stream2"), Port(f"{path}.second_add"))
    if of.attends:
        yield from _attention_sites(f"{path}.mixer.core", at, of.causal)
    total = Port(f"{path}.add") if of.sums else Port(path)
    if of.outer_norm:
        yield Observed(at("stream"), Port(f"{path}.outer_norm"))
        if of.sums:
            yield Observed(at("sum"), total)
    elif not of.defers:
        yield Observed(at("stream"), total)
    yield from _residual_sites(of, at, total)


def _residual_sites(of: _SubLayer, at: _At, total: Port) -> Iterator[_Part]:
    if not of.sums:
        yield from (Absent(at(site), "no residual sum") for site in ("skip", "update"))
        return
    skip, update = (Port(f"{of.path}.add", "input", (index,)) for index in (0, 1))
    yield Observed(at("skip"), skip)
    yield Observed(at("update"), update)
    if of.defers:
        yield Absent(at("stream"), "parallel")
        yield Residual(at("update"), skip, update, None)
    else:
        yield Residual(at("update"), skip, update, total)


def _attention_sites(path: str, at: _At, causal: bool | None) -> Iterator[_Part]:
    ports = [Port(path, "input", (index,)) for index in range(3)]
    if causal is not None:
        for site, port in zip(("query", "key", "value"), ports, strict=True):
            yield Observed(at(site), port, heads=True)
        yield Scores(at("logits"), ports[0], ports[1], causal=causal)
    else:
        yield Observed(at("value"), ports[0], heads=True)
        yield from (Absent(at(site), "uniform attention") for site in ("query", "key", "logits"))


def _parameters(stacks: tuple[_Stack, ...], numbers: Mapping[str, int]) -> Iterator[Parameter]:
    owned = _by_owner(stacks, numbers)
    for stack in stacks:
        path, depth = f"stacks.{stack.name}", stack.depth
        tied = numbers.get("head.weight", -1) == numbers.get(f"{path}.embedding.token")
        for name in owned[f"{path}.embedding"]:
            role = _role(name)
            yield Parameter(name, Address(stack.name, 0, "embed"), "embed+head" if tied and role == "embed" else role)
        for of in stack.sublayers:
            yield from _named(owned[of.path], Address(stack.name, of.layer, of.sublayer))
        yield from _named(owned[f"{path}.final_norm"], Address(stack.name, depth, "final"))
        if stack is stacks[-1] and not tied:
            yield from _named(owned["head"], Address(stack.name, depth, "head"))


def _by_owner(stacks: tuple[_Stack, ...], numbers: Mapping[str, int]) -> dict[str, list[str]]:
    """Return the names of the parameters of each sub-layer and what stands beside them, each parameter once there."""
    owned: dict[str, dict[int, str]] = {"head": {}}
    for stack in stacks:
        owned |= {f"stacks.{stack.name}.{part}": {} for part in ("embedding", "final_norm")}
        owned |= {sublayer.path: {} for sublayer in stack.sublayers}
    for name, number in numbers.items():
        path = name
        while path and path not in owned:
            path = path.rpartition(".")[0]
        if path:
            owned[path].setdefault(number, name)
    return {path: list(names.values()) for path, names in owned.items()}


def _named(names: list[str], address: Address) -> Iterator[Parameter]:
    for name in names:
        yield Parameter(name, address, _role(name))


def _role(name: str) -> str:
    """Return the role of a parameter of the zoo: a matrix has its module's name, the rest its own.

    What stands in a norm is of the norm, whatever it is called.
    """
    *places, owner, last = name.split(".")
    if any(place.endswith("norm") for place in (*places, owner)):
        return _OF_NORMS.get(last, last)
    if last == "weight":
        return owner
    if last == "bias" and owner in _MATRICES:
        return f"{owner}_bias"
    return _ROLES.get(last, last)
