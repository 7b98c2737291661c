"""When ranks are lost: how often to save, what, and how to go on.

interval, failures         the best interval between saves by formula, and in simulated time
parts, ..., checkpoints    what a training is made of, saved whole and beside it
restarts                   a training that is started again, with as many ranks or others
"""

from course.cluster.failover.checkpoints import Checkpoints
from course.cluster.failover.order import Order
from course.cluster.failover.parallel_parts import ElasticWorkers, Residuals, Shards
from course.cluster.failover.parts import Alike, Each, Model
from course.cluster.failover.random_parts import RandomNumbers
from course.cluster.failover.restarts import train_with_checkpoints, train_with_restarts
