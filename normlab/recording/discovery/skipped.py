"""Blocks that did not run in the traced pass although others of their kind did, as where layers are dropped."""

from collections.abc import Iterator, Sequence

from torch import nn

from normlab.recording.discovery.graph import Flow


def skipped_blocks(flow: Flow, model: nn.Module, norms: Sequence[str]) -> Iterator[str]:
    """Yield the paths of list entries that did not run, hold norms, and are of a class of which another entry ran.

    Args:
        flow: what the traced pass did.
        model: the model.
        norms: the paths of the norms that ran.
    """
    paths = {id(module): path for path, module in model.named_modules()}
    kinds = {type(module) for path, module in model.named_modules() if path in norms}
    for parent in model.modules():
        if not isinstance(parent, nn.ModuleList):
            continue
        ran = {type(child) for child in parent if paths[id(child)] in flow.calls}
        for child in dict.fromkeys(parent):
            own = {type(module) for module in child.modules()}
            if paths[id(child)] not in flow.calls and type(child) in ran and own & kinds:
                yield paths[id(child)]
