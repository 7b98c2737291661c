"""Draw what a rank fetches at once for several layers, and say what it computes for them."""

from course.classroom.drawings import tiles
from course.classroom.tile_runs import grown
from course.parallel.array import Box, evenly

ACROSS, INNER = 4, 6  # ranks across; one with neighbours on all sides


def shares(shape, layers, window):
    """Of the inner rank's tile: the region that it fetches, and what it computes of all layers'
    places, each as a share of its own."""
    regions = _regions(shape, layers, window)
    own = evenly(shape, (ACROSS, ACROSS)).box(INNER).size
    computed = sum(_regions(shape, below, window)[INNER].size for below in range(layers))
    return regions[INNER].size / own, computed / (layers * own)


def draw(image, layers, window):
    """The region on an image [height, width], for so many layers of window x window.  Returns the
    axes."""
    fetched, computed = shares(image.shape, layers, window)
    answer = f"Layers: {layers}; the region: {fetched:.1f} tiles; the rank "
    answer += f"computes {computed:.1f} times its share"
    layout = evenly(image.shape, (ACROSS, ACROSS))
    regions = _regions(image.shape, layers, window)
    return tiles.draw(image, layout, regions, answer, shown=[INNER])


def _regions(shape, below, window):
    """What each rank needs of the image that lies so many layers below its answers."""
    reach, whole = below * (window // 2), Box.whole(shape)
    boxes = evenly(shape, (ACROSS, ACROSS)).boxes()
    return [grown(box, (reach, reach)).meet(whole) for box in boxes]
