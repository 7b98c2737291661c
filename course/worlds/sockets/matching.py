"""Which message is for which receive, in the words of MPI.

A receive is `post`ed, a message that arrives is `match`ed: it is for one of the `posted` receives,
or waits in the queue of `unexpected` messages.  These are headers; receiving.py says where the
payloads are meanwhile.  Those that nobody has received when a rank returns are dropped.
"""

from collections import defaultdict


class Matcher:
    """A message is for the first posted receive that it matches, a receive for the first message
    of a source that matches it; of several sources, rather for one that is here whole."""

    def __init__(self):
        self.posted, self.unexpected = [], defaultdict(list)

    def post(self, receive):
        """The message that was waiting for `receive`, if one was; else it waits for one."""
        found = None
        for source in receive.needs:
            for message in self.unexpected[source]:
                if message.matches(receive):
                    if found is None or message.complete > found.complete:
                        found = message
                    break
        if found is None:
            self.posted.append(receive)
        else:
            self.unexpected[found.source].remove(found)
        return found

    def match(self, message):
        """The receive that was waiting for `message`, if one was; else it waits for one."""
        for receive in self.posted:
            if message.matches(receive):
                self.posted.remove(receive)
                return receive
        self.unexpected[message.source].append(message)
        return None

    def cancel(self, request):
        """Expect no more of a receive."""
        self.posted = [receive for receive in self.posted if receive is not request]

    def revoke(self, key) -> list:
        """Drop the receives of a call, by (group, call); returns the messages that it leaves."""
        self.posted = [receive for receive in self.posted if receive.envelope[:2] != key]
        waiting = [m for messages in self.unexpected.values() for m in messages]
        left = [message for message in waiting if message.envelope[:2] == key]
        for message in left:
            self.unexpected[message.source].remove(message)
        return left

    def withdraw(self, source, number):
        """Take message `number` of a source out of the queue, if it is there: that message."""
        for message in self.unexpected[source]:
            if message.number == number:
                self.unexpected[source].remove(message)
                return message
        return None
