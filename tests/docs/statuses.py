"""Recordings that leave each status that docs/recording.md lists, and the statuses that they leave."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

import normlab as nl
from normlab.placements import PLACEMENTS, Placement, Wiring, register_placement
from normlab.recording import Address, Observed, Parameter, Port, Residual, SitePlan

X = torch.randn(2, 3, 8, generator=torch.Generator().manual_seed(0))


class Does(nn.Module):
    """Two linear maps, a norm, and whatever a function makes of them."""

    def __init__(self, run: Callable[[Any, Any], Any], **parts: nn.Module) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.run = run
        self.f, self.g, self.norm, self.out = nn.Linear(8, 8), nn.Linear(8, 8), nn.LayerNorm(8), nn.Identity()
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x: Any) -> Any:
        return self.run(self, x)


class Gives(nn.Module):
    def __init__(self, run: Callable[[Any], Any]) -> None:
        super().__init__()
        self.run = run

    def forward(self, x: Any) -> Any:
        return self.run(x)


def statuses(model: nn.Module, run: Any = None, **options: Any) -> set[str]:
    with nl.record(model, **options) as recorder:
        (run or backward)(model)
    return {str(one) for one in (*recorder.table()["status"], *recorder.coverage()["status"])}


def backward(model: nn.Module) -> None:
    model(X).sum().backward()


def block(run: Callable[[Any, Tensor], Tensor] = lambda m, x: m.out(x + m.f(m.norm(x)))) -> Does:
    return Does(run)


def plan(total: Port | None = Port("out")) -> SitePlan:  # noqa: B008
    at = Address("decoder", 1, "mlp")
    skip, update = Port("norm", "input", (0,)), Port("f")
    return SitePlan(
        observed=(
            Observed(at._replace(site="skip"), skip),
            Observed(at._replace(site="input"), Port("f", "input", (0,))),
            Observed(at._replace(site="update"), update),
            Observed(at._replace(site="branch"), update),
        ),
        residuals=(Residual(at._replace(site="update"), skip, update, total),),
    )


def one(port: Port) -> SitePlan:
    return SitePlan(observed=(Observed(Address("decoder", 1, "mlp", "branch"), port),))


def in_place(model: Any, x: Tensor) -> Any:
    update = model.f(model.norm(x))
    update += x
    return model.out(update)


def freed(x: Tensor) -> Tensor:
    found = x * 1
    found.untyped_storage().resize_(0)
    return found


def twice(model: nn.Module) -> None:
    loss = model(X).sum()
    loss.backward(retain_graph=True)
    loss.backward()


def without_grad(model: nn.Module) -> None:
    with torch.no_grad():
        model(X)


def half_frozen() -> nn.Module:
    model = Does(lambda m, x: m.f(x))
    model.f.bias.requires_grad_(False)
    return model


def odd(parameter: nn.Parameter) -> nn.Module:
    model = nn.Linear(8, 8)
    model.register_parameter("odd", parameter)
    return model


def view(model: Any, x: Tensor) -> Tensor:
    normed = model.norm(x) * 2.0
    return x + model.f(normed.view_as(normed)) * normed.sigmoid()


class Causal(nn.Module):
    """A model that says what it takes, as those of transformers do."""

    main_input_name = "input_ids"
    config: Any

    def __init__(self, longest: int) -> None:
        super().__init__()
        self.config, self.longest = type("Config", (), {"vocab_size": 9}), longest
        self.embed, self.norm, self.f = nn.Embedding(9, 8), nn.LayerNorm(8), nn.Linear(8, 24)

    def forward(self, input_ids: Tensor) -> Tensor:
        if input_ids.shape[1] > self.longest:
            raise ValueError("too long")
        x = self.embed(input_ids)
        q, k, v = self.f(self.norm(x)).unsqueeze(1).chunk(3, -1)
        return x + nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)[:, 0]


def tokens(model: nn.Module) -> None:
    model(torch.ones(2, 3, dtype=torch.long)).sum().backward()


def merged() -> set[str]:
    model, states = nn.Linear(8, 8), []
    for scale in (1.0, 2.0):
        with torch.no_grad():
            model.weight.mul_(scale)
        model.zero_grad()
        with nl.record(model) as recorder:
            model(scale * X).sum().backward()
        states.append(recorder.state())
    return set(nl.merge(states)["status"].astype(str))


def exchanged(parameter: bool) -> Callable[[Any], None]:
    def run(model: Any) -> None:
        backward(model)
        if parameter:
            model.f.weight = nn.Parameter(model.f.weight.detach().clone())
            backward(model)
        else:
            model.f = nn.Identity()

    return run


def zoo(sites: Any = None, **fields: Any) -> set[str]:
    model = nl.build(nl.ModelSpec(depth=1, width=16, heads=2, **fields), seed=0)
    batch = nl.data.text_batch(batch=2, tokens=8, seed=0)
    return statuses(model, lambda model: model.loss(*batch).backward(), sites=sites)


def without_skip() -> set[str]:
    wiring = Wiring(skip="none")
    register_placement(Placement(name="plain", equation="x ← F(x)", source="", wiring=wiring, final_norm=False))
    try:
        return zoo(placement="plain", attention="none")
    finally:
        del PLACEMENTS._entries["plain"]


def of_role() -> set[str]:
    roles = {"f.weight": (1, "up"), "f.bias": (1, "up_bias"), "g.weight": (2, "down")}
    parameters = tuple(Parameter(name, Address("decoder", layer, "mlp"), role) for name, (layer, role) in roles.items())
    return statuses(half_frozen(), sites=SitePlan(parameters=parameters))


def zero_update(model: Any) -> None:
    nn.init.zeros_(model.f.weight)
    nn.init.zeros_(model.f.bias)
    backward(model)


def everything() -> Iterator[set[str]]:
    """Yield the statuses of each recording."""
    yield statuses(Does(lambda m, x: m.f(x)))
    yield statuses(Does(lambda m, x: nn.functional.linear(m.out(x), m.f.weight)))
    yield statuses(nn.Linear(8, 8), without_grad)
    yield of_role()
    yield statuses(nn.Linear(8, 8), twice)
    yield statuses(nn.Linear(8, 8), lambda model: [backward(model), model(X)])
    yield statuses(nn.Linear(8, 8), lambda model: model(X[:0]).sum().backward())
    yield statuses(nn.Linear(8, 8), lambda model: model(X.where(X < 1, torch.inf)).sum().backward())
    yield statuses(nn.Linear(8, 8), lambda model: torch.func.grad(lambda x: model(x).sum())(X))
    yield statuses(nn.Linear(8, 8), lambda model: model(X[0]).sum().backward())
    yield statuses(nn.Sequential(nn.Linear(8, 8)), lambda model: model(X[0]), mask=torch.ones(2, 3, dtype=torch.bool))
    for given in (X > 0, X[0].to_sparse(), torch.zeros(2, 3, 8), (8 + 0.01 * X).bfloat16(), torch.ones(1, 66_000, 2)):
        yield statuses(nn.Identity(), lambda model, given=given: model(given))
    for size in (1e200, 1e-200):
        yield statuses(nn.Identity(), lambda model, size=size: model(size * X.double()))
    for gives in (lambda x: None, freed):
        yield statuses(Does(lambda m, x: [m.out(x), m.f(x)][1], out=Gives(gives)))
    yield statuses(odd(nn.Parameter(torch.ones(2, device="meta"), requires_grad=False)))
    yield statuses(odd(nn.Parameter(torch.ones(0))), lambda model: (model(X) + model.odd.sum()).sum().backward())
    yield merged()
    for parameter in (True, False):
        yield statuses(Does(lambda m, x: m.f(x)), exchanged(parameter))
    yield statuses(block(), sites=plan())
    yield statuses(block(), sites=plan(total=None))
    yield statuses(block(in_place), sites=plan())
    yield statuses(block(lambda m, x: m.out(x + 2 * m.f(m.norm(x)))), sites=plan())
    yield statuses(block(), lambda model: (0 * model(0 * X)).sum().backward(), sites=plan())
    yield statuses(block(), zero_update, sites=plan())
    yield statuses(Does(lambda m, x: m.out(m.f(m.norm(x))), f=nn.Linear(8, 4)), sites=plan(total=None))
    yield statuses(block(), sites=one(Port("f")))
    yield statuses(block(), sites=one(Port("f", call=1)))
    yield statuses(nn.Sequential(nn.Flatten(0, 1), nn.Linear(8, 8)), sites=one(Port("1", layout="flat")))
    seen = nn.Sequential(Does(view), Does(view))
    yield statuses(seen, sites=nl.discover(seen, X).plan)
    near = nn.Sequential(*(Does(lambda m, x: x + m.near(x), near=nn.Conv1d(3, 3, 1)) for _ in range(2)))
    yield statuses(near, sites=nl.discover(near, X).plan)
    yield statuses(Causal(9), tokens, sites=["stream", "update", "logits"])
    yield statuses(Causal(4), tokens)
    yield zoo(parallel=True)
    yield zoo(("query", "logits"), attention="uniform")
    yield without_skip()
