"""What ranks say of collective calls, and which calls they are in.

In a small group all tell all.  In a larger one they speak in rounds, ceil(lg p) messages a rank: in
round k rank r tells rank r + 2**k that it and the 2**k - 1 before it say the same, once it knows.
Nobody is through before all have spoken.  Where they differ, or one is late or gone, all tell all.
"""

import math
import time
from collections import Counter

from course.comm.transport import Envelope, in_background
from course.worlds.sockets.messages import POLL_S, Kind, Request

ALL_AT_ONCE = 4  # ranks of a small group: rounds would cost as much


class RollCall(Request):
    """What all ranks of a group say of one call (`said`, by rank): done when everyone has."""

    error = None

    def __init__(self, calls, call, text, members):
        self.calls, self.call, self.text, self.told_s = calls, call, text, math.inf
        place, size = members.index(calls.rank), len(members)
        self.others = [member for member in members if member != calls.rank]
        rounds = (size - 1).bit_length() if size > ALL_AT_ONCE and text.endswith("\n") else 0
        self.targets = [members[(place + 2**k) % size] for k in range(rounds)]
        self.said, self.sent = calls.said.setdefault(call, {}), 0
        self.heard = calls.heard.setdefault(call, {})

    @property
    def needs(self) -> set:
        return set(self.others) - self.said.keys()

    @property
    def done(self) -> bool:
        return len(self.said) >= len(self.others) and not self.needs

    def tell_all(self):
        """Tell each rank, unless that is done."""
        if self.told_s == math.inf:
            self.told_s = time.monotonic()
            for peer in self.others:
                self.calls.tell(peer, Kind.ROLL_CALL, self.text, self.call, len(self.targets))

    late = tell_all

    def speak(self):
        """Tell in rounds what is known to be the same, as far as it is."""
        if any(text != self.text for text in self.heard.values()):
            return self.tell_all()
        rounds, known = len(self.targets), 0
        while known in self.heard:
            known += 1
        agreed = known >= rounds or rounds in self.heard
        for number in range(self.sent, rounds if agreed else known + 1):
            self.tell_agreement(self.targets[number], number)
            self.sent = number + 1
        if agreed:
            self.said.update(dict.fromkeys(self.others, self.text))
            self.calls.agreed[self.call[0]] = self
        return None

    def tell_agreement(self, peer, number):
        """Tell a rank of one round; of the one after the last, that all say the same."""
        self.calls.tell(peer, Kind.AGREEMENT, self.text, self.call, number)

    def gone(self, ended, lost):
        """One that was lost may have spoken before, to others: they are asked."""
        if not self.targets or not ended:
            return ended
        self.tell_all()
        asked = ended == self.needs or time.monotonic() - self.told_s > POLL_S
        return ended if asked else ended - lost


class RollCalls:
    """By call, (group, number): what each rank has said of it, and what was `heard` in its rounds.

    A rank that cannot take part, since it waits for something else, answers with that instead.
    """

    def __init__(self, rank, sender):
        self.rank, self.sender = rank, sender
        self.said, self.heard, self.current = {}, {}, {}
        self.answers, self.last_call, self.closed = {}, Counter(), Counter()
        self.agreed = {}  # by group: its last call in which all were heard to say the same
        self.others_tell_s = {}  # when, by call, the first rank told of one that has rounds

    def tell(self, peer, kind, text, call, number=0):
        """Tell a rank something of a call."""
        self.sender.tell(peer, kind, text, Envelope(*call), number)

    def open(self, call, text, members) -> RollCall:
        """Say `text` of a call to the other `members`, and wait for what they say."""
        others_tell_all = call in self.said
        self.current[call] = roll_call = RollCall(self, call, text, members)
        if roll_call.targets:
            roll_call.speak()
        if others_tell_all or not roll_call.targets:
            roll_call.tell_all()
        return roll_call

    def close(self, roll_call) -> dict:
        """Listen to a call no more: what all others have said.  Who has not heard it all, hears at
        least this rank."""
        if not roll_call.done:
            roll_call.tell_all()
        call = roll_call.call
        del self.current[call], self.heard[call]
        self.others_tell_s.pop(call, None)
        self.closed[call[0]] = call[1]
        return self.said.pop(call)

    def hear(self, source, call, text, rounds=0):
        """What a rank says of a call, of so many rounds."""
        group, number = call
        if call in self.answers:
            self.tell(source, Kind.ROLL_CALL, self.answers[call], call)
        elif number > self.closed[group]:
            self.said.setdefault(call, {})[source] = text
            if call in self.current:
                self.current[call].tell_all()
            elif rounds:
                self.others_tell_s.setdefault(call, time.monotonic())
        elif group in self.agreed and self.agreed[group].call == call:
            self.agreed[group].tell_agreement(source, len(self.agreed[group].targets))

    def hear_agreement(self, call, number, text):
        """What ranks say of a call in one of its rounds."""
        if call[1] > self.closed[call[0]]:
            self.heard.setdefault(call, {})[number] = text
            if call in self.current:
                self.current[call].speak()

    def leave(self):
        """This rank will answer no more: whoever is still in a call hears that all have agreed."""
        for roll_call in self.agreed.values():
            for peer in roll_call.others:
                roll_call.tell_agreement(peer, len(roll_call.targets))

    def elsewhere(self) -> dict:
        """{rank: call} of the ranks that wait in calls in which this one has taken no part.  Where
        they speak in rounds, one has told first, and the others are given time to."""
        found, now = {}, time.monotonic()
        for call, said in self.said.items():
            group, number = call
            heard = now - self.others_tell_s.get(call, 0.0) > POLL_S
            if heard and number > self.last_call[group] and not in_background(group):
                found |= dict.fromkeys(said, call)
        return found

    def answer(self, calls, operation) -> dict:
        """Answer `calls` with an operation: {rank: label} of those that wait in them."""
        labels = {}
        for call in calls:
            self.answers[call] = f"{operation}\n"
            self.last_call[call[0]] = self.closed[call[0]] = call[1]
            self.heard.pop(call, None)
            self.others_tell_s.pop(call, None)
            for source, text in self.said.pop(call).items():
                labels[source] = text.partition("\n")[0]
                self.hear(source, call, text)
        return labels
