"""`torchrun --nproc-per-node=4 -m course.worlds.torchrun module:function`: fn(comm) on each.

Ranks find rank 0's door, and its secret, in torchrun's own store, which asks for none: whoever may
connect to the store's port may join.  Set COURSE_SECRET alike on all nodes where that matters.
"""

import datetime
import os
import secrets
import socket
import sys

from course.worlds.meeting import MEET_S, Meeting, live
from course.worlds.sockets.door import address_towards


def meeting(worker: dict) -> Meeting:
    """Where torchrun's workers meet.  Raises ValueError where torchrun has not started this."""
    if "TORCHELASTIC_RUN_ID" not in worker:
        rule = "python -m course.worlds.torchrun is for workers that torchrun starts"
        raise ValueError(
            f"{rule}: torchrun --nproc-per-node=4 -m course.worlds.torchrun module:function"
        )
    from torch.distributed import TCPStore

    rank, size = int(worker["RANK"]), int(worker["WORLD_SIZE"])
    patience = datetime.timedelta(seconds=MEET_S)
    where = worker["MASTER_ADDR"], int(worker["MASTER_PORT"])
    store = TCPStore(*where, is_master=False, timeout=patience)
    key = f"course {worker['TORCHELASTIC_RESTART_COUNT']}"
    if rank == 0:
        address = address_towards(socket.gethostbyname(where[0]))
        with socket.create_server((address, 0)) as free:
            port = free.getsockname()[1]
        secret = worker.get("COURSE_SECRET") or secrets.token_hex(32)
        shown = "" if "COURSE_SECRET" in worker else secret
        store.set(key, f"{address} {port} {shown}")
    address, port, *shown = store.get(key).decode().split()
    secret = worker.get("COURSE_SECRET") or shown[0]
    return Meeting(rank, size, address, int(port), secret.encode())


if __name__ == "__main__":
    live(meeting(dict(os.environ)), int(os.environ.get("LOCAL_WORLD_SIZE", "1")), sys.argv[1])
