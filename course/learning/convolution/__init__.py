"""One convolution in many ways, and filters that share no weights."""

from course.learning.convolution.tied import (
    columns,
    direct,
    fft,
    fft_multiplications,
    gemm,
    multiplications,
)
