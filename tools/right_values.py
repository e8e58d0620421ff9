"""Whether normlab and other tools get the right value where instrumentation goes wrong.

    others/bin/python tools/right_values.py                 # in the environment that tools/bench_others.py describes

A case is a model with a module f; the value is the root mean square of what f gives, once for each call that the model
makes, and the right one is computed without hooks. TransformerLens sees what passes a hook point, so that one is put
after f by hand, as its documentation does.
"""

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import normlab as nl


class InPlaceSum(nn.Module):
    """What f gives is changed in place afterwards."""

    def __init__(self) -> None:
        super().__init__()
        self.f = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        """Add in place."""
        h = self.f(x)
        h += x
        return h


class Repeated(InPlaceSum):
    """f stands in a checkpointed part."""

    def forward(self, x: Tensor) -> Tensor:
        """Run f in a checkpoint."""
        return checkpoint(lambda y: self.f(y).tanh(), x, use_reentrant=False)


class Halves(nn.Module):
    """f gives float16 values of 300, whose squares overflow."""

    def __init__(self) -> None:
        super().__init__()
        self.f = nn.Linear(6, 6).half()
        with torch.no_grad():
            self.f.weight.zero_()
            self.f.bias.fill_(300.0)

    def forward(self, x: Tensor) -> Tensor:
        """Run f in half precision."""
        return self.f(x.half())


def rms_by_hooks(reduce: Callable[[Tensor], float]) -> Callable[[nn.Module, Tensor], list[float]]:
    """Return what plain hooks find: one number a firing."""

    def find(model: nn.Module, x: Tensor) -> list[float]:
        found: list[float] = []
        handle = model.get_submodule("f").register_forward_hook(lambda m, args, out: found.append(reduce(out)))
        model(x).float().sum().backward()
        handle.remove()
        return found

    return find


def rms_by_normlab(model: nn.Module, x: Tensor) -> list[float]:
    """Return what normlab finds: one number a row."""
    with nl.record(model) as recorder:
        model(x).float().sum().backward()
    table = recorder.table()
    return table[(table["name"] == "f") & (table["quantity"] == "rms")]["value"].tolist()


def rms_by_unit_scaling(model: nn.Module, x: Tensor) -> list[float]:
    """Return what ``track_scales`` finds for the linear map, from its mean and standard deviation."""
    from unit_scaling.transforms import track_scales

    tracked: Any = track_scales(model)
    tracked(x).float().sum().backward()
    nodes = [node for node in tracked.scales_graph().nodes if node.op != "placeholder" and "linear" in str(node.target)]
    metrics = [node.meta["metrics"].fwd for node in nodes if "metrics" in node.meta]
    return [((m.numel - 1) / m.numel * m.std**2 + m.abs_mean**2) ** 0.5 for m in metrics]


def rms_by_torchlens(model: nn.Module, x: Tensor) -> list[float]:
    """Return what torchlens finds for the linear map, reduced as its documentation does: in the tensor's dtype."""
    import torchlens as lens

    out, found = lens.record(
        model, x, save=lambda _: True, return_output=True, save_raw_activations=False,
        activation_transform=lambda t: t.detach().square().mean().sqrt().reshape(1),
    )  # fmt: skip
    out.float().sum().backward()
    records = [record for record in found.records if "linear" in record.ctx.label]
    return [float(record.transformed_ram_payload) for record in records]


def rms_by_transformer_lens(model: nn.Module, x: Tensor) -> list[float]:
    """Return what TransformerLens caches at a hook point after f, reduced in the tensor's dtype."""
    from transformer_lens import HookedRootModule
    from transformer_lens.hook_points import HookPoint

    class Rooted(HookedRootModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = model
            model.f = nn.Sequential(model.f, HookPoint())
            self.setup()

        def forward(self, x: Tensor) -> Tensor:
            return self.model(x).float().sum()

    _, found = Rooted().run_with_cache(x, incl_bwd=True)
    cached = [tensor for name, tensor in found.items() if not name.endswith("_grad")]
    return [float(tensor.square().mean().sqrt()) for tensor in cached]


FINDERS: dict[str, Callable[[nn.Module, Tensor], list[float]]] = {
    "plain hooks": rms_by_hooks(lambda x: float(x.detach().square().mean().sqrt())),
    "normlab": rms_by_normlab,
    "unit-scaling": rms_by_unit_scaling,
    "torchlens": rms_by_torchlens,
    "TransformerLens": rms_by_transformer_lens,
}


def main() -> None:
    """Print for each case and tool what it finds."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    x = torch.randn(4, 5, 6, generator=torch.Generator().manual_seed(0))
    cases: dict[str, tuple[Callable[[], nn.Module], bool]] = {
        "changed in place later": (InPlaceSum, False), "checkpointed": (Repeated, False),
        "float16 values of 300": (Halves, False), "compiled before": (InPlaceSum, True),
    }  # fmt: skip
    for case, (build, compiled) in cases.items():
        torch.manual_seed(0)
        model = build()
        with torch.no_grad():
            right = float(model.get_submodule("f")(x.to(model.f.weight.dtype)).double().square().mean().sqrt())
        print(f"{case}: right {right:.4f}, once")
        for tool, find in FINDERS.items():
            torch.compiler.reset()
            torch.manual_seed(0)
            model = build()
            if compiled:
                model.compile(backend="eager")
                model(x)
            try:
                found = find(model, x)
            except Exception as error:
                print(f"  {tool}: {type(error).__name__}: {str(error).splitlines()[0][:110]}")
                continue
            good = len(found) == 1 and abs(found[0] - right) <= 1e-5 * right
            print(f"  {tool}: {', '.join(f'{one:.4f}' for one in found) or 'nothing'}{'' if good else '  WRONG'}")


if __name__ == "__main__":
    main()
