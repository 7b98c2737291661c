"""`slurm()`: ranks on the nodes that Slurm allots.

    launcher (a notebook) ── holder ── srun ╌╌ agent on node 0: fork server ── leader ── rank, rank
         └──────── a connection to each ────── agent on node 1: fork server ── leader ── rank, rank

world        slurm(): the values of a run, over the nodes of an allocation
allocation   the nodes, held by a program (holder) that lives only as long as the launcher
node_workers what the launcher hears of the ranks of all nodes
agent        the program on each node: starts its ranks, relays what they say
queue        what Slurm says of a job that waits
"""
