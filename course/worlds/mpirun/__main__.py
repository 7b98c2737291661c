"""`mpirun -n 4 python -m mpi4py -m course.worlds.mpirun module:function`."""

import sys

from course.worlds.mpirun.world import main

if __name__ == "__main__":
    main(*sys.argv[1:])
