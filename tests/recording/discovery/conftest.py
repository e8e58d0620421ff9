from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import normlab as nl
from normlab.recording import Architecture, Port

Seen = dict[Port, Tensor]


def _at(port: Port, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    first = (kwargs if port.path and isinstance(port.path[0], str) else args) if port.side == "input" else result
    for step in port.path:
        first = first[step] if not isinstance(step, str) or isinstance(first, dict) else getattr(first, step)
    return first


def _seen(model: nn.Module, ports: set[Port], run: Callable[[], Any]) -> Seen:
    """Run the model with a plain hook a port, and return copies of what was there when its module had run."""
    found: Seen = {}
    handles = []
    for port in ports:

        def keep(module: nn.Module, args: Any, kwargs: Any, result: Any, port: Port = port) -> None:
            value = _at(port, args, kwargs, result).detach().clone()
            value = value.transpose(0, 1) if port.layout == "tokens first" else value
            found[port] = value.flatten(0, -2)

        handles.append(model.get_submodule(port.module).register_forward_hook(keep, with_kwargs=True))
    with torch.no_grad():
        run()
    for handle in handles:
        handle.remove()
    return {port: value + sum(found[other] for other in port.plus) for port, value in found.items()}


def _rebuilds(model: nn.Module, found: Architecture, run: Callable[[], Any], tolerance: float = 1e-12) -> int:
    """Check that every block is the sum of its parts, and return how many sums were checked."""
    plan = found.plan
    ports = {part.port for part in plan.observed} | {
        port for pair in plan.residuals for port in (pair.skip, pair.update, pair.total) if port is not None
    }
    seen = _seen(model, ports | {other for port in ports for other in port.plus}, run)
    at = {
        (part.address.stack, part.address.layer, part.address.sublayer, part.address.site): seen[part.port]
        for part in plan.observed
    }

    def close(one: Tensor, two: Tensor, within: float = tolerance) -> None:
        assert float((one - two).detach().abs().max()) <= within * float(two.abs().max())

    checked = 0
    for pair in plan.residuals:
        if pair.total is not None:
            close(seen[pair.skip] + seen[pair.update], seen[pair.total])
            checked += 1
    for stack in found.stacks:
        before = at.get((stack.name, 0, "embed", "stream"))
        for part in stack.sublayers:
            where = (stack.name, part.layer, part.sublayer)
            for norm in part.norms:
                module = model.get_submodule(norm.path)
                if norm.position == "inner" and before is not None and (*where, "input") in at:
                    close(module(before), at[*where, "input"])
                if norm.position == "outer" and (*where, "sum") in at:
                    close(module(at[*where, "sum"]), at[*where, "stream"])
                if norm.position == "output" and {(*where, "branch"), (*where, "update")} <= at.keys():
                    close(module(at[*where, "branch"]), at[*where, "update"])
            if part.skip == "stream" and not part.skip_scale and before is not None and (*where, "skip") in at:
                close(at[*where, "skip"], before)
            before = at.get((*where, "stream"), before if part.parallel else None)
        if stack.final_norm is not None and before is not None:
            close(model.get_submodule(stack.final_norm.path)(before), at[stack.name, stack.depth, "final", "final"])
    return checked


@pytest.fixture(scope="session")
def rebuilds() -> Callable[..., int]:
    """Check that every block is the sum of its parts, with hooks of the test's own."""
    return _rebuilds


def _squares(model: nn.Module, table: Any) -> tuple[float, float]:
    """Return the square of the whole gradient from the rows of all roles, and from the parameters."""
    rows = table[(table["quantity"] == "grad_norm") & (table["role"] != "all") & (table["site"] == "")]
    own = sum(float(p.grad.double().square().sum()) for p in model.parameters() if p.grad is not None)
    return float((rows["value"] ** 2).sum()), own


@pytest.fixture(scope="session")
def squares() -> Callable[..., tuple[float, float]]:
    return _squares


@pytest.fixture(scope="session")
def rows_equal() -> Callable[..., None]:
    """Check that two tables have the same rows but for what a spec alone knows."""

    def check(one: nl.table.pd.DataFrame, two: nl.table.pd.DataFrame) -> None:
        key = ["stack", "layer", "sublayer", "site", "quantity", "role", "head", "name", "status"]
        both = one.merge(two, on=key, how="outer", suffixes=("_1", "_2"), indicator=True)
        assert (both["_merge"] == "both").all(), both[both["_merge"] != "both"][key].head().to_string()
        close = (both["value_1"] - both["value_2"]).abs() <= 1e-12 * both["value_1"].abs()
        assert (close | both["value_1"].isna() & both["value_2"].isna()).all()

    return check
