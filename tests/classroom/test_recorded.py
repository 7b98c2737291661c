import pytest

from course.classroom.recorded import ALL_REDUCE_S, SIZES
from course.collectives import cost


@pytest.mark.parametrize("algorithm", ALL_REDUCE_S)
def test_recorded_times_of_long_vectors_are_near_what_gigabit_cables_allow(algorithm):
    assert len(ALL_REDUCE_S[algorithm]) == len(SIZES)
    for size, seconds in list(zip(SIZES, ALL_REDUCE_S[algorithm], strict=True))[2:]:
        predicted = cost.all_reduces(4, size // 4, 4)[algorithm].seconds(100e-6, 8e-9 / 0.95)
        assert 0.6 < seconds / predicted < 1.6, size
