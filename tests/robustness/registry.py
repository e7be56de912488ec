"""Every public function is tried by a record, or left out with a reason."""

from __future__ import annotations

import inspect
from typing import Any

import alpha
from alpha import nn, optim, torch_types
from alpha.functions import with_indices
from alpha.nn.function_layer import FunctionLayer
from tests.robustness.records import RECORDS

_NO_FUNCTION = "makes no tensor from tensors: it sets or tells a mode, an engine or a generator's place"
_LEAF = "tells or sets what a tensor is; other calls go through it all the time"
_FILES = "reads and writes files: the storms on checkpoints try it"
_MODULE = "holds other modules or parameters and computes nothing itself"
_STATE = "keeps state over many steps: the tests of nn and optim compare it with PyTorch"
_COMPARED = "has weights of its own: its own tests compare it with PyTorch, and give it bad arguments"
_LAZY = "becomes the layer that it stands for: its own tests compare it with that"
_DEVICE = "needs a second engine"
_CALLS = "calls one function that has a record"
_OPINFO = "PyTorch's own samples hold its results and gradients (tests/opinfo), hostile.py its errors"
_WRITES = "writes into a tensor what a function with a record makes of it, as others do that have records"

_SETS_NOTHING = "sets or tells how the process computes, draws or prints: test_settings tries it"
_BECOMES = "a tensor becomes a view of itself or gets other memory: test_shape_in_place compares it with PyTorch"

_SETTINGS = """
are_deterministic_algorithms_enabled get_default_device get_deterministic_debug_mode get_float32_matmul_precision
get_num_threads get_rng_state initial_seed is_deterministic_algorithms_warn_only_enabled seed set_default_device
set_deterministic_debug_mode set_float32_matmul_precision set_num_threads set_printoptions set_rng_state typename
use_deterministic_algorithms
"""

_FACTS = "is_inference is_neg is_nonzero is_same_size is_signed numel"
_FACT_METHODS = """
apply_ data_ptr get_device is_pinned is_set_to is_shared map2_ map_ ndimension nelement new new_empty_strided
pin_memory share_memory_ storage_offset to_dense type
"""
_SHAPES_IN_PLACE = """
as_strided_ detach_ resize_ resize_as_ squeeze_ swapaxes_ swapdims_ t_ transpose_ unsqueeze_
"""

_LEAF_METHODS = """
__init__ __len__ __iter__ __bool__ __float__ __int__ __index__ __repr__ __hash__ __deepcopy__ __dlpack__
__dlpack_device__ __contains__ __delitem__ __format__ __reversed__ __reduce__ __reduce_ex__ __getstate__ __setstate__
__copy__ dense strided view dim numel element_size size stride memory_order is_contiguous backward requires_grad_
retain_grad register_hook T
"""

_PRODUCTS = ("dot", "gemv", "ger", "ger_", "matmul", "outer")
_MATRICES = """
cholesky cholesky_inverse cholesky_solve det geqrf inverse logdet lu lu_solve lu_unpack matrix_exp matrix_power orgqr
ormqr pca_lowrank pinverse qr slogdet svd svd_lowrank triangular_solve
"""

_COMPLEX = """
angle complex conj conj_physical imag is_conj istft polar real stft view_as_complex view_as_real Tensor.__complex__
Tensor.cdouble Tensor.cfloat Tensor.conj_physical_ Tensor.resolve_conj Tensor.resolve_neg
"""

_CASTS = "bfloat16 byte char half short"
_CASTING = "is cast to one dtype: tests of that dtype try it"

_COMPOSED = "is made of functions that have records: its own tests compare it with PyTorch"

_COMPOSITIONS = """
alpha.addbmm alpha.addmm alpha.addmv alpha.addr alpha.aminmax alpha.as_strided_scatter alpha.baddbmm alpha.bmm
alpha.broadcast_shapes alpha.broadcast_tensors alpha.cartesian_prod alpha.chain_matmul alpha.combinations
alpha.concatenate alpha.cross alpha.dist alpha.dsplit alpha.einsum alpha.ger alpha.gradient alpha.hsplit alpha.inner
alpha.kron alpha.linalg.cross alpha.linalg.diagonal alpha.linalg.multi_dot alpha.linalg.vecdot alpha.linalg.vector_norm
alpha.mm alpha.mv alpha.renorm alpha.resolve_conj alpha.resolve_neg alpha.slice_scatter alpha.split_with_sizes
alpha.std_mean alpha.sum_to_size alpha.tensordot alpha.unflatten alpha.Tensor.unflatten alpha.var_mean alpha.vdot
alpha.vsplit
"""

_CALLING_METHODS = """
broadcast_to expand_as repeat reshape_as tile view_as where type_as new_tensor new_empty new_zeros new_ones new_full
"""

_WRITING_METHODS = """
clamp_ cumsum_ masked_fill_ relu_ addbmm_ addmm_ addmv_ addr_ baddbmm_ fill_diagonal_ renorm_ tril_ triu_
absolute_ acos_ acosh_ addcdiv_ addcmul_ arccos_ arccosh_ arcsin_ arcsinh_ arctan2_ arctan_ arctanh_ asin_ asinh_
atan2_ atan_ atanh_ bitwise_and_ bitwise_left_shift_ bitwise_not_ bitwise_or_ bitwise_right_shift_ bitwise_xor_ clamp_
clamp_max_ clamp_min_ clip_ copysign_ cosh_ cumsum_ deg2rad_ digamma_ divide_ erfc_ erfinv_ exp2_ fix_ float_power_
fmod_ frac_ gcd_ greater_ greater_equal_ heaviside_ hypot_ i0_ lcm_ ldexp_ lerp_ less_ less_equal_ lgamma_ log10_
log2_ logit_ masked_fill_ multiply_ mvlgamma_ nan_to_num_ negative_ nextafter_ not_equal_ polygamma_ rad2deg_ relu_
igamma_ igammac_ round_ sgn_ sinc_ sinh_ subtract_ tan_ true_divide_ trunc_ xlogy_
"""

_WRITING = "celu_ elu_ hardtanh_ leaky_relu_ relu_ rrelu_ selu_ threshold_"

_OF_OTHERS = "erf expit expm1 log1p log_softmax logsumexp softmax"
"""What ``alpha.special`` has of functions that have a record."""

_OTHER_NAMES = """
absolute clip divide greater greater_equal less less_equal multiply negative not_equal
sgn subtract true_divide
"""

_OLDER_INIT = """
constant dirac eye kaiming_normal kaiming_uniform normal orthogonal sparse uniform xavier_normal xavier_uniform
"""

_PADS = ("Zero", "Constant", "Reflection", "Replication", "Circular")


def _layer(name: str) -> type:
    """A public class of nn; of what is none, ``object``."""
    found = getattr(nn, name)
    return found if isinstance(found, type) else object


EXCLUDED: dict[str, str] = {
    **dict.fromkeys(
        (
            "alpha.Engine",
            "alpha.random.mixed",
            "alpha.random.begin_own_sequence",
            "alpha.random.drawing_again",
            "alpha.random.end_own_sequence",
            "alpha.random.in_step",
            "alpha.random.is_drawing_again",
            "alpha.random.own_sequence",
            "alpha.random.sequence",
            "alpha.random.sequence_kept",
            "alpha.random.stage_state",
            "alpha.Function",
            "alpha.Tensor",
            "alpha.default_engine",
            "alpha.enable_grad",
            "alpha.engine",
            "alpha.finfo",
            "alpha.iinfo",
            "alpha.get_float32_precision",
            "alpha.get_image_layout",
            "alpha.get_search",
            "alpha.is_grad_enabled",
            "alpha.no_grad",
            "alpha.register_engine",
            "alpha.set_default_engine",
            "alpha.set_float32_precision",
            "alpha.set_image_layout",
            "alpha.set_grad_enabled",
            "alpha.set_search",
            "alpha.random.seed",
            "alpha.random.get_state",
            "alpha.random.set_state",
            "alpha.random.check_state",
            "alpha.random.checked",
            "alpha.random.reserve",
            "alpha.random.words_needed",
            "alpha.random.uniform_bounds",
            "alpha.random.draw_normal",
            "alpha.random.draw_uniform",
            "alpha.random.numpy_generator",
            "nn.init.calculate_gain",
            "nn.init.fans",
        ),
        _NO_FUNCTION,
    ),
    **dict.fromkeys([f"alpha.{name}" for name in _SETTINGS.split()], _SETS_NOTHING),
    **dict.fromkeys([f"alpha.Tensor.{name}" for name in _SHAPES_IN_PLACE.split()], _BECOMES),
    **dict.fromkeys(
        [f"alpha.{name}" for name in _FACTS.split()] + [f"alpha.Tensor.{name}" for name in _FACT_METHODS.split()],
        "tells what a tensor is, or does what test_facts tries",
    ),
    **dict.fromkeys(("alpha.cond", "alpha.while_loop"), "calls functions that it is given: test_facts tries it"),
    "alpha.histogramdd": _OPINFO,
    **dict.fromkeys(
        ("alpha.unsafe_chunk", "alpha.unsafe_split", "alpha.unsafe_split_with_sizes"),
        "another name of a function that has a record",
    ),
    "alpha.to_dlpack": "hands memory to other libraries: test_facts tries it",
    **dict.fromkeys(("alpha.load", "alpha.save"), _FILES),
    **dict.fromkeys([f"alpha.linalg.{name}" for name in alpha.linalg.__all__ if name not in _PRODUCTS], _OPINFO),
    **dict.fromkeys([f"alpha.{name}" for name in _MATRICES.split()], _OPINFO),
    **dict.fromkeys([f"alpha.fft.{name}" for name in alpha.fft.__all__], _OPINFO),
    **dict.fromkeys([f"alpha.{name}" for name in _COMPLEX.split()], _OPINFO),
    **dict.fromkeys([f"alpha.Tensor.{name}" for name in _CASTS.split()], _CASTING),
    "alpha.Tensor.__array_namespace__": "names a module: tests of the array API standard try it",
    "alpha.Tensor.to_device": "calls to, which has a record",
    "alpha.get_default_dtype": _SETS_NOTHING,
    "alpha.set_default_dtype": _SETS_NOTHING,
    "alpha.inference_mode": _NO_FUNCTION,
    "alpha.is_inference_mode_enabled": _NO_FUNCTION,
    "alpha.Tensor.register_post_accumulate_grad_hook": _LEAF,
    **dict.fromkeys(
        ("alpha.asarray", "alpha.from_dlpack", "alpha.frombuffer"),
        "takes other libraries' objects, whose memory it shares: test_exchange tries it",
    ),
    "alpha.graph": "captures a step on a device: its own tests replay it",
    **dict.fromkeys(
        ("alpha.random.philox", "alpha.random.words", "alpha.random.uniforms"),
        "the generator itself, whose bits its own tests hold against published ones",
    ),
    **dict.fromkeys([f"alpha.Tensor.{name}" for name in _LEAF_METHODS.split()], _LEAF),
    "alpha.Tensor.cuda": _DEVICE,
    **dict.fromkeys(
        [f"alpha.{kind}Tensor" for kind in torch_types.TYPES if not kind.startswith("Complex")],
        "makes what tensor makes: test_pytorchs_older_names asks for all forms",
    ),
    "alpha.Size": "a tuple: test_pytorchs_older_names asks for what it adds",
    "alpha.memory_format": "names of orders: test_memory_formats asks for each",
    "alpha.Generator": "keeps a place in a sequence: test_random draws from it",
    "alpha.device": "names an engine: its own tests ask for all that it tells",
    **dict.fromkeys([f"alpha.Tensor.{name}" for name in _CALLING_METHODS.split()], _CALLS),
    **dict.fromkeys(_COMPOSITIONS.split(), _COMPOSED),
    **dict.fromkeys([f"alpha.Tensor.{name}" for name in _WRITING_METHODS.split()], _WRITES),
    **dict.fromkeys([f"{space}.{name}" for space in ("alpha", "nn.functional") for name in _WRITING.split()], _WRITES),
    **dict.fromkeys([f"alpha.special.{name}" for name in _OF_OTHERS.split()], "another name of a function of alpha's"),
    **dict.fromkeys([f"alpha.{name}" for name in _OTHER_NAMES.split()], "another name of a function that has a record"),
    **dict.fromkeys(
        ("alpha.can_cast", "alpha.is_complex", "alpha.is_floating_point", "alpha.is_tensor", "alpha.promote_types"),
        "tells what a dtype or a tensor is: its own tests compare it with PyTorch",
    ),
    **dict.fromkeys(
        ("alpha.equal", "alpha.result_type"), "tells a bool or a dtype: its own tests compare it with PyTorch"
    ),
    **dict.fromkeys(
        ("alpha.Tensor.normal_", "alpha.Tensor.uniform_"),
        "draws as nn.init's functions of these names do",
    ),
    **dict.fromkeys(
        (
            "nn.Buffer",
            "nn.Module",
            "nn.ModuleDict",
            "nn.ModuleList",
            "nn.Parameter",
            "nn.ParameterDict",
            "nn.ParameterList",
            "nn.Sequential",
        ),
        _MODULE,
    ),
    **dict.fromkeys(
        [f"{space}.upsample{kind}" for space in ("alpha", "nn.functional") for kind in ("", "_nearest", "_bilinear")],
        "calls interpolate, which has a record",
    ),
    "nn.functional.one_hot": "alpha.one_hot, which has a record",
    **dict.fromkeys(
        [f"{space}.native_channel_shuffle" for space in ("alpha", "nn.functional")], "channel_shuffle has a record"
    ),
    **dict.fromkeys(
        ("alpha.conv_tbc", "nn.functional.conv_tbc", "nn.functional.multi_head_attention_forward"), _COMPOSED
    ),
    **dict.fromkeys([f"nn.functional.{name}" for name in with_indices.__all__], _CALLS),
    **dict.fromkeys(
        (
            "nn.AdaptiveLogSoftmaxWithLoss",
            "nn.GRU",
            "nn.GRUCell",
            "nn.LSTM",
            "nn.LSTMCell",
            "nn.MultiheadAttention",
            "nn.RNN",
            "nn.RNNBase",
            "nn.RNNCell",
            "nn.RNNCellBase",
            "nn.Transformer",
            "nn.TransformerDecoder",
            "nn.TransformerDecoderLayer",
            "nn.TransformerEncoder",
            "nn.TransformerEncoderLayer",
        ),
        _COMPARED,
    ),
    **dict.fromkeys(
        (
            "nn.LazyBatchNorm1d",
            "nn.LazyBatchNorm2d",
            "nn.LazyBatchNorm3d",
            "nn.LazyInstanceNorm1d",
            "nn.LazyInstanceNorm2d",
            "nn.LazyInstanceNorm3d",
            "nn.LazyConv1d",
            "nn.LazyConv2d",
            "nn.LazyConv3d",
            "nn.LazyConvTranspose1d",
            "nn.LazyConvTranspose2d",
            "nn.LazyConvTranspose3d",
            "nn.LazyLinear",
            "nn.UninitializedBuffer",
            "nn.UninitializedParameter",
        ),
        _LAZY,
    ),
    "nn.DataParallel": "calls its module",
    "optim.Sharded": "the optimizer that it wraps, on several ranks; test_sharded compares the two",
    "nn.SyncBatchNorm": "BatchNorm on one rank; test_sync_norm compares several with one process",
    "nn.AveragedViews": "calls its module for slices, pad and flip, which have records",
    **dict.fromkeys(("nn.init.eye_", "nn.init.sparse_"), "test_init tries what it writes"),
    **dict.fromkeys([f"nn.init.{name}" for name in _OLDER_INIT.split()], "calls the function whose older name it is"),
    "nn.init.whiten_patches_": "its own tests hold the covariance of its results; eigenvectors have no single value",
    **dict.fromkeys(
        (
            "nn.BatchNorm1d",
            "nn.BatchNorm2d",
            "nn.BatchNorm3d",
            "nn.Bilinear",
            "nn.EmbeddingBag",
            "nn.GroupNorm",
            "nn.InstanceNorm1d",
            "nn.InstanceNorm2d",
            "nn.InstanceNorm3d",
            "nn.LayerNorm",
            "nn.CrossMapLRN2d",
            "nn.PReLU",
            "nn.RMSNorm",
            "nn.RReLU",
            "nn.Softmax2d",
            "nn.Dropout",
            "nn.Embedding",
            "nn.Flatten",
            "nn.Unflatten",
            *(f"nn.{name}" for name in nn.__all__ if issubclass(_layer(name), FunctionLayer)),
            *(f"nn.{kind}Pad{n}d" for kind in _PADS for n in (1, 2, 3)),
        ),
        "calls one function that has a record with the same arguments",
    ),
    **dict.fromkeys(
        (
            "optim.ASGD",
            "optim.Adadelta",
            "optim.Adafactor",
            "optim.Adagrad",
            "optim.Adamax",
            "optim.AveragedModel",
            "optim.ChainedScheduler",
            "optim.ConstantLR",
            "optim.CosineAnnealingWarmRestarts",
            "optim.CyclicLR",
            "optim.LBFGS",
            "optim.LRScheduler",
            "optim.LambdaLR",
            "optim.MultiplicativeLR",
            "optim.Muon",
            "optim.NAdam",
            "optim.OneCycleLR",
            "optim.Optimizer",
            "optim.PolynomialLR",
            "optim.RAdam",
            "optim.ReduceLROnPlateau",
            "optim.Rprop",
            "optim.SequentialLR",
        ),
        _STATE,
    ),
}
"""Public names that no record tries, and why."""


def public() -> set[str]:
    """Names of all public callables, as users write them."""
    found = {f"alpha.{n}" for n in alpha.__all__ if _callable(getattr(alpha, n))}
    found |= {f"alpha.linalg.{n}" for n in alpha.linalg.__all__}
    found |= {f"alpha.special.{n}" for n in alpha.special.__all__}
    found |= {f"alpha.fft.{n}" for n in alpha.fft.__all__}
    found |= {f"alpha.random.{n}" for n, value in vars(alpha.random).items() if _is_defined_in(value, alpha.random, n)}
    found |= {f"nn.functional.{n}" for n in nn.functional.__all__}
    found |= {f"nn.{n}" for n in nn.__all__ if _callable(getattr(nn, n))}
    found |= {f"nn.init.{n}" for n, value in vars(nn.init).items() if _is_defined_in(value, nn.init, n)}
    found |= {f"optim.{n}" for n in optim.__all__ if _callable(getattr(optim, n))}
    for name, value in vars(alpha.Tensor).items():
        if value is getattr(alpha, name, None):
            continue  # the function itself, which has a record
        special = name.startswith("__") and name.endswith("__")
        if (callable(value) or isinstance(value, staticmethod)) and (special or not name.startswith("_")):
            found.add(f"alpha.Tensor.{name}")
    return found


def tried() -> set[str]:
    """Names that a record tries."""
    return {record.name for record in RECORDS} | {name for record in RECORDS for name in record.covers}


def _callable(value: Any) -> bool:
    return callable(value)


def _is_defined_in(value: Any, module: Any, name: str) -> bool:
    return inspect.isfunction(value) and value.__module__ == module.__name__ and not name.startswith("_")


def missing() -> set[str]:
    """Public names without a record and without a reason."""
    return public() - tried() - set(EXCLUDED)
