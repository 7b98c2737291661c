"""One convolution in many ways, and filters that share no weights."""

from course.learning.convolution.tied import (
    checked_sizes,
    columns,
    direct,
    fft,
    fft_multiplications,
    fft_size,
    gemm,
    multiplications,
    output_size,
)
