"""Running statistics: averages over steps, which half precision could not hold."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor, nn

_FROZEN: ContextVar[bool] = ContextVar("_FROZEN", default=False)


@contextmanager
def frozen_statistics() -> Iterator[None]:
    """Within the context, norms in train mode use a batch's statistics and keep none of them.

    For whatever evaluates a model more often than it trains it: Jacobian products (``torch.func`` refuses a
    module that changes its buffers), finite differences, a second forward pass that should equal the first.
    """
    token = _FROZEN.set(True)
    try:
        yield
    finally:
        _FROZEN.reset(token)


class RunningStatistics(nn.Module):
    """A module whose buffers stay in float32 when its parameters go to half precision.

    A step of 0.1 towards a value within 2 % is lost in bfloat16, so an average would stop moving.
    """

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "RunningStatistics":
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, buffer in self._buffers.items():
            if buffer is not None and buffer.is_floating_point():
                self._buffers[name] = buffer.to(torch.promote_types(buffer.dtype, torch.float32))
        return self

    @torch.no_grad()
    def keep(self, **values: Tensor) -> None:
        """Overwrite buffers, unless statistics are frozen."""
        if not _FROZEN.get():
            for name, value in values.items():
                self.get_buffer(name).copy_(value)
