"""Names of torch operations, by what the observer learns from them."""

from __future__ import annotations

#: Operations of which nothing is learned.
IGNORED = frozenset(
    ("__get__", "dim", "size", "numel", "__len__", "is_floating_point", "stride", "backward", "__repr__",
     "is_complex", "data_ptr", "register_hook", "__bool__", "item", "tolist", "storage_offset", "is_contiguous",
     "__format__", "__int__", "is_nonzero", "get_device", "__contains__", "untyped_storage", "__hash__",
     "__float__", "result_type", "ndimension")
)  # fmt: skip
#: Operations that pass values on without computing them.
VIEWS = frozenset(
    ("detach", "reshape", "view", "flatten", "__getitem__", "squeeze", "unsqueeze", "clone", "to", "cpu",
     "contiguous", "stack", "cat", "concatenate", "index_select", "expand", "float", "double", "as_tensor",
     "from_numpy", "tensor", "split", "chunk", "transpose", "permute", "requires_grad_", "zeros_like", "zeros",
     "empty", "ones", "full", "masked_fill", "where", "numpy", "empty_like", "ones_like", "t", "view_as",
     "detach_", "expand_as", "unbind", "__setitem__", "copy_", "zero_", "FloatTensor", "broadcast_tensors",
     "type", "squeeze_", "repeat", "tile", "nan_to_num", "new_empty", "empty_strided", "new_empty_strided", "resize_")
)  # fmt: skip
#: Operations by which data enter a network.
NETWORK = frozenset(
    ("linear", "embedding", "conv1d", "conv2d", "conv3d", "lstm", "gru", "rnn_tanh", "rnn_relu", "lstm_cell",
     "gru_cell", "matmul", "__matmul__", "bmm", "mm", "addmm", "einsum", "bilinear")
)  # fmt: skip
#: Operations that draw samples.
SAMPLING = frozenset(
    ("multinomial", "bernoulli", "normal", "randn_like", "rand_like", "exponential_", "randn", "rand",
     "poisson", "gumbel_softmax", "normal_", "_sample_dirichlet", "uniform_")
)  # fmt: skip
#: Operations whose results hold numbers of their inputs only.
PASSED_ON = VIEWS - {"as_tensor", "from_numpy", "tensor", "full", "FloatTensor", "masked_fill", "where"}
#: Operations whose results are no log-probs, so that old ones are not looked for among them.
NOT_KEPT = VIEWS | (NETWORK - {"matmul", "__matmul__", "bmm", "mm", "einsum"}) | SAMPLING | frozenset(
    ("tanh", "relu", "relu_", "gelu", "silu", "elu", "leaky_relu", "softplus", "layer_norm",
     "rms_norm", "group_norm", "batch_norm", "dropout", "max_pool2d", "avg_pool2d", "adaptive_avg_pool2d", "pad",
     "scaled_dot_product_attention", "multi_head_attention_forward", "_transformer_encoder_layer_fwd", "randperm",
     "arange", "rsqrt", "cos", "sin", "triu", "tril")
)  # fmt: skip
#: Operations that make finite numbers of finite ones.
KEEP_FINITE = PASSED_ON | frozenset(
    ("tanh", "relu", "relu_", "sigmoid", "abs", "neg", "clamp", "clip", "min", "max", "minimum", "maximum",
     "gather", "amax", "amin", "cummax", "leaky_relu", "elu", "softplus", "round", "floor", "ceil", "sort", "topk")
)  # fmt: skip
SUBTRACT = frozenset(("sub", "__sub__", "__rsub__", "rsub", "subtract"))
MEANS = frozenset(("mean", "nanmean", "repeat_interleave"))
ADD = frozenset(("add", "__add__", "__radd__", "__iadd__", "add_"))
JOIN = frozenset(("stack", "cat", "concatenate", "hstack", "vstack"))
DIVIDE = frozenset(("div", "__truediv__", "true_divide", "divide", "div_", "__itruediv__", "__div__"))
MULTIPLY = frozenset(("mul", "__mul__", "__rmul__", "multiply", "mul_", "__imul__"))
SCALE = DIVIDE | MULTIPLY
NEGATE = frozenset(("neg", "__neg__", "negative"))
CLAMP = frozenset(("clamp", "clip"))
INDEXING = frozenset(("__getitem__", "index_select", "split", "chunk", "gather", "take", "unbind", "narrow"))
JOINING = frozenset(("cat", "concat", "concatenate", "hstack"))
PARTING = frozenset(("unbind", "split", "chunk"))
MODES = frozenset(("dropout", "batch_norm", "feature_dropout", "alpha_dropout"))
SHAPING = frozenset(("reshape", "view", "unsqueeze", "__getitem__"))
NORMALISED = frozenset(("log_softmax", "softmax", "logsumexp", "cross_entropy"))
DETACH = frozenset(("detach", "detach_"))
CASTING = frozenset(("to", "type", "bfloat16", "half"))
