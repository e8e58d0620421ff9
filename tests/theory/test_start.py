"""What the first block receives: positions are known, so that they can be compared with the model's own."""

import numpy as np
import pytest
import torch

from normlab import build, data
from normlab.spec import ModelSpec
from normlab.theory.batches import geometry_of
from normlab.theory.forward import forward
from normlab.theory.geometry import averages


@pytest.mark.parametrize("width", [63, 64])
def test_positions_alone_and_their_norm_are_those_of_the_model(width: int) -> None:
    """With an embedding of zeros the stream at layer 0 is the positions, to the last digit."""
    spec = ModelSpec(
        depth=1, width=width, heads=1, position="sinusoidal", embed_std=0.0, attention="none", norm_eps=0.0
    )
    batch = data.random_batch(batch=2, tokens=9, seed=0)
    stack = build(spec, dtype=torch.float64).stack("decoder")
    x = stack.embedding(batch[0]).detach()
    normed = torch.nn.functional.layer_norm(x, (width,), eps=0.0)
    walked = forward(spec, geometry_of(spec, batch, 0), finite=False)
    for found, expected in ((walked.embed.value, x), (walked.steps[0].mixer.inputs, normed)):
        for pair, (a, b) in enumerate(((0, 0), (1, 1), (0, 1))):
            gram = (expected[a] @ expected[b].T / width).numpy()
            np.testing.assert_allclose(found[pair], gram, atol=1e-9)


def test_averages_of_positions_are_those_of_all_pairs() -> None:
    spec = ModelSpec(depth=1, width=64, position="sinusoidal", attention="none")
    pairs = geometry_of(spec, 2, 12)
    few = averages(pairs)
    full, short = forward(spec, pairs), forward(spec, few)
    np.testing.assert_allclose(pairs.means(full.embed.value), short.embed.value)
    np.testing.assert_allclose(pairs.means(full.steps[0].mixer.inputs), short.steps[0].mixer.inputs, rtol=0.02)
