"""Reading training data: files, shards, a loader that reads ahead, and when the GPU starves."""

from course.cluster.storage.files import Files
from course.cluster.storage.loader import Loader
from course.cluster.storage.order import epoch_order
from course.cluster.storage.pod import Demand, Store, feed, step_limits_s, waiting_share
from course.cluster.storage.reading import Reading, drop_cached, read_timed
from course.cluster.storage.shards import Shards, write_shards
from course.cluster.storage.starvation import Starvation, starvation
from course.cluster.storage.tiers import copy_to_local, lru_hits
