"""Laws of scaling, and the numbers that fit a curve."""

import pytest

from course.cluster.scaling.laws import Law, amdahl, gustafson

RANKS = 1, 2, 4, 8, 64


def test_golden_values():
    assert Law("Amdahl", 0.05).speedup(64) == pytest.approx(64 / (0.05 * 64 + 0.95))
    assert Law("Amdahl", 0.1).speedup(1e12) == pytest.approx(10)
    assert Law("Gustafson", 0.05).speedup(64) == pytest.approx(64 - 0.05 * 63)


@pytest.mark.parametrize("fit", [amdahl, gustafson])
@pytest.mark.parametrize("serial", [0.0, 0.03, 0.5, 1.0])
def test_what_follows_a_law_is_fitted_by_it(fit, serial):
    law = Law({amdahl: "Amdahl", gustafson: "Gustafson"}[fit], serial)
    found = fit({p: law.speedup(p) for p in RANKS})
    assert found.name == law.name
    assert found.serial == pytest.approx(serial)


def test_a_part_is_between_none_and_all():
    assert amdahl({1: 1, 2: 2.5}).serial == 0  # faster than twice: caches
    assert gustafson({1: 1, 2: 0.5}).serial == 1


@pytest.mark.parametrize("fit", [amdahl, gustafson])
def test_one_rank_makes_no_curve(fit):
    with pytest.raises(ValueError, match="more than one rank"):
        fit({1: 1.0})


@pytest.mark.parametrize("fit", [amdahl, gustafson])
@pytest.mark.parametrize("p, speedup", [(2, float("nan")), (2, 0), (2, -1.0), (0, 1.0)])
def test_a_speed_up_that_cannot_be_fits_no_law(fit, p, speedup):
    with pytest.raises(ValueError, match=f"speed-up is above 0, not {speedup} on {p}"):
        fit({1: 1.0, p: speedup})
