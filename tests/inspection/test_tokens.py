"""What a stream looks like token by token, against numpy in float64."""

import numpy as np
import pytest
import torch

from normlab.inspection.tokens import MASSIVE, change, lost_in_bfloat16, median_share, tokens_of


@pytest.fixture
def x() -> torch.Tensor:
    x = torch.randn(3, 7, 11, generator=torch.Generator().manual_seed(0))
    x[1, 0, 4] = -400.0
    x[2, 3] *= 5
    return x


def test_sizes_with_and_without_the_largest_token_of_each_sequence(x: torch.Tensor) -> None:
    found, squares = tokens_of(x), (x.double().numpy() ** 2).mean(-1)
    kept = np.sort(squares, axis=1)[:, :-1]
    assert found.mean_square == pytest.approx(squares.mean(), rel=1e-12)
    assert found.bulk_mean_square == pytest.approx(kept.mean(), rel=1e-12)
    assert found.top_share == pytest.approx(squares.max(1).sum() / squares.sum(), rel=1e-12)
    assert found.median_rms == pytest.approx(np.median(np.sqrt(squares)), rel=1e-12)


def test_the_massive_entry_and_no_other(x: torch.Tensor) -> None:
    found = tokens_of(x)
    (place,) = found.massive
    assert (place.sequence, place.token, place.channel) == (1, 0, 4) and found.place == place
    assert found.largest == 400 and found.massive_ratio == pytest.approx(400 / found.median_rms)


@pytest.mark.parametrize(("factor", "count"), [(0.99, 0), (1.01, 1)])
def test_the_threshold_of_massive(factor: float, count: int) -> None:
    x = torch.ones(1, 5, 4)
    x[0, 2, 3] = MASSIVE * factor
    assert len(tokens_of(x).massive) == count


def test_one_token_a_sequence_has_no_others() -> None:
    assert np.isnan(tokens_of(torch.ones(2, 1, 3)).bulk_mean_square)


def test_change_is_the_median_over_tokens_and_leaves_zeros_out() -> None:
    before = torch.ones(1, 4, 2)
    before[0, 3] = 0
    after = before * torch.tensor([1.0, 1.5, 3.0, 9.0])[None, :, None]
    assert change(before, after) == pytest.approx(0.5)


def test_lost_in_bfloat16_is_numpys_rounding() -> None:
    skip, update = torch.full((1, 2, 3), 256.0), torch.tensor([[[1.0, 1.0, 1.0], [4.0, 4.0, 4.0]]])
    # 257 lies between 256 and 258, and goes to 256; 260 is a bfloat16.
    pooled, median = lost_in_bfloat16(skip, update)
    assert pooled == pytest.approx((3 / (3 + 48)) ** 0.5) and median == pytest.approx(0.5)


def test_a_token_that_is_not_finite_is_left_out(x: torch.Tensor) -> None:
    broken = x.clone()
    broken[1, 0, 2] = torch.nan
    broken[2, 3, 0] = torch.inf
    found = tokens_of(broken)
    squares = (x.double().numpy() ** 2).mean(-1)
    squares[1, 0] = squares[2, 3] = np.nan
    kept = np.concatenate([np.sort(row[np.isfinite(row)])[:-1] for row in squares])
    assert found.nonfinite == 2 and found.massive == ()
    assert found.mean_square == pytest.approx(np.nanmean(squares), rel=1e-12)
    assert found.bulk_mean_square == pytest.approx(kept.mean(), rel=1e-12)
    assert found.median_rms == pytest.approx(np.nanmedian(np.sqrt(squares)), rel=1e-12)
    assert np.isfinite(change(x, broken)) and np.isfinite(lost_in_bfloat16(x, broken)).all()


def test_nothing_finite_has_no_numbers() -> None:
    found = tokens_of(torch.full((1, 2, 3), torch.nan))
    assert found.nonfinite == 2 and np.isnan([found.mean_square, found.median_rms, found.largest]).all()


def test_the_median_update_is_that_of_tokens_and_not_of_entries() -> None:
    update, skip = torch.ones(1, 5, 4), torch.full((1, 5, 4), 2.0)
    update[0, 0] = 1e6  # one token that rules the mean
    assert median_share(update, skip) == 0.5
