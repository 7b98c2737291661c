"""`mpi()`: ranks in touch by MPI."""
