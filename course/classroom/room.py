"""The progress of a room: `python -m course.classroom.room DIR`, on the learners' exported files.

DIR holds what `export("mine.json")` has made, or copies of ledgers, in any folders below it.  They
are only read.  Printed are counts; drawn is one picture for the wall, `room.png` in this folder or
where `--out` says.  Names stand there only where a learner has put one in: export(path, name=...).
"""

import argparse
from collections import Counter
from pathlib import Path

from course.classroom.ledger import parsed
from course.classroom.problems import catalogue
from course.classroom.progress import PAGE, is_number, shown


def collect(folder) -> tuple[list[dict], list[str]]:
    """The entries of every ledger below a folder, and a sentence for each file that was left out,
    or of which some records were.  Raises NotADirectoryError where there is no folder."""
    if not Path(folder).is_dir():
        raise NotADirectoryError(f"{folder} is no folder: name the one with the exported files")
    ledgers, told = [], []
    for path in sorted(Path(folder).rglob("*.json")):
        try:
            entries, strange = parsed(path.read_bytes())
        except (OSError, ValueError, RecursionError) as trouble:
            told.append(f"{path} is left out, since it is no ledger of this course ({trouble})")
            continue
        ledgers.append(entries)
        if strange:
            told.append(f"{path} has {sum(map(len, strange.values()))} records that are left out")
    return ledgers, told


def solved(ledgers) -> dict:
    """{exercise: (how many have solved it, how many have tried it)}, in the order of the book, of
    those that somebody has tried; a hint alone is a try."""
    tried = Counter(name for each in ledgers for name in each["exercises"])
    right = Counter(n for each in ledgers for n, record in each["exercises"].items()
                    if record["right"])  # fmt: skip
    names = [exercise.name for _, exercise in catalogue()]
    return {name: (right[name], tried[name]) for name in names if name in tried}


def guesses(ledgers) -> dict:
    """{question: [(said, measured, unit) of each learner who has predicted and compared]}."""
    found = {}
    for each in ledgers:
        for question, record in each["predictions"].items():
            if record["measured"] is not None:
                told = record["said"], record["measured"], record["unit"]
                found.setdefault(question, []).append(told)
    return found


def factors(answers) -> list[float]:
    """Of a question's answers, guess / measured, where both are numbers above 0."""
    pairs = [(said, measured) for said, measured, _ in answers
             if is_number(said) and is_number(measured)]  # fmt: skip
    return [said / measured for said, measured in pairs if said > 0 and measured > 0]


def summary(ledgers) -> str:
    """The counts in words: learners, exercises, and predictions that were no numbers."""
    lines = [f"learners: {len(ledgers)}"]
    if names := [each["name"] for each in ledgers if isinstance(each.get("name"), str)]:
        lines.append("with a name: " + ", ".join(sorted(names)))
    for name, (right, tried) in solved(ledgers).items():
        lines.append(f"{name}: {right} of {len(ledgers)} have solved it, {tried - right} try")
    for question, answers in guesses(ledgers).items():
        right = sum(said == measured for said, measured, _ in answers)
        asked = f"{question} {right} of {len(answers)} said what was measured"
        said = Counter(shown(value, unit) for value, _, unit in answers).most_common(3)
        lines.append(PAGE.fill(f"{asked}; most often: {', '.join(each for each, _ in said)}"))
    return "\n".join(lines)


def main(arguments=None):
    """Read the files of a room, print the counts, and draw the picture."""
    parser = argparse.ArgumentParser(prog="course.classroom.room", description=__doc__)
    parser.add_argument("folder", help="the folder with the learners' exported files")
    parser.add_argument("--out", default="room.png", help="the picture: a .png, .svg or .pdf")
    asked = parser.parse_args(arguments)
    try:
        ledgers, told = collect(asked.folder)
    except NotADirectoryError as trouble:
        parser.error(str(trouble))
    print(*told, summary(ledgers), sep="\n")
    if not ledgers:
        parser.exit(1, f"there is no ledger in {asked.folder}\n")
    from course.classroom.drawings import wall  # counting needs no matplotlib

    tried = {question: factors(answers) for question, answers in guesses(ledgers).items()}
    drawn = wall.draw(tried, solved(ledgers), len(ledgers))
    drawn[0].figure.savefig(asked.out, bbox_inches="tight")
    print(f"the picture: {Path(asked.out).absolute()}")


if __name__ == "__main__":
    main()
