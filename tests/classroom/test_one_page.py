import matplotlib.pyplot as plt

from course.classroom.one_page import write_page


def test_a_page_has_texts_tables_and_figures_and_needs_no_network(tmp_path):
    axes = plt.subplots()[1]
    axes.plot([1, 2], gid="a line")
    parts = {"Why <now>": "One.\n\nTwo & three.", "Table": [("a", "b"), (1, "<2>")], "Figure": axes}
    path = write_page(tmp_path / "page.html", "A & B", parts)
    page = path.read_text()
    assert "<title>A &amp; B</title>" in page and "<h2>Why &lt;now&gt;</h2>" in page
    assert "<p>One.</p><p>Two &amp; three.</p>" in page
    assert "<tr><th>a</th><th>b</th></tr><tr><td>1</td><td>&lt;2&gt;</td></tr>" in page
    assert page.count("<svg") == 1 == page.count("</svg>") and "a line" in page
    assert "<script" not in page and "src=" not in page and "<?xml" not in page
