"""Real photographs: by name, as patches, as frames with faces; larger sets staged once."""

from course.learning.images.photographs import (
    NATURAL,
    PHOTOGRAPHS,
    RED_GREEN_BLUE,
    SCIKIT_IMAGE,
    SCIKIT_LEARN,
    bsds500,
    check_image,
    grey,
    natural_images,
    patches,
    patches_of_all,
    photograph,
    read,
)
