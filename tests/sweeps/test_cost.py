"""Estimates that decide the order of the cells and the number of workers."""

import os

import pytest

from normlab.data import Random
from normlab.models import build
from normlab.spec import ModelSpec
from normlab.sweeps import cost
from normlab.sweeps.cells import Cell


def _cell(depth=2, width=16, batch=2, tokens=8, **fields):
    return Cell(ModelSpec(depth=depth, width=width, **fields), 0, Random(batch, tokens))


@pytest.mark.parametrize(
    "spec",
    [
        ModelSpec(depth=3, width=16),
        ModelSpec(depth=2, width=16, attention="none", tie_embeddings=True),
        ModelSpec(depth=2, width=16, attention="uniform", mlp_width=24),
        ModelSpec(depth=2, width=16, kv_heads=2, head_width=6),
    ],
)
def test_parameters_are_those_of_the_matrices(spec):
    matrices = sum(weight.numel() for weight in build(spec).parameters() if weight.dim() == 2)
    assert cost.parameters(spec) == matrices


def test_more_work_costs_more():
    small = _cell()
    larger = [_cell(depth=4), _cell(width=512), _cell(batch=512), _cell(tokens=512)]
    assert all(cost.seconds(cell) > cost.seconds(small) for cell in larger)
    assert all(cost.bytes_needed(cell) > cost.bytes_needed(small) for cell in larger)


@pytest.mark.parametrize(("free", "expected"), [(0, 1), (1, 1), (2, 2), (3.9, 3), (1000, 4)])
def test_no_more_workers_than_memory_allows_for_the_largest_cell(monkeypatch, free, expected):
    cells = [_cell(), _cell(depth=64, width=256), *[_cell(width=8)] * 20]
    largest = cost.bytes_needed(cells[1])
    monkeypatch.setattr(cost, "available_bytes", lambda: int(free * largest))
    monkeypatch.setattr(cost, "available_cores", lambda: 4)
    assert cost.workers(cells) == expected


def test_no_more_workers_than_cells(monkeypatch):
    monkeypatch.setattr(cost, "available_cores", lambda: 64)
    assert cost.workers([_cell(), _cell(depth=3)]) == 2
    assert cost.workers([]) == 1


def test_the_machine_has_cores_and_memory():
    assert 1 <= cost.available_cores() <= os.cpu_count()
    assert 0 < cost.available_bytes() < 2**50
