"""What ranks say of collective calls, and which calls they are in."""

from collections import Counter

from course.comm.transport import Envelope, in_background
from course.worlds.sockets.messages import Kind, RollCall


class RollCalls:
    """By call, (group, number): what each rank has said of it.

    A rank that cannot take part, since it waits for something else, answers with that instead.
    """

    def __init__(self, sender):
        self.sender, self.said, self.answers, self.last_call = sender, {}, {}, Counter()

    def open(self, call, text, others) -> RollCall:
        """Say `text` of a call to the `others`, and wait for what they say."""
        for peer in others:
            self.sender.tell(peer, Kind.ROLL_CALL, text, Envelope(*call))
        return RollCall(self.said.setdefault(call, {}), set(others))

    def hear(self, source, call, text):
        """What a rank says of a call."""
        if call in self.answers:
            self.sender.tell(source, Kind.ROLL_CALL, self.answers[call], Envelope(*call))
        else:
            self.said.setdefault(call, {})[source] = text

    def elsewhere(self) -> dict:
        """{rank: call} of the ranks that wait in calls in which this one has taken no part."""
        found = {}
        for call, said in self.said.items():
            group, number = call
            if number > self.last_call[group] and not in_background(group):
                found |= dict.fromkeys(said, call)
        return found

    def answer(self, calls, operation) -> dict:
        """Answer `calls` with an operation: {rank: label} of those that wait in them."""
        labels = {}
        for call in calls:
            self.answers[call] = f"{operation}\n"
            self.last_call[call[0]] = call[1]
            for source, text in self.said.pop(call).items():
                labels[source] = text.partition("\n")[0]
                self.hear(source, call, text)
        return labels
