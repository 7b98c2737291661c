"""What MPI asks of the process manager that has started its ranks.

`mpirun` starts ranks and then serves them: who am I, who shares my node, what have the others put
into the common table?  MPICH asks in lines of key=value (its protocol PMI-1), on a socket that a
rank inherits.  The manager of `mpi()` is the launcher itself, so no other program takes part.
"""

import secrets

VERSION = "pmi_version=1 pmi_subversion=1"
LENGTHS = "kvsname_max=256 keylen_max=256 vallen_max=1024"  # of a table's name, a key, a value
FD = "PMI_FD"  # the variable that holds the number of a rank's socket


def environment(rank: int, size: int, fd: int) -> dict:
    """The variables by which a rank finds its manager."""
    return {FD: str(fd), "PMI_RANK": str(rank), "PMI_SIZE": str(size)}


class ProcessManager:
    """Answers `size` ranks of one node.  The table's name is secret and never used again: MPICH
    derives from it the name of a file that ranks share, and would take an older one for its own."""

    def __init__(self, size: int):
        self.size, self.name = size, secrets.token_hex(16)
        self.table = {"PMI_process_mapping": f"(vector,(0,1,{size}))"}  # all on node 0
        self.pending = dict.fromkeys(range(size), b"")
        self.in_barrier = 0  # ranks

    def answers(self, rank: int, data: bytes) -> list:
        """What to send to whom, as (rank, bytes), now that `data` has come from `rank`."""
        *requests, self.pending[rank] = (self.pending[rank] + data).split(b"\n")
        found = []
        for request in requests:
            words = (word.partition("=") for word in request.decode(errors="replace").split())
            found += self._answer(rank, {key: value for key, _, value in words})
        return [(to, f"cmd={line}\n".encode()) for to, line in found]

    def _answer(self, rank, request) -> list:
        command, key = request.get("cmd"), request.get("key")
        if command == "barrier_in":
            self.in_barrier = (self.in_barrier + 1) % self.size
            return [] if self.in_barrier else [(one, "barrier_out") for one in range(self.size)]
        if command == "put":
            self.table[key] = request.get("value", "")
        known = key in self.table
        value = f"rc=0 msg=found value={self.table[key]}" if known else "rc=-1 msg=unknown"
        line = {
            "init": f"response_to_init {VERSION} rc=0",
            "get_maxes": f"maxes {LENGTHS}",
            "get_appnum": "appnum appnum=0",
            "get_my_kvsname": f"my_kvsname kvsname={self.name}",
            "get_universe_size": f"universe_size size={self.size}",
            "put": "put_result rc=0 msg=success",
            "get": f"get_result {value}",
            "finalize": "finalize_ack",
        }.get(command)
        return [] if line is None else [(rank, line)]
