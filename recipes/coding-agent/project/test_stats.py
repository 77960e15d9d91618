import stats


def test_mean():
    assert stats.mean([1, 2, 6]) == 3


def test_median_of_an_odd_number():
    assert stats.median([9, 1, 5]) == 5


def test_median_of_an_even_number():
    assert stats.median([4, 1, 3, 2]) == 2.5


def test_median_of_values_that_are_equal():
    assert stats.median([5, 5, 1, 1]) == 3


def test_median_leaves_the_values_in_their_order():
    values = stats.array([3, 1, 2])
    stats.median(values)
    assert list(values) == [3, 1, 2]
