"""Print small tables: `row` a name and numbers, `beside` what a run has taken and its formula."""


def row(name, numbers, form=",.0f"):
    """A row of a table: what it is, and numbers in columns that are 12 letters wide."""
    print(f"{name:29}" + "".join(f"{number:>12{form}}" for number in numbers))


def beside(trace, formula):
    """What a run has taken, by its trace, and what the formula of its cost had predicted."""
    print(f"counted   {trace.steps} steps, bytes sent by rank {trace.sent_bytes}")
    print(f"predicted {formula.steps} steps, bytes sent by rank {formula.sent_bytes}")
