"""Real photographs: by name, as patches, as frames with faces; larger sets staged once."""

from course.learning.images.photographs import (
    HEADS,
    NATURAL,
    PHOTOGRAPHS,
    bsds500,
    grey,
    natural_images,
    patches,
    patches_of_all,
    photograph,
    read,
)
