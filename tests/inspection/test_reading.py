"""Tensors are read where the plan says: the result of a module that runs several times in the call that is meant."""

import torch
from torch import nn

import normlab as nl
from normlab.inspection.reading import reading
from normlab.recording import Port


def test_a_port_of_one_call_is_read_in_that_call() -> None:
    model = nn.Sequential(shared := nn.Linear(4, 4), nn.ReLU(), shared)
    x = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0))
    ports = [Port("0", call=0), Port("0", call=1), Port("0", side="input", path=(0,), call=1)]
    seen: dict[Port, torch.Tensor] = {}
    with torch.no_grad(), reading(model, ports, (2, 3), lambda port, tensor: seen.update({port: tensor.clone()})):
        model(x)
    first = shared(x)
    assert torch.equal(seen[ports[0]], first) and torch.equal(seen[ports[1]], model(x))
    assert torch.equal(seen[ports[2]], first.relu())


def test_the_streams_of_shared_blocks_are_those_of_the_recorder() -> None:
    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.norm, self.head = nn.Embedding(256, 8), nn.LayerNorm(8), nn.Linear(8, 256)
            self.mix = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            x = self.embed(tokens)
            for _ in range(4):
                x = x + self.mix(self.norm(x))
            return self.head(x)

    torch.manual_seed(0)
    found = nl.inspect(Shared(), tokens=16)
    table = found.table[(found.table["site"] == "stream") & (found.table["quantity"] == "mean_square")]
    recorded = {(row.layer, row.sublayer): row.value for row in table.itertuples() if row.value == row.value}
    looked = {(at.layer, at.sublayer): one.mean_square for at, one in found.look.streams.items()}
    assert len(looked) >= 4 and len(set(looked.values())) == len(looked)
    for at, value in looked.items():
        torch.testing.assert_close(value, recorded[at], rtol=1e-5, atol=0)
