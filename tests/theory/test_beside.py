import pandas as pd
import pytest

from normlab.data import Random, Text
from normlab.spec import ModelSpec
from normlab.sweeps import Cell, run_cell
from normlab.table import concat
from normlab.theory import beside, predict
from normlab.theory.beside import Beside, predicted
from normlab.theory.cases import cases, redrawn, spec_of


@pytest.mark.parametrize(
    "spec",
    [
        ModelSpec(depth=3, width=16),
        ModelSpec(depth=2, width=16, placement=("pre", "post"), bias=True, final_norm=False, qk_norm="rmsnorm-all"),
        ModelSpec(depth=2, width=16, norm="dyt", norm_options=(("alpha", 0.3),), kv_heads=2, dropout=0.1),
        ModelSpec(depth=2, width=16, kind="encoder-decoder", encoder_depth=3, embed_std=0.02, tie_embeddings=True),
    ],
)
def test_a_model_comes_back_from_its_columns(spec: ModelSpec) -> None:
    again = spec_of(spec.columns())
    assert again.columns() | {"spec": spec.id} == spec.columns() and again.placement == spec.placement


@pytest.mark.parametrize("data", [Text(2, 8), Random(2, 8, 50)])
def test_a_batch_is_drawn_again_from_the_cells_columns(data: Text | Random) -> None:
    assert redrawn(data.columns()) == data
    assert redrawn(data.columns() | {"data": "text:mine-0a1b2c3d"}) is None


def _measured(seeds: int, **fields: object) -> pd.DataFrame:
    spec = ModelSpec(**({"depth": 2, "width": 16, "heads": 2} | fields))  # type: ignore[arg-type]
    return concat(run_cell(Cell(spec, seed, Text(2, 8))) for seed in range(seeds))


def test_each_seed_has_the_theory_of_its_own_batch() -> None:
    theory = beside(_measured(2))
    for seed in (10000, 10001):
        alone = predict(ModelSpec(depth=2, width=16, heads=2), Text(2, 8).draw(seed), jacobian=False)
        own = theory[theory["data_seed"] == seed]
        assert own["value"].tolist() == alone["value"].tolist() and own["spec"].tolist() == alone["spec"].tolist()


def test_a_limit_leaves_out_the_batches_of_the_last_seeds() -> None:
    found = cases(_measured(3), most=2 * 3 * 64 * 2 * 2)
    assert [case.data_seed for case in found] == [10000, 10001]
    assert [case.data_seed for case in cases(_measured(3), most=1.0)] == [10000]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({}, "very batch that data seed 10000 drew"),
        ({"data": "text:lost-12345678"}, "cannot be drawn again, so theory is that of random tokens"),
        ({"norm": "gone"}, "theory says nothing (the columns do not give the model back"),
    ],
)
def test_what_theory_stands_on_is_said(change: dict[str, str], says: str) -> None:
    found = cases(_measured(1).astype(dict.fromkeys(change, object)).assign(**change))
    assert any(says in sentence for sentence in Beside(found, predicted(found)).sayings)


def test_a_model_without_theory_says_why() -> None:
    found = cases(_measured(1, norm="powernorm"))
    assert any("takes statistics over a batch" in sentence for sentence in Beside(found, predicted(found)).sayings)


def test_a_reason_names_the_depths_that_it_is_about_once() -> None:
    """A tied head of a shallow model still sees its token; one behind sixteen blocks hardly does."""
    measured = concat(_measured(1, depth=depth, tie_embeddings=True) for depth in (1, 2, 16))
    found = cases(measured)
    lost = [one for one in Beside(found, predicted(found)).sayings if "tied head" in one]
    assert len(lost) == 1 and lost[0].startswith("pre at depth 1, 2: theory says no gradients")
