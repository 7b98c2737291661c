from course.classroom.drawings import wall


def names(axes):
    return [text.get_text().replace("\n", " ") for text in axes.get_yticklabels()]


def test_a_dot_for_each_guess_and_a_bar_for_each_exercise():
    left, right = wall.draw({"How many?": [2.0, 0.5], "words": []}, {"nine": (1, 3)}, 4)
    assert sorted(left.lines[0].get_xdata()) == [0.5, 2]
    assert left.get_xlim()[0] < 0.5 and left.get_xlim()[1] > 2
    assert names(left) == ["How many?"] and names(right) == ["nine"]
    assert [bar.get_width() for bar in right.patches] == [3, 1]
    assert "1 of 4" in right.texts[0].get_text()


def test_the_most_answered_are_shown_in_their_order():
    factors = {f"question {n}": [1.0] * (1 + n % 13) for n in range(14)}
    shown = names(wall.draw(factors, {}, 20)[0])
    assert len(shown) == wall.MOST and "question 12" in shown and "question 0" not in shown
    assert shown == [name for name in factors if name in shown]


def test_letters_can_be_read_from_the_last_row():
    left, right = wall.draw({"How many?": [2.0]}, {"nine": (1, 3)}, 4)
    left.figure.draw_without_rendering()
    for axes in (left, right):
        sizes = [text.get_fontsize() for text in (*axes.get_yticklabels(), axes.xaxis.label)]
        assert min(sizes) >= wall.TEXT


def test_a_room_without_guesses_says_so():
    left, _ = wall.draw({}, {"nine": (0, 1)}, 1)
    assert "no guess has been compared yet" in left.texts[0].get_text()
