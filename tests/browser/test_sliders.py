"""In a real browser a learner runs a notebook as far as its last slider; each slider changes its
picture: one notebook with sliders, one with players.  (`tests/test_notebooks.py` moves every slider
of every notebook, without a browser.)"""

import json
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from course.classroom.workbook import copy_notebooks

ORIGINALS = Path(__file__).parents[2] / "notebooks"
LOOKED_AT = [
    next(ORIGINALS.glob(f"*_{name}.ipynb")) for name in ("gradient_descent", "collectives")
]
BROWSERS, DRIVERS = ("chromium", "chromium-browser", "google-chrome"), ("chromedriver",)
PATIENCE_S = 600

# Without this JupyterLab keeps only the cells in view in the page.
WHOLE_PAGE = {"@jupyterlab/notebook-extension/tracker": {"windowingMode": "none"}}

RUN_TO = """
const app = window.jupyterapp;
app.restored
    .then(() => app.shell.currentWidget.context.sessionContext.ready)
    .then(() => { app.shell.currentWidget.content.activeCellIndex = arguments[0]; })
    .then(() => app.commands.execute('notebook:run-all-above'))
    .then(() => app.commands.execute('notebook:run-cell'))
    .then(() => { window.outcome = 'run'; }, trouble => { window.outcome = String(trouble); });
"""
SHUT_DOWN = "return window.jupyterapp.serviceManager.sessions.shutdownAll()"
ERRORS = """
const cells = window.jupyterapp.shell.currentWidget.content.model.toJSON().cells;
return cells.flatMap(cell => cell.outputs || [])
    .filter(output => output.output_type === 'error').map(output => output.evalue);
"""
PICTURE = """
const output = arguments[0].closest('.jp-OutputArea-output');
return [...output.querySelectorAll('img, canvas, svg:not(.noUi-base svg)')]
    .map(each => each.src || (each.toDataURL ? each.toDataURL() : each.outerHTML)).join();
"""
POSITION = "return arguments[0].parentElement.style.transform"  # aria-valuenow is rounded


def first_there(names):
    return next(filter(None, map(shutil.which, names)), None)


needs_browser = pytest.mark.skipif(
    not (first_there(BROWSERS) and first_there(DRIVERS)),
    reason="no chromium with chromedriver here (Debian: apt install chromium chromium-driver)",
)


@contextmanager
def jupyterlab(folder, own):
    """A JupyterLab on `folder` that keeps its files in `own`; yields what it says about itself."""
    overrides = own / "settings" / "overrides.json"
    overrides.parent.mkdir()
    overrides.write_text(json.dumps(WHOLE_PAGE))
    options = {
        "ServerApp.root_dir": folder, "ServerApp.ip": "127.0.0.1", "ServerApp.port": 0,
        "LabApp.app_settings_dir": overrides.parent, "LabApp.user_settings_dir": own / "user",
        "LabApp.workspaces_dir": own / "workspaces", "LabApp.news_url": None,
        "LabApp.check_for_updates_class": "jupyterlab.NeverCheckForUpdate",
        "KernelManager.transport": "ipc",
    }  # fmt: skip
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root"]
    command += ["--expose-app-in-browser", *(f"--{key}={value}" for key, value in options.items())]
    places = {"JUPYTER_RUNTIME_DIR": own / "runtime", "COURSE_PROGRESS": own / "progress.json"}
    environment = os.environ | {name: str(place) for name, place in places.items()}
    with open(own / "log", "w") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        yield said(server, own)
    finally:
        server.terminate()
        server.wait(60)


def said(server, own):
    """The address and token of a server, from the file that it writes when it is ready."""
    file = own / "runtime" / f"jpserver-{server.pid}.json"

    def ready(_):
        assert server.poll() is None, (own / "log").read_text()
        return json.loads(file.read_text()) if file.exists() else None

    return WebDriverWait(None, PATIENCE_S, ignored_exceptions=[ValueError]).until(ready)


@contextmanager
def chromium(own, logs=()):
    """A browser that keeps its files in `own`, and all entries of these logs."""
    options = webdriver.ChromeOptions()
    options.set_capability("goog:loggingPrefs", dict.fromkeys(logs, "ALL"))
    options.binary_location = first_there(BROWSERS)
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1400,1100",
                     "--disable-dev-shm-usage", f"--user-data-dir={own / 'browser'}"):  # fmt: skip
        options.add_argument(argument)
    page = webdriver.Chrome(options, webdriver.ChromeService(first_there(DRIVERS)))
    # As if a learner sat before it: JupyterLab's current notebook is the one that has the focus.
    page.execute_cdp_cmd("Emulation.setFocusEmulationEnabled", {"enabled": True})
    try:
        yield page
    finally:
        page.quit()


def last_slider(notebook) -> int:
    """The number of the last cell whose stored output is a slider."""
    cells = json.loads(notebook.read_text())["cells"]
    return max(n for n, cell in enumerate(cells) if "Slider(" in json.dumps(cell.get("outputs")))


def run_to(cell, page, lab, notebook):
    """Open a notebook and run its cells as far as number `cell`."""
    page.get(f"{lab['url']}lab/tree/{notebook}?token={lab['token']}&reset")
    patient = WebDriverWait(page, PATIENCE_S)
    opened = "return !!window.jupyterapp?.shell?.currentWidget?.context"
    patient.until(lambda page: page.execute_script(opened))
    page.execute_script(RUN_TO, cell)
    assert patient.until(lambda page: page.execute_script("return window.outcome")) == "run"
    assert page.execute_script(ERRORS) == []


def move_and_see(page, handle):
    """Move a slider; returns once the picture under it is another one."""
    page.execute_script("arguments[0].scrollIntoView({block: 'center'})", handle)
    patient = WebDriverWait(page, PATIENCE_S)
    before = patient.until(lambda page: page.execute_script(PICTURE, handle))
    at = page.execute_script(POSITION, handle)
    assert at
    handle.send_keys(Keys.ARROW_RIGHT)
    if page.execute_script(POSITION, handle) == at:  # it stood at its right end
        handle.send_keys(Keys.ARROW_LEFT)
    patient.until(
        lambda page: page.execute_script(PICTURE, handle) not in ("", before),
        "a slider was moved, and its picture stayed the same",
    )


@pytest.fixture(scope="module")
def learners(tmp_path_factory):
    """A learner's JupyterLab with a copy of all notebooks, and a browser."""
    copies, own = tmp_path_factory.mktemp("workbook"), tmp_path_factory.mktemp("own")
    copy_notebooks(ORIGINALS, copies)
    with jupyterlab(copies, own) as lab, chromium(own) as page:
        yield lab, page, own


@needs_browser
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("original", LOOKED_AT, ids=lambda path: path.stem)
def test_a_slider_moves_the_picture(original, learners):
    lab, page, own = learners
    try:
        run_to(last_slider(original), page, lab, original.name)
        (kernel,) = (own / "runtime").glob("kernel-*.json")
        assert json.loads(kernel.read_text())["transport"] == "ipc"
        handles = page.find_elements(By.CSS_SELECTOR, ".noUi-handle")
        assert handles
        for handle in handles:
            move_and_see(page, handle)
    finally:
        page.execute_script(SHUT_DOWN)
