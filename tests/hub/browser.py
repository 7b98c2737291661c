"""What a learner does with a hub in a browser."""

import json
import re
from urllib.parse import urlsplit

from selenium.common.exceptions import TimeoutException
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

PATIENCE_S = 240.0
OPENED = "return !!window.jupyterapp?.shell?.currentWidget?.context?.isReady"
READY = """
const done = arguments[0], app = window.jupyterapp;
app.restored.then(() => app.shell.currentWidget.context.sessionContext.ready)
    .then(() => done('ready'), trouble => done(String(trouble)));
"""
WRITE = """
const cells = window.jupyterapp.shell.currentWidget.content.widgets;
cells[arguments[0]].model.sharedModel.setSource(arguments[1]);
"""
RUN = """
const app = window.jupyterapp, cells = window.jupyterapp.shell.currentWidget.content;
const turn = {};
const over = how => { if (window.turn === turn) window.outcome = how; };
window.turn = turn;
window.outcome = null;
cells.activeCellIndex = arguments[0];
cells.deselectAll();
const commands = arguments[1].map(name => () => app.commands.execute(name));
commands.reduce((before, next) => before.then(next), Promise.resolve())
    .then(() => over('ran'), trouble => over(String(trouble)));
"""
COMMAND = "window.jupyterapp.commands.execute(arguments[0])"
OUTPUTS = """
const cells = window.jupyterapp.shell.currentWidget.content.model.toJSON().cells;
return cells.slice(arguments[0], arguments[1]).flatMap(cell => cell.outputs || []);
"""
# Whether somebody listens to the button: the page's script waits for others after it is loaded
# itself, and a click before that is lost.
BUTTONS_WORK = """
const $ = window.require?.defined?.('jquery') && window.require('jquery');
return !!$?._data?.(document.getElementById('stop'), 'events')?.click;
"""
ACCEPT = ".jp-Dialog button.jp-mod-accept"
# What a page that is this learner's own is told about others.
FETCH = """
const done = arguments[arguments.length - 1];
const xsrf = document.cookie.match(/(?:^|; )_xsrf=([^;]*)/)?.[1] || '';
fetch(arguments[0], {headers: {'X-XSRFToken': xsrf}})
    .then(answer => done(answer.status), trouble => done(String(trouble)));
"""


class Desk:
    """A learner before a browser."""

    def __init__(self, page, hub, learner):
        self.page, self.hub, self.learner = page, hub, learner
        page.set_script_timeout(PATIENCE_S)

    def until(self, true):
        try:
            return WebDriverWait(self.page, PATIENCE_S).until(lambda _: true())
        except TimeoutException:
            raise AssertionError(f"{self.page.current_url} shows: {self.text()}") from None

    def text(self) -> str:
        """What the page shows."""
        return self.page.execute_script("return document.body?.innerText || ''")

    def log_in(self, notebook):
        """By the link to a notebook that a teacher gives, with name and password."""
        self.page.get(f"{self.hub.url}/hub/user-redirect/lab/tree/{notebook}")
        for field, text in (("username", self.learner.name), ("password", self.learner.password)):
            self.page.find_element(By.ID, f"{field}_input").send_keys(text)
        self.page.find_element(By.ID, "login_submit").click()
        self.until(self._is_let_in)

    def _is_let_in(self):
        shown = self.text()
        assert not re.search(r"Spawn failed|^\d+ :", shown, re.MULTILINE), shown
        return urlsplit(self.page.current_url).path.startswith(f"/user/{self.learner.name}/lab")

    def open(self):
        """The notebook, with its kernel."""
        self.until(lambda: self.page.execute_script(OPENED))
        assert self.page.execute_async_script(READY) == "ready"

    def write(self, cell, text):
        self.page.execute_script(WRITE, cell, text)

    def begin(self, cell, *commands):
        """Run a cell, after the other commands."""
        self.page.execute_script(RUN, cell, [*commands, "notebook:run-cell"])

    def ended(self):
        assert self.until(lambda: self.page.execute_script("return window.outcome")) == "ran"

    def run(self, cell, *commands) -> str:
        """Run a cell to its end; the text that it shows."""
        self.begin(cell, *commands)
        self.ended()
        return self.shown(cell)

    def command(self, name):
        self.page.execute_script(COMMAND, name)

    def accept(self):
        """Say yes to what JupyterLab asks."""
        self.until(lambda: self.page.find_elements(By.CSS_SELECTOR, ACCEPT))[0].click()

    def outputs(self, first=0, last=None):
        return self.page.execute_script(OUTPUTS, first, last)

    def errors(self):
        """What all cells show of errors."""
        return [each["evalue"] for each in self.outputs() if each["output_type"] == "error"]

    def shown(self, cell) -> str:
        return json.dumps(self.outputs(cell, cell + 1), ensure_ascii=False)

    def status_of(self, path) -> int:
        """What the hub's address answers to this learner's browser."""
        return self.page.execute_async_script(FETCH, path)

    def stop_server(self):
        """By the button on the hub's own page."""
        self.page.get(f"{self.hub.url}/hub/home")
        self.until(lambda: self.page.execute_script(BUTTONS_WORK))
        self.page.find_element(By.ID, "stop").click()
        self.until(lambda: "My Server" in self.page.find_element(By.ID, "start").text
                   and not self.page.find_element(By.ID, "stop").is_displayed())  # fmt: skip
