import pytest

from course.classroom.drawings.batch_size import DASHES, MARKERS, errors_by_batch, knee, run, slopes


def test_every_place_has_a_dot_for_each_sample_and_its_mean():
    axes = slopes([1, 2, 3, 6], [0, 2], "a title")
    dots = [line.get_xdata().tolist() for line in axes.lines if line.get_marker() == "o"]
    assert dots == [[-1, -2, -3, -6], [1, 0, -1, -4]]
    assert [text.get_text() for text in axes.texts] == ["mean −3", "mean −1"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["w = 0", "w = 2"]


def test_the_noise_at_a_place_is_the_standard_deviation_of_the_slopes():
    axes = slopes([1, 2, 3, 6], [0], "a title")
    left, right = axes.lines[0].get_xdata()
    assert (right - left) / 2 == pytest.approx((14 / 3) ** 0.5)
    assert (right + left) / 2 == pytest.approx(-3)


def test_the_knee_has_seeds_a_fit_perfect_scaling_and_the_noise_scale():
    steps = {4: [200, 300], 64: [20, 30], 1024: [10, 12]}
    axes = knee(steps, (10, 90), (30, 120, 400), "a title")
    lines = {line.get_label(): line for line in axes.lines}
    assert lines["fitted: 10.0 (1 + 90 / b)"].get_ydata()[0] == pytest.approx(235)
    perfect = lines["perfect scaling: half the\nsteps for twice the batch"].get_ydata()
    assert perfect[0] == pytest.approx(16 * perfect[1])
    assert lines["its mean on the way: 120"].get_xdata()[0] == 120
    assert lines["critical batch: 90"].get_xdata()[0] == 90
    dots = [line.get_ydata().tolist() for line in axes.lines if line.get_marker() == "o"]
    assert dots == list(map(list, steps.values()))
    low, high = axes.get_ylim()
    assert low < 10 and high > 300
    assert [label.get_text() for label in axes.get_yticklabels()][-3:] == ["100", "200", "500"]


def test_lines_differ_without_colour_and_have_their_names_at_their_ends():
    errors = {f"rule {k}": {32: [3.0, 4.0], 64: [5.0, 5.0]} for k in range(len(MARKERS))}
    axes = errors_by_batch(errors, "a title")
    lines = [line for line in axes.lines if line.get_markersize() == 6]
    assert len({line.get_marker() for line in lines}) == len(DASHES) == len(MARKERS)
    assert len({str(line._unscaled_dash_pattern) for line in lines}) == len(DASHES)
    heights = [text.get_position()[1] for text in axes.texts]
    assert sorted(text.get_text() for text in axes.texts) == sorted(errors)
    assert all(b >= 1.16 * a for a, b in zip(heights, heights[1:]))


def test_means_are_drawn_and_seeds_of_different_lines_stand_beside_one_another():
    axes = errors_by_batch({"a": {32: [2.0, 4.0]}, "b": {32: [2.0, 4.0]}}, "a title")
    means = [line.get_ydata().tolist() for line in axes.lines if line.get_markersize() == 6]
    places = {line.get_xdata()[0] for line in axes.lines if line.get_markersize() == 3}
    assert means == [[3.0], [3.0]] and len(places) == 2


def test_a_run_shows_rates_and_losses_and_says_whether_it_learns():
    left, right = run([0.1, 2.0, 0.0], [2.3, 1.0, 0.4], "a title")
    assert left.lines[0].get_ydata().tolist() == [0.1, 2.0, 0.0]
    assert right.get_title(loc="left") == "It learns" and right.get_yscale() == "log"
    assert run([0.1], [float("nan")], "")[1].get_title(loc="left") == "It does not learn"
    assert run([9.0], [2.3], "")[0].get_ylim()[1] > 9
