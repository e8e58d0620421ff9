import pytest
import torch
from torch import Tensor

from normlab.jacobian import Chain
from normlab.jacobian.linear_map import linear_map


def _chain(*matrices: Tensor) -> Chain:
    maps = []
    for matrix in matrices:
        x = torch.ones(matrix.shape[1], dtype=torch.float64, requires_grad=True)
        maps.append(linear_map(matrix @ x, x))
    return Chain("decoder", tuple(maps))


@pytest.fixture(scope="session")
def chain_of():
    """The chain of blocks whose Jacobians are these matrices."""
    return _chain


def _drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(scope="session")
def drawn():
    """A Gaussian tensor in float64."""
    return _drawn
