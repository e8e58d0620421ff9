"""What the tests of sweeps share: small cells, and worker processes that start at once."""

import contextlib
import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import pytest

from normlab.data import Random
from normlab.spec import ModelSpec
from normlab.sweeps.cells import Cell
from normlab.sweeps.workers import Task

DATA = Random(2, 8)


@pytest.fixture
def cells():
    """Cells of one small spec, one a seed."""
    return [Cell(ModelSpec(depth=1, width=8), seed, DATA) for seed in range(6)]


@pytest.fixture
def tasks(cells, tmp_path):
    """Their tasks, and the folder that the workers write to."""
    folder = tmp_path / "cells"
    folder.mkdir()
    return [Task(cell, cell.id, str(folder)) for cell in cells]


@pytest.fixture
def fork_pool():
    """A pool of workers that know what a test has replaced; the real one takes seconds to import torch."""

    @contextlib.contextmanager
    def open_pool(workers):
        with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("fork")) as pool:
            yield pool

    return open_pool
