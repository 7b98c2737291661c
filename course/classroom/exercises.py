"""Say what you expect, try it, have it checked: what every notebook of the book calls.

`predict(question, value)` keeps a guess, to be compared with what is measured.
`check(name, answer)` judges an answer, `hint(name)` helps a little, `solution(name)` shows one.
None of them stops a notebook; only a name that no exercise has is an error.
"""

import ast
import inspect
import textwrap
from difflib import get_close_matches

from course.classroom import progress
from course.classroom.diagnosis import told
from course.classroom.limits import Interrupted, within
from course.classroom.problems import Exercise, Wrong, catalogue
from course.classroom.process_state import kept
from course.classroom.progress import Text

__all__ = ["Exercise", "Prediction", "Verdict", "Wrong", "check", "hint", "predict", "solution"]

LIMIT_S = 60.0  # for a check; a run on ranks within it has a limit of its own

# How the output begins of what is not done yet: the pages of the site know it by these words.
NO_GUESS, NOT_PREDICTED, NOT_DONE = "not predicted yet: ", "not predicted; it is ", "not done yet"
FILL_IN = "Put your guess in place of the dots."


class UnknownExercise(KeyError):
    """There is no exercise of that name."""

    def __str__(self):
        return self.args[0]


class Verdict:
    """Whether an answer is right (None: not done yet), and a sentence about it."""

    _repr_pretty_ = progress.in_lines

    def __init__(self, name: str, right: bool | None, sentence: str):
        self.name, self.right, self.sentence = name, right, sentence

    def __repr__(self):
        word = {True: "right", False: "not right yet", None: NOT_DONE}[self.right]
        return f"{word}: {self.sentence}"


class Prediction:
    """A guess; `compare(measured)` sets it beside what was measured."""

    _repr_pretty_ = progress.in_lines

    def __init__(self, question: str, value, unit: str = ""):
        self.question, self.value, self.unit = str(question), progress.plain(value), str(unit)

    @property
    def made(self) -> bool:
        return self.value is not ...

    def compare(self, measured) -> Text:
        """The guess beside `measured`; for numbers, how many times too much or too little."""
        measured = progress.plain(measured)
        if not self.made:
            return Text(NOT_PREDICTED + progress.shown(measured, self.unit))
        progress.record_prediction(self.question, self.value, measured, self.unit)
        return Text(progress.compared(self.value, measured, self.unit))

    def __repr__(self):
        if not self.made:
            return f"{NO_GUESS}{self.question} {FILL_IN}"
        return f"noted: {self.question} You say {progress.shown(self.value, self.unit)}"


class Listing:
    """Source code as a notebook shows it: highlighted where it can, plain elsewhere."""

    def __init__(self, text: str, is_code: bool):
        self.text, self.is_code = text, is_code

    def __repr__(self):
        return self.text

    def _repr_markdown_(self):
        return f"```python\n{self.text}\n```" if self.is_code else self.text


def predict(question: str, value, unit: str = "") -> Prediction:
    """Keep a guess before the run that will answer `question`; `...` stands for none yet."""
    prediction = Prediction(question, value, unit)
    if prediction.made:
        progress.record_prediction(prediction.question, prediction.value, None, prediction.unit)
    return prediction


def check(name: str, answer) -> Verdict:
    """Judge an answer to exercise `name`, and keep the verdict in the learner's ledger.

    Whatever the answer does becomes a Verdict; one that does not come to an end is stopped.  What
    it changed in this process is put back (`process_state.py` has the list).  Raises KeyError for
    an unknown name, and KeyboardInterrupt if somebody interrupts the notebook.
    """
    exercise = find(name)
    verdict = judged(exercise, answer)
    if verdict.right is not None:
        progress.record_verdict(name, verdict.right)
    return verdict


def hint(name: str) -> Text:
    """The next hint for exercise `name`, one at a time."""
    hints = find(name).hints
    given = progress.record_hint(name, len(hints))
    if given == len(hints):
        return Text(f"no more hints: solution({name!r}) shows an answer")
    return Text(f"hint {given + 1} of {len(hints)}: {hints[given]}")


def solution(name: str) -> Listing:
    """An answer to exercise `name`: the source of the function in `course` where there is one."""
    answer = find(name).solution
    if isinstance(answer, str):
        return Listing(answer, is_code=False)
    functions = answer if isinstance(answer, tuple) else (answer,)
    return Listing("\n\n".join(listing(function) for function in functions), is_code=True)


def find(name: str) -> Exercise:
    """The exercise called `name`.  Raises KeyError that suggests the nearest name."""
    names = []
    for _, exercise in catalogue():
        if exercise.name == name:
            return exercise
        names.append(exercise.name)
    near = get_close_matches(str(name), names, n=1, cutoff=0.4)
    advice = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(names)}"
    raise UnknownExercise(f"there is no exercise {name!r}: {advice}")


def judged(exercise: Exercise, answer) -> Verdict:
    """The verdict on an answer.  Raises KeyboardInterrupt if somebody interrupts the notebook."""
    name = exercise.name
    try:
        with kept():
            if untouched(answer, exercise.given):
                return Verdict(name, None, exercise.task)
            praise = within(LIMIT_S, lambda: exercise.check(answer))
    except Wrong as wrong:
        return Verdict(name, False, str(wrong))
    except Interrupted as interrupt:
        raise KeyboardInterrupt(*interrupt.args) from None
    except BaseException as trouble:  # sys.exit() in an answer, too
        return Verdict(name, False, told(trouble))
    return Verdict(name, True, praise or "well done.")


def untouched(answer, given=None) -> bool:
    """Whether an answer is still the dots, an empty function, or the code that was handed out."""
    if isinstance(answer, tuple | list):
        return any(part is ... for part in answer)
    body = statements(answer) if inspect.isfunction(answer) else None
    if body is None or given is None:
        return answer is ... or body == []
    return body in ([], statements(given))


def statements(function) -> list[str] | None:
    """What a function does, without its docstring and what does nothing; None if unreadable."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    except (OSError, SyntaxError):
        return None
    if not isinstance(tree, ast.FunctionDef):
        return None
    body = [statement for statement in tree.body if not idle(statement)]
    return [ast.dump(statement) for statement in body]


def idle(statement: ast.stmt) -> bool:
    """Whether a statement does nothing: a docstring, `...`, pass, or a mere NotImplementedError."""
    if isinstance(statement, ast.Raise):
        return "NotImplementedError" in ast.dump(statement)
    if isinstance(statement, ast.Return):
        value = statement.value or ast.Constant(None)
        return isinstance(value, ast.Constant) and value.value in (None, ...)
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Constant)
    return isinstance(statement, ast.Pass)


def listing(function) -> str:
    """The source of a function, under the name of its file unless that holds the exercises."""
    source = textwrap.dedent(inspect.getsource(function)).rstrip()
    module = function.__module__
    if ".problems." in module:
        return source
    return f"# {module.replace('.', '/')}.py\n\n{source}"
