"""Sphinx's settings for the book as static pages: nothing is executed, nothing is fetched."""

import tomllib
from pathlib import Path

HERE = Path(__file__).parent
PLACES = tomllib.loads((HERE / "places.toml").read_text("utf-8"))

project = html_title = "From one gradient to ten billion parameters"
author = "The authors of the workbook"
language = "en"
extensions = ["myst_nb", "sphinx-mathjax-offline"]

nb_execution_mode = "off"  # what is shown was stored with the notebook
nb_render_image_options = {"alt": "Figure drawn by the code above; the text below says what to see"}
myst_enable_extensions = ["amsmath", "dollarmath"]
suppress_warnings = ["mystnb.unknown_mime_type"]

html_theme = "sphinx_book_theme"
html_static_path = [str(HERE / "style.css")]
html_css_files = ["style.css"]
html_favicon = str(HERE / "icon.svg")
html_context = {"default_mode": "auto"}  # light or dark, as the reader's system has it
html_copy_source = False
html_show_sphinx = html_use_index = False
html_theme_options = {
    "footer_content_items": ["extra-footer.html"],
    "extra_footer": "<p>MIT licence. The photographs are their authors’.</p>",
    "navbar_persistent": [],  # a second field for the search
    "use_download_button": False,
    "home_page_in_toc": True,
    "repository_url": PLACES["repository"],
    "repository_branch": PLACES["branch"],
    "path_to_docs": "notebooks",
    "use_repository_button": bool(PLACES["repository"]),
    "launch_buttons": {
        "notebook_interface": "jupyterlab",
        "colab_url": PLACES["colab"],
        "binderhub_url": PLACES["binder"],
        "jupyterhub_url": PLACES["hub"],
    } if PLACES["repository"] else {},
}  # fmt: skip
