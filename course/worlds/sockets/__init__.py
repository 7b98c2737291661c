"""How bytes move between real processes: over sockets, and through the memory of a node.

transport    what the communicator calls
sending  ->  stream  ->  socket or shm_ring  ->  polling  ->  receiving  ->  matching  ->  a receive
progress     turns all that while a rank waits, and says who is gone

A short message that nobody has asked for is copied aside (up to 64 KB, receiving.py); a long one
on the same node goes by shared memory (from 128 KB, sending.py).
"""
