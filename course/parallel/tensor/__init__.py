"""Tensor parallel: every rank has a part of each layer, and all work on the same samples."""

from course.parallel.tensor.attention import HeadAttention
from course.parallel.tensor.dropout import Dropout
from course.parallel.tensor.linear import MLP, ColumnLinear, RowLinear
from course.parallel.tensor.norms import clip_grad_norm, grad_norm, whole_norms
from course.parallel.tensor.plan import tensor_parallel
from course.parallel.tensor.sequence import gathered, on_rows, scattered
from course.parallel.tensor.state import load_whole_state_dict, whole_state_dict
from course.parallel.tensor.vocabulary import VocabEmbedding, vocab_cross_entropy

__all__ = [
    "ColumnLinear", "Dropout", "HeadAttention", "MLP", "RowLinear", "VocabEmbedding",
    "clip_grad_norm", "gathered", "grad_norm", "load_whole_state_dict", "on_rows", "scattered",
    "tensor_parallel", "vocab_cross_entropy", "whole_norms", "whole_state_dict",
]  # fmt: skip
