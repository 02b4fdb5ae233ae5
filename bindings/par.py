# par.py - par.h for Python: collectives on whatever has the buffer protocol (NumPy arrays, array.array,
# memoryview, ctypes arrays) or DLPack (tensors of PyTorch, JAX, CuPy on the CPU).
#
# Public domain or MIT-0, as par.h.
"""
USE
    make build/libpar.so
    PYTHONPATH=bindings PAR_RANKS=2 python3 prog.py

    The library may lie beside this file, in ../build, in ../../lib (where make install puts it), where the loader
    finds libraries, or be named by PAR_LIBRARY.

EXAMPLE
    import array, par
    world = par.Comm()                                  # from here on PAR_RANKS ranks run
    x = array.array("d", [1, 2, world.rank])
    world.all_reduce(x)                                 # in place; or all_reduce(send, recv, op="max")
    if world.rank == 0: print(world.size, "ranks:", list(x))

Run it under srun, torchrun or mpiexec (with a libpar.so that has MPI), too. Without these par_open
forks, so call Comm() before the program starts threads; where an import has started some, it runs the script
again for each rank, which a script on standard input cannot. A prompt or a notebook starts no ranks: %%writefile
prog.py in one cell, then !PAR_RANKS=2 python3 prog.py.

Every kind of call of par.h is a method with C's arguments but for count and dtype, which follow from the arrays:
send and recv, then by name op, root, peer, recv_counts, ... dtype="bf16" says what integers of that size hold. A _begin form
returns a Request; its wait() ends the call, and keeps the arrays until then. Where nobody keeps it, it waits at once.
neighbors_open(peers) returns Neighbors, which exchange halos. Memory of alloc is what peer, signal and wait_signal
access: the buffer of another rank, and slices of its own.

What a call reads and writes are the elements in memory, from the first to the last. So an array has C's order,
no gaps and the processor's order of bytes, and is just as long as the call needs; with counts recv, or what is cut into
blocks, may be longer. Anything else is a TypeError or ValueError before data move, of which the other ranks hear.
Errors of the kit raise par.Error. par.lib.par_... are all functions of C whose arguments Python has, for what is
not here.
"""
import builtins
import ctypes
import ctypes.util
import operator
import os
import sys
from ctypes import c_char_p, c_double, c_float, c_int, c_size_t, c_uint64, c_void_p

# GENERATED constants by make bindings
VERSION = "0.9.0"
_RESULTS = [
    ("PAR_OK", "success"),
    ("PAR_ERR_ARGUMENT", "an argument is not valid"),
    ("PAR_ERR_MEMORY", "out of memory"),
    ("PAR_ERR_SYSTEM", "a system call failed"),
    ("PAR_ERR_MPI", "an MPI call failed"),
    ("PAR_ERR_UNSUPPORTED", "not supported by this build"),
    ("PAR_ERR_MISMATCH", "ranks made different calls"),
    ("PAR_ERR_TIMEOUT", "a rank did not arrive before the deadline"),
    ("PAR_ERR_PEER_DIED", "a rank ended before making this call"),
    ("PAR_ERR_ABORTED", "a rank called par_abort"),
    ("PAR_ERR_REVOKED", "a rank called par_revoke"),
    ("PAR_ERR_FILE", "a file is missing or damaged"),
    ("PAR_ERR_LOST", "no rank that is left has these states"),
]
# constant, name, C type, C type that adds, family
_DTYPES = [
    ("PAR_F64", "f64", "double", "double", "FLOAT"),
    ("PAR_F32", "f32", "float", "float", "FLOAT"),
    ("PAR_F16", "f16", "uint16_t", "float", "NARROW"),
    ("PAR_BF16", "bf16", "uint16_t", "float", "NARROW"),
    ("PAR_F8_E4M3", "f8_e4m3", "uint8_t", "float", "NARROW"),
    ("PAR_F8_E5M2", "f8_e5m2", "uint8_t", "float", "NARROW"),
    ("PAR_I8", "i8", "int8_t", "uint8_t", "SIGNED"),
    ("PAR_U8", "u8", "uint8_t", "uint8_t", "UNSIGNED"),
    ("PAR_I32", "i32", "int32_t", "uint32_t", "SIGNED"),
    ("PAR_U32", "u32", "uint32_t", "uint32_t", "UNSIGNED"),
    ("PAR_I64", "i64", "int64_t", "uint64_t", "SIGNED"),
    ("PAR_U64", "u64", "uint64_t", "uint64_t", "UNSIGNED"),
]
_OPS = [
    ("PAR_SUM", "sum"),
    ("PAR_AVG", "avg"),
    ("PAR_PROD", "prod"),
    ("PAR_MIN", "min"),
    ("PAR_MAX", "max"),
    ("PAR_SCALED_SUM", "scaled_sum"),
    ("PAR_TREE_SUM", "tree_sum"),
]
# constant, name, send, recv, who passes counts, other arguments
_KINDS = [
    ("PAR_KIND_BARRIER", "barrier", "NONE", "NONE", "NONE", "NONE"),
    ("PAR_KIND_ALL_REDUCE", "all_reduce", "BLOCK", "BLOCK", "NONE", "OP"),
    ("PAR_KIND_REDUCE_SCATTER", "reduce_scatter", "ALL", "BLOCK", "NONE", "OP"),
    ("PAR_KIND_REDUCE_SCATTERV", "reduce_scatterv", "ALL", "BLOCK", "SAME", "OP"),
    ("PAR_KIND_ALL_GATHER", "all_gather", "BLOCK", "ALL", "NONE", "NONE"),
    ("PAR_KIND_ALL_GATHERV", "all_gatherv", "BLOCK", "ALL", "SAME", "NONE"),
    ("PAR_KIND_BROADCAST", "broadcast", "ROOT_BLOCK", "BLOCK", "NONE", "ROOT"),
    ("PAR_KIND_REDUCE", "reduce", "BLOCK", "ROOT_BLOCK", "NONE", "OP_ROOT"),
    ("PAR_KIND_GATHER", "gather", "BLOCK", "ROOT_ALL", "NONE", "ROOT"),
    ("PAR_KIND_GATHERV", "gatherv", "BLOCK", "ROOT_ALL", "ROOT", "ROOT"),
    ("PAR_KIND_SCATTER", "scatter", "ROOT_ALL", "BLOCK", "NONE", "ROOT"),
    ("PAR_KIND_SCATTERV", "scatterv", "ROOT_ALL", "BLOCK", "ROOT", "ROOT"),
    ("PAR_KIND_ALL_TO_ALL", "all_to_all", "ALL", "ALL", "NONE", "NONE"),
    ("PAR_KIND_ALL_TO_ALLV", "all_to_allv", "ALL", "ALL", "OWN", "NONE"),
    ("PAR_KIND_SEND", "send", "BLOCK", "NONE", "NONE", "PEER"),
    ("PAR_KIND_RECV", "recv", "NONE", "BLOCK", "NONE", "PEER"),
    ("PAR_KIND_NEIGHBOR_EXCHANGE", "neighbor_exchange", "ALL", "ALL", "OWN", "NEIGHBORS"),
]
# END GENERATED
# GENERATED structs by make bindings


class par_dtype_traits(ctypes.Structure):
    _fields_ = [
        ("name", c_char_p),
        ("bytes", c_size_t),
        ("is_float", c_int),
        ("is_signed", c_int),
        ("accumulator", c_int),
        ("max", c_double),
        ("safetensors", c_char_p),
    ]


class par_desc(ctypes.Structure):
    _fields_ = [
        ("rank_count", c_int),
        ("node_ranks", c_int),
        ("run_again", c_int),
        ("timeout_s", c_double),
        ("arena_bytes", c_size_t),
        ("stage_bytes", c_size_t),
        ("trace", c_char_p),
        ("progress", c_int),
        ("keep_cpus", c_int),
        ("elastic", c_int),
    ]


class par_request(ctypes.Structure):
    _fields_ = [
        ("operation", c_void_p),
        ("ticket", c_uint64),
    ]


class par_kind_traits(ctypes.Structure):
    _fields_ = [
        ("name", c_char_p),
        ("send", c_int),
        ("recv", c_int),
        ("counts", c_int),
        ("takes", c_int),
        ("runs", c_int),
    ]


class par_call(ctypes.Structure):
    _fields_ = [
        ("send", c_void_p),
        ("recv", c_void_p),
        ("count", c_size_t),
        ("send_counts", c_void_p),
        ("send_displs", c_void_p),
        ("recv_counts", c_void_p),
        ("recv_displs", c_void_p),
        ("kind", c_int),
        ("dtype", c_int),
        ("op", c_uint64),
        ("root", c_int),
        ("tag", c_int),
        ("site", c_char_p),
    ]


class par_ledger(ctypes.Structure):
    _fields_ = [
        ("calls", c_uint64),
        ("sent_count", c_uint64),
        ("sent_bytes", c_uint64),
        ("net_messages", c_uint64),
        ("net_bytes", c_uint64),
        ("seconds", c_double),
        ("predicted_seconds", c_double),
    ]


class par__seat(ctypes.Structure):
    _fields_ = [
        ("world_rank", c_int),
        ("node", c_int),
    ]


class par__round_trip(ctypes.Structure):
    _fields_ = [
        ("sent", c_double),
        ("remote", c_double),
        ("received", c_double),
    ]
# END GENERATED


# GENERATED functions by make bindings
_FUNCTIONS = {
    "par_result_name": (c_char_p, [c_int]),
    "par_result_text": (c_char_p, [c_int]),
    "par_last_error": (c_char_p, [c_void_p]),
    "par_scaled_sum": (c_uint64, [c_double]),
    "par_op_factor": (c_double, [c_uint64]),
    "par_dtype_bytes": (c_size_t, [c_int]),
    "par_dtype_name": (c_char_p, [c_int]),
    "par_op_name": (c_char_p, [c_uint64]),
    "par_dtype_parse": (c_int, [c_char_p, c_void_p]),
    "par_op_parse": (c_int, [c_char_p, c_void_p]),
    "par_cast": (c_int, [c_void_p, c_int, c_void_p, c_int, c_size_t]),
    "par_open": (c_int, [c_void_p, c_void_p]),
    "par_defaults": (c_int, [c_void_p, c_void_p]),
    "par_launched": (c_int, [c_void_p]),
    "par_close": (c_int, [c_void_p]),
    "par_abort": (c_int, [c_void_p, c_char_p]),
    "par_rank": (c_int, [c_void_p]),
    "par_size": (c_int, [c_void_p]),
    "par_world_rank": (c_int, [c_void_p, c_int]),
    "par_node_count": (c_int, [c_void_p]),
    "par_node_of": (c_int, [c_void_p, c_int]),
    "par_launch_method": (c_char_p, [c_void_p]),
    "par_set_timeout": (None, [c_void_p, c_double]),
    "par_timeout": (c_double, [c_void_p]),
    "par_seconds": (c_double, [c_void_p]),
    "par_clock_offset": (c_int, [c_void_p, c_void_p, c_void_p]),
    "par_split": (c_int, [c_void_p, c_int, c_int, c_void_p]),
    "par_revoke": (c_int, [c_void_p]),
    "par_agree": (c_int, [c_void_p, c_void_p]),
    "par_shrink": (c_int, [c_void_p, c_void_p]),
    "par_grow": (c_int, [c_void_p, c_int, c_void_p]),
    "par_join_at": (c_char_p, [c_void_p]),
    "par_rank_before": (c_int, [c_void_p, c_int]),
    "par_alloc": (c_void_p, [c_void_p, c_size_t]),
    "par_free": (c_int, [c_void_p, c_void_p]),
    "par_peer": (c_void_p, [c_void_p, c_void_p, c_int]),
    "par_wait": (c_int, [c_void_p]),
    "par_test": (c_int, [c_void_p, c_void_p]),
    "par_wait_all": (c_int, [c_void_p, c_int]),
    "par_group_begin": (c_int, [c_void_p]),
    "par_group_end": (c_int, [c_void_p]),
    "par_group_end_begin": (c_int, [c_void_p, c_void_p]),
    "par_kind_name": (c_char_p, [c_int]),
    "par_begin": (c_int, [c_void_p, c_void_p, c_void_p]),
    "par_call_spans": (None, [c_void_p, c_void_p, c_void_p, c_void_p]),
    "par_all_reduce": (c_int, [c_void_p, c_void_p, c_size_t, c_int, c_uint64, c_void_p]),
    "par_reduce_scatter": (c_int, [c_void_p, c_void_p, c_size_t, c_int, c_uint64, c_void_p]),
    "par_reduce_scatterv": (c_int, [c_void_p, c_void_p, c_void_p, c_int, c_uint64, c_void_p]),
    "par_all_gather": (c_int, [c_void_p, c_void_p, c_size_t, c_int, c_void_p]),
    "par_all_gatherv": (c_int, [c_void_p, c_void_p, c_void_p, c_void_p, c_int, c_void_p]),
    "par_broadcast": (c_int, [c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p]),
    "par_reduce": (c_int, [c_void_p, c_void_p, c_size_t, c_int, c_uint64, c_int, c_void_p]),
    "par_gather": (c_int, [c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p]),
    "par_gatherv": (c_int, [c_void_p, c_size_t, c_void_p, c_void_p, c_void_p, c_int, c_int, c_void_p]),
    "par_scatter": (c_int, [c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p]),
    "par_scatterv": (c_int, [c_void_p, c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p]),
    "par_all_to_all": (c_int, [c_void_p, c_void_p, c_size_t, c_int, c_void_p]),
    "par_all_to_allv": (c_int, [c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_int, c_void_p]),
    "par_barrier": (c_int, [c_void_p]),
    "par_tag": (None, [c_void_p, c_int]),
    "par_send": (c_int, [c_void_p, c_size_t, c_int, c_int, c_void_p]),
    "par_recv": (c_int, [c_void_p, c_size_t, c_int, c_int, c_void_p]),
    "par_sendrecv": (c_int, [c_void_p, c_size_t, c_int, c_void_p, c_size_t, c_int, c_int, c_void_p]),
    "par_all_reduce_begin": (c_int, [c_void_p, c_void_p, c_size_t, c_int, c_uint64, c_void_p, c_void_p]),
    "par_reduce_scatter_begin": (c_int, [c_void_p, c_void_p, c_size_t, c_int, c_uint64, c_void_p, c_void_p]),
    "par_reduce_scatterv_begin": (c_int, [c_void_p, c_void_p, c_void_p, c_int, c_uint64, c_void_p, c_void_p]),
    "par_all_gather_begin": (c_int, [c_void_p, c_void_p, c_size_t, c_int, c_void_p, c_void_p]),
    "par_all_gatherv_begin": (c_int, [c_void_p, c_void_p, c_void_p, c_void_p, c_int, c_void_p, c_void_p]),
    "par_broadcast_begin": (c_int, [c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p, c_void_p]),
    "par_reduce_begin": (c_int, [c_void_p, c_void_p, c_size_t, c_int, c_uint64, c_int, c_void_p, c_void_p]),
    "par_gather_begin": (c_int, [c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p, c_void_p]),
    "par_gatherv_begin": (c_int, [c_void_p, c_size_t, c_void_p, c_void_p, c_void_p, c_int, c_int, c_void_p, c_void_p]),
    "par_scatter_begin": (c_int, [c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p, c_void_p]),
    "par_scatterv_begin": (c_int, [c_void_p, c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p, c_void_p]),
    "par_all_to_all_begin": (c_int, [c_void_p, c_void_p, c_size_t, c_int, c_void_p, c_void_p]),
    "par_all_to_allv_begin": (c_int, [c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_int, c_void_p, c_void_p]),
    "par_barrier_begin": (c_int, [c_void_p, c_void_p]),
    "par_send_begin": (c_int, [c_void_p, c_size_t, c_int, c_int, c_void_p, c_void_p]),
    "par_recv_begin": (c_int, [c_void_p, c_size_t, c_int, c_int, c_void_p, c_void_p]),
    "par_neighbors_open": (c_int, [c_void_p, c_int, c_void_p, c_void_p, c_void_p]),
    "par_neighbor_exchange": (c_int, [c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_int, c_void_p]),
    "par_neighbor_exchange_begin": (c_int, [c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_int, c_void_p, c_void_p]),
    "par_neighbors_comm": (c_void_p, [c_void_p]),
    "par_neighbors_degree": (c_int, [c_void_p]),
    "par_neighbors_close": (c_int, [c_void_p]),
    "par_signal": (c_int, [c_void_p, c_uint64, c_int, c_void_p]),
    "par_wait_signal": (c_int, [c_void_p, c_uint64, c_void_p]),
    "par_ledger_reset": (None, [c_void_p]),
    "par_calibrate": (c_int, [c_void_p]),
    "par_predict": (c_double, [c_void_p, c_int, c_size_t]),
    "par_last_algorithm": (c_char_p, [c_void_p]),
    "par_algorithm_name": (c_char_p, [c_void_p, c_int, c_int]),
    "par_force_algorithm": (c_int, [c_void_p, c_char_p]),
    "par_alive": (c_int, [c_void_p]),
    "par_at": (c_void_p, [c_void_p, c_char_p, c_int]),
    "par_trace_begin": (c_int, [c_void_p, c_char_p]),
    "par_trace_end": (c_int, [c_void_p]),
}
# END GENERATED

RESULTS = [name for name, text in _RESULTS]
KINDS = [name for constant, name, *traits in _KINDS]
OPS = {name: i for i, (constant, name) in enumerate(_OPS)}
DTYPES = {row[1]: i for i, row in enumerate(_DTYPES)}
_BYTES = {"double": 8, "float": 4}


def _dtype_bytes(number):
    type = _DTYPES[number][2]
    return _BYTES.get(type) or int("".join(c for c in type if c.isdigit())) // 8


def _load():
    here = os.path.dirname(os.path.abspath(__file__))
    said = os.environ.get("PAR_LIBRARY")
    places = [os.path.join(here, *at, "libpar.so") for at in ((), ("..", "build"), ("..", "..", "lib"))]
    path = said or next((place for place in places if os.path.exists(place)), None) or ctypes.util.find_library("par")
    if not path:
        raise ImportError(
            "no libpar.so: neither %s, nor where the loader looks; make build/libpar.so or make install makes it, "
            "PAR_LIBRARY=path names another one" % ", ".join(os.path.normpath(place) for place in places)
        )
    library = ctypes.CDLL(path)
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(library, name, None)
        if not function:
            raise ImportError("%s has no %s: it is not of this version of the kit (%s)" % (path, name, VERSION))
        function.restype, function.argtypes = result, arguments
    if [library.par_kind_name(number).decode() for number in range(len(KINDS))] != KINDS:
        raise ImportError("%s has other calls: it is not of this version of the kit (%s)" % (path, VERSION))
    return library


lib = _load()


class Error(RuntimeError):
    """A call that failed; result is its name: "PAR_ERR_MISMATCH"."""

    def __init__(self, code, text):
        super().__init__(text)
        self.result = RESULTS[code]


# ---- arguments

_SYNONYMS = {"mean": "avg", "average": "avg", "product": "prod", "minimum": "min", "maximum": "max"}


def _number_of(what, name, numbers):
    """The number of an op's or a dtype's name."""
    if isinstance(name, str) and name in numbers:
        return numbers[name]
    import difflib

    near = _SYNONYMS.get(name) if name in _SYNONYMS else (difflib.get_close_matches(str(name), numbers, 1) or [None])[0]
    meant = "; did you mean %s?" % near if near in numbers else ""
    raise ValueError("there is no %s %r: they are %s%s" % (what, name, ", ".join(numbers), meant))


def _op_of(op):
    """An op's name, or its number: what par.lib.par_scaled_sum(factor) returns."""
    if op is None or isinstance(op, int):
        return op or 0
    if op == "scaled_sum":
        raise ValueError("scaled_sum has a factor: op=par.lib.par_scaled_sum(factor)")
    return _number_of("op", op, OPS)


def _int(what, value):
    try:
        value = operator.index(value)
    except TypeError:
        raise TypeError("%s is %r, not an integer" % (what, value)) from None
    if not -(2**31) <= value < 2**31:
        raise ValueError("%s is %d, which is no int of C" % (what, value))
    return value


def _sizes(what, values, blocks, whose):
    """Counts or displs, one for each block."""
    if values is None:
        return None
    values = [operator.index(value) for value in values]
    if len(values) != blocks:
        raise ValueError("%s has %d entries, but there are %d %s" % (what, len(values), blocks, whose))
    if any(not 0 <= value < 2**63 for value in values):
        raise ValueError("%s has an entry below 0, or too large to be true: %s" % (what, values))
    return (c_size_t * blocks)(*values)


# ---- arrays: an address, a number of elements and a dtype

_FORMATS = {"d": "f64", "f": "f32", "e": "f16", "c": "u8", "?": "bool"}
_ARRAYS = "a NumPy array, array.array, ctypes array, memoryview, or a tensor on the CPU"


def _dtype_of_format(form, bytes):
    order, code = (form[0], form[1:]) if form[:1] in "@=<>!" else ("@", form)
    if bytes > 1 and order in {"little": ">!", "big": "<"}[sys.byteorder]:
        raise ValueError(
            "has elements in another order of bytes than this processor's (%s): pass "
            "x.astype(x.dtype.newbyteorder('='))" % form
        )
    if code in _FORMATS:
        return _FORMATS[code]
    if len(code) == 1 and code in "bhilqnBHILQN":
        return "%s%d" % ("i" if code.islower() else "u", 8 * bytes)
    return None


class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", c_void_p),
        ("device_type", c_int),
        ("device_id", c_int),
        ("ndim", c_int),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", c_uint64),
    ]


class _DLManaged(ctypes.Structure):
    pass


_DELETER = ctypes.CFUNCTYPE(None, ctypes.POINTER(_DLManaged))
_DLManaged._fields_ = [("tensor", _DLTensor), ("context", c_void_p), ("deleter", _DELETER)]
_DL_FLOAT = {64: "f64", 32: "f32", 16: "f16"}
_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype, _capsule_pointer.argtypes = c_void_p, [ctypes.py_object, c_char_p]
_capsule_new = ctypes.pythonapi.PyCapsule_New
_capsule_new.restype, _capsule_new.argtypes = ctypes.py_object, [c_void_p, c_char_p, c_void_p]


class _Array:
    """Where the elements of `source` are; keeps it alive. Errors go on from the name of the array."""

    def __init__(self, source, dtype, writable):
        if hasattr(source, "__dlpack__") and not _has_buffer(source):
            self._from_dlpack(source, writable)
        else:
            self._from_buffer(source, writable)
        self.bool = self.name == "bool"
        own = "u8" if self.bool else self.name
        if dtype is None and own not in DTYPES:
            raise TypeError(
                "has elements for which the kit has no dtype: pass them as integers of their size and say what they "
                "hold, as in all_reduce(x.view('u2'), dtype='bf16')"
            )
        self.dtype = DTYPES[own] if dtype is None else _number_of("dtype", dtype, DTYPES)
        if dtype not in (None, own) and (own or "?")[0] not in "iu":
            raise TypeError("has elements of %s, not of %s" % (self.name or "another type", dtype))
        if _dtype_bytes(self.dtype) != self.bytes:
            raise TypeError("has elements of %d bytes, not of %s" % (self.bytes, dtype))

    def _from_buffer(self, source, writable):
        try:
            view = memoryview(source)
        except (TypeError, ValueError, BufferError) as error:
            raise TypeError("is a %s (%s): pass %s" % (type(source).__name__, error, _ARRAYS)) from None
        if not view.c_contiguous and view.f_contiguous:
            raise ValueError("has Fortran's order, in which elements would be permuted: pass x.T, or x.copy(order='C')")
        if not view.c_contiguous:
            raise ValueError("has gaps: pass a contiguous copy")
        if writable and view.readonly:
            raise ValueError("is read-only: pass a copy, such as bytearray(x) or x.copy()")
        self.keep, self.bytes = view, view.itemsize
        self.count = view.nbytes // view.itemsize if view.itemsize else 0
        self.name = _dtype_of_format(view.format, view.itemsize)
        self.address = _address_of(view)

    def _from_dlpack(self, source, writable):
        device = source.__dlpack_device__()[0] if hasattr(source, "__dlpack_device__") else 1
        if device not in (1, 3):  # kDLCPU, kDLCUDAHost
            raise TypeError("is not in the host's memory (DLPack's device %d): pass x.cpu()" % device)
        if writable and type(source).__module__.split(".")[0] in ("jax", "jaxlib"):
            raise ValueError("is an array of JAX, which never changes: receive into a NumPy array")
        capsule = source.__dlpack__()
        managed = ctypes.cast(_capsule_pointer(capsule, b"dltensor"), ctypes.POINTER(_DLManaged)).contents
        t = managed.tensor
        self.keep, self.count, gapless = (source, capsule), 1, True
        for i in reversed(range(t.ndim)):
            gapless = gapless and (not t.strides or t.shape[i] == 1 or t.strides[i] == self.count)
            self.count *= t.shape[i]
        if not gapless and self.count:
            raise ValueError("has gaps, or an order other than C's: pass x.contiguous()")
        self.bytes = t.bits // 8
        self.address = (t.data or 0) + t.byte_offset
        signs = {0: "i", 1: "u"}
        self.name = {4: "bf16", 6: "bool"}.get(t.code, _DL_FLOAT.get(t.bits) if t.code == 2 else None)
        if t.code in signs:
            self.name = signs[t.code] + str(t.bits)
        if t.lanes != 1:
            self.name = None


def _array(what, source, dtype, writable):
    try:
        return _Array(source, dtype, writable)
    except (TypeError, ValueError, BufferError) as error:
        raise type(error)("%s %s" % (what, error)) from None


class _PyBuffer(ctypes.Structure):
    _fields_ = [
        ("buf", c_void_p),
        ("obj", c_void_p),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", c_int),
        ("ndim", c_int),
        ("format", c_char_p),
        ("shape", c_void_p),
        ("strides", c_void_p),
        ("suboffsets", c_void_p),
        ("internal", c_void_p),
    ]


def _address_of(view):
    buffer = _PyBuffer()
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(view), ctypes.byref(buffer), 0x18)
    address = buffer.buf
    ctypes.pythonapi.PyBuffer_Release(ctypes.byref(buffer))
    return address or 0


def _has_buffer(source):
    try:
        memoryview(source)
    except (TypeError, BufferError, ValueError):
        return False
    return True


def _word(array):
    word = _array("word", array, "u64", True)
    if word.count != 1:
        raise ValueError("word has %d elements: pass a part of Memory with one, such as m.buffer[3:4]" % word.count)
    return word.address


# ---- call sites: texts that stay as long as the process

_sites = {}


def _site(depth):
    frame = sys._getframe(depth)
    place = frame.f_code.co_filename, frame.f_lineno
    text = _sites.get(place)
    if text is None:
        text = _sites[place] = ("%s:%d" % place).encode()
    return text


def _place(depth):
    """File and line, for par_at."""
    frame = sys._getframe(depth)
    name = frame.f_code.co_filename
    return _sites.setdefault(name, name.encode()), frame.f_lineno


# ---- calls: one description each, whose arrays are compared with what it touches


def _block_count(sides, keep, blocks):
    """The elements of a block: of what is a block; else a part of what has one for each rank."""
    for kind in ("BLOCK", "ROOT_BLOCK"):
        for side in keep:
            if sides[side] == kind:
                return keep[side].count
    return max((array.count // max(blocks, 1) for array in keep.values()), default=0)


_OPTIONS = ("dtype", "op", "root", "peer", "tag")
_SIZES = ("send_counts", "send_displs", "recv_counts", "recv_displs")


def _fill_arguments(call, blocks, op, root, peer, tag, sizes):
    constant, name, sends, receives, who, takes = _KINDS[call.kind]
    for what in sizes:
        if what not in _SIZES:
            raise TypeError("there is no %s: it takes %s and %s" % (what, ", ".join(_OPTIONS), ", ".join(_SIZES)))
    for what, given in (("op", op), ("root", root), ("peer", peer)):
        if given is not None and what.upper() not in takes:
            raise TypeError("it takes no %s" % what)
    if takes == "PEER" and peer is None:
        raise TypeError("it needs peer=, the other rank")
    if tag and takes not in ("NONE", "OP"):
        raise TypeError("it takes no tag")
    call.op, call.tag = _op_of(op), _int("tag", tag)
    call.root = _int("root", root or 0) if peer is None else _int("peer", peer)
    sizes = {member: _sizes(member, values, *blocks) for member, values in sizes.items() if values is not None}
    for member, values in sizes.items():
        setattr(call, member, ctypes.cast(values, c_void_p))
    return sizes


def _fill_arrays(call, sides, arrays, used, dtype):
    keep = {}
    if len(arrays) == 1 and len(sides) == 2 and all(kind.endswith("BLOCK") for kind in sides.values()):
        arrays *= 2  # in place; who sends writes nothing there
        used = dict(used, recv=used["recv"] and not (used["send"] and sides["send"].startswith("ROOT")))
    if len(arrays) != len(sides):
        raise TypeError("it takes %s" % (" and ".join(sides) or "no array"))
    for side, array in zip(sides, arrays):
        if array is not None:
            keep[side] = _array(side, array, dtype, side == "recv" and used["recv"])
            setattr(call, side, keep[side].address)
            call.dtype = keep[side].dtype
    if len({array.dtype for array in keep.values()}) > 1:
        raise TypeError("send and recv differ in type: %s" % " and ".join(_DTYPES[a.dtype][1] for a in keep.values()))
    chooses = call.op in (OPS["prod"], OPS["min"], OPS["max"])  # or multiplies: what it makes of bools is one
    if "OP" in _KINDS[call.kind][5] and not chooses and any(array.bool for array in keep.values()):
        raise ValueError("bools have no sum: op='max' is or, op='min' is and, x.view('u1') counts")
    return keep


def _fill(call, comm, blocks, arrays, dtype=None, op=None, root=None, peer=None, tag=0, **sizes):
    """Fill in a call that has a kind; blocks: how many, and of what. Returns what must stay until it has ended."""
    name, sends, receives, who = _KINDS[call.kind][1:5]
    sides = {side: kind for side, kind in (("send", sends), ("recv", receives)) if kind != "NONE"}
    sizes = _fill_arguments(call, blocks, op, root, peer, tag, sizes)
    used = {side: not kind.startswith("ROOT") or lib.par_rank(comm) == call.root for side, kind in sides.items()}
    keep = _fill_arrays(call, sides, list(arrays), used, dtype)
    call.count = _block_count(sides, keep, blocks[0])
    spans = {"send": c_size_t(), "recv": c_size_t()}
    lib.par_call_spans(comm, ctypes.byref(call), *map(ctypes.byref, spans.values()))
    for side, array in keep.items():
        cut = sides[side].endswith("ALL")
        counted = who == "SAME" or (who != "NONE" and cut)
        if not used[side] or (counted and ("recv" if who == "SAME" else side) + "_counts" not in sizes):
            continue
        needed = spans[side].value
        if array.count < needed or (array.count > needed and not (counted and cut)):
            cut = " (%d blocks of %d)" % (blocks[0], call.count) if cut and not counted else ""
            verb = {"send": "reads", "recv": "writes"}[side]
            raise ValueError("%s has %d elements, but the call %s %d%s" % (side, array.count, verb, needed, cut))
    return keep, sizes


def _prepare(call, comm, blocks, arrays, options):
    """As _fill, but errors name the call, and the ranks that make it, too, hear of them."""
    try:
        return _fill(call, comm, blocks, arrays, **options)
    except Exception as error:
        kind = next((kind for kind in (TypeError, ValueError, BufferError) if isinstance(error, kind)), None)
        if _KINDS[call.kind][5] != "NEIGHBORS":
            lib.par_begin(comm, ctypes.byref(par_call(kind=call.kind, dtype=-1, site=call.site)), None)
        if not kind:
            raise
        raise kind("par_%s at %s: %s" % (KINDS[call.kind], call.site.decode(), error)) from None


def _issue(owner, form, keep, function):
    if form == "":
        return owner._check(function())
    request = Request(owner, keep)
    owner._check(function(ctypes.byref(request._request)))
    return request


# ---- requests, neighbors and comms


class Request:
    """A call that was begun. Its arrays stay until it has ended; one that nobody keeps waits for that."""

    def __init__(self, comm, keep):
        self._comm, self._keep, self._request = comm, keep, par_request()

    def wait(self):
        if self._request.operation:
            self._comm._world.handle  # of a closed one nothing is left to be waited for
        self._end(lib.par_wait(ctypes.byref(self._request)))

    def test(self):
        """True when the call has ended; then as wait."""
        done = c_int()
        if self._request.operation:
            self._comm._world.handle
        result = lib.par_test(ctypes.byref(self._request), ctypes.byref(done))
        if not done.value:
            self._comm._check(result)
            return False
        self._end(result)
        return True

    def _end(self, result):
        if not self._request.operation:
            self._keep = None
        self._comm._check(result)

    def __del__(self):
        if self._request.operation and self._comm._world._is_open() and not sys.is_finalizing():
            result = lib.par_wait(ctypes.byref(self._request))
            if self._request.operation:  # of a group that has not ended: then par_group_end waits
                self._comm._kept.append(self._keep)
            else:
                self._comm._check(result)


class Neighbors:
    """The ranks with which a rank exchanges a halo, from Comm.neighbors_open; close it before the comm."""

    def __init__(self, comm, handle):
        self._comm, self._handle = comm, handle

    def _is_open(self):
        return bool(self._handle) and self._comm._is_open()

    @property
    def _world(self):
        return self._comm._world

    @property
    def handle(self):
        self._comm.handle
        if not self._handle:
            raise Error(RESULTS.index("PAR_ERR_ARGUMENT"), "these neighbors have been closed")
        return self._handle

    @property
    def _kept(self):
        return self._comm._kept

    def _check(self, result):
        self._comm._check(result)

    def _call(self, form, send, recv, send_counts, recv_counts, send_displs=None, recv_displs=None, dtype=None):
        own = lib.par_neighbors_comm(self.handle)
        call = par_call(kind=KINDS.index("neighbor_exchange"), site=_site(3))
        sizes = {"send_counts": send_counts, "recv_counts": recv_counts}
        sizes.update(send_displs=send_displs, recv_displs=recv_displs, dtype=dtype)
        keep = _prepare(call, own, (lib.par_neighbors_degree(self._handle), "neighbors"), (send, recv), sizes)
        lib.par_at(own, *_place(3))
        passed = [call.send, call.send_counts, call.send_displs, call.recv, call.recv_counts, call.recv_displs]
        function = getattr(lib, "par_neighbor_exchange" + form)
        return _issue(self, form, keep, lambda *out: function(*passed, call.dtype, self._handle, *out))

    def exchange(self, *arguments, **options):
        """exchange(send, recv, send_counts, recv_counts, send_displs=None, recv_displs=None, dtype=None)"""
        return self._call("", *arguments, **options)

    def exchange_begin(self, *arguments, **options):
        return self._call("_begin", *arguments, **options)

    def close(self):
        handle, self._handle = self.handle, None
        self._check(lib.par_neighbors_close(handle))


class Memory:
    """Symmetric memory of par_alloc: a buffer for memoryview(m.buffer), numpy.asarray(m), torch.from_dlpack(m)."""

    def __init__(self, comm, count, dtype):
        self.comm, self.count, self.dtype = comm, operator.index(count), _number_of("dtype", dtype, DTYPES)
        if count < 0:
            raise ValueError("alloc of %d elements" % count)
        self.address = lib.par_alloc(comm.handle, count * _dtype_bytes(self.dtype))
        if not self.address:
            comm._check(RESULTS.index("PAR_ERR_MEMORY"))
        self.buffer = self._buffer_at(self.address)
        form = {"f": "f", "i": "i", "u": "u"}[dtype[0]] if dtype[0] in "fiu" and dtype[:2] != "f8" else "u"
        self.__array_interface__ = {
            "shape": (count,),
            "typestr": "<%s%d" % (form, _dtype_bytes(self.dtype)),
            "data": (self.address, False),
            "version": 3,
        }

    def _buffer_at(self, address):
        codes = {"f64": "d", "f32": "f", "i8": "b", "u8": "B", "i32": "i", "u32": "I", "i64": "q", "u64": "Q"}
        dtype, size = _DTYPES[self.dtype][1], self.count * _dtype_bytes(self.dtype)
        memory = memoryview((ctypes.c_char * size).from_address(address))
        return memory.cast("B").cast(codes.get(dtype, "H" if dtype in ("f16", "bf16") else "B"))

    def peer(self, rank):
        """The buffer of what rank has in this place, until free; None: it is on another node."""
        address = lib.par_peer(self.comm.handle, self.address, _int("rank", rank))
        return self._buffer_at(address) if address else None

    def __dlpack_device__(self):
        return (1, 0)  # kDLCPU

    def __dlpack__(self, stream=None, **others):
        row = _DTYPES[self.dtype]
        managed, shape = _DLManaged(), (ctypes.c_int64 * 1)(self.count)
        code = {"FLOAT": 2, "NARROW": 4 if row[1] == "bf16" else 2, "SIGNED": 0, "UNSIGNED": 1}[row[4]]
        managed.tensor = _DLTensor(self.address, 1, 0, 1, code, 8 * _dtype_bytes(self.dtype), 1, shape, None, 0)
        managed.deleter = _DELETER(lambda _: _exported.pop(ctypes.addressof(managed), None) and None)
        _exported[ctypes.addressof(managed)] = (managed, shape, self)
        return _capsule_new(ctypes.addressof(managed), b"dltensor", None)

    def free(self):
        self.buffer.release()
        self.comm._check(lib.par_free(self.comm.handle, self.address))


_exported = {}  # what others got by DLPack, until they delete it


def _refuse_session(desc):
    """Ranks that were forked from a prompt, or run a notebook's kernel again, would read the same input."""
    shown, main = par_desc(), sys.modules["__main__"]
    prompt = hasattr(sys, "ps1") or "ipykernel" in sys.modules or hasattr(builtins, "__IPYTHON__")
    if hasattr(main, "__file__") or not prompt or lib.par_launched(None):
        return
    if not lib.par_defaults(ctypes.byref(desc), ctypes.byref(shown)) and shown.rank_count > 1:
        raise Error(
            RESULTS.index("PAR_ERR_UNSUPPORTED"),
            "a prompt or a notebook starts no ranks, since all of them would read its input: write the program to "
            "a file (in a notebook: %%%%writefile prog.py), then PAR_RANKS=%d python3 prog.py (in a notebook behind "
            "a !)" % shown.rank_count,
        )


def _script_hint(result):
    if result != "PAR_ERR_PEER_DIED" or sys.argv[:1] not in (["-"], [""]):
        return ""
    return (
        " (this process has threads, so ranks run its command again, which finds nothing on standard input any more: "
        "write the program to a file, then PAR_RANKS=n python3 prog.py)"
    )


class Comm:
    """A group of ranks: the world, Comm(ranks=2), or a part of it by split. Use it as `with par.Comm() as world`."""

    def __init__(self, ranks=0, _handle=None, _world=None):
        self._handle, self._world, self._kept = _handle, _world or self, []
        if _handle is None:
            desc, handle = par_desc(rank_count=_int("ranks", ranks)), c_void_p()
            _refuse_session(desc)
            sys.stdout.flush()
            result = lib.par_open(ctypes.byref(desc), ctypes.byref(handle))
            if result:
                raise Error(result, lib.par_result_text(result).decode() + _script_hint(RESULTS[result]))
            self._handle = handle.value

    def _is_open(self):
        return bool(self._handle and self._world._handle)

    @property
    def handle(self):
        if not self._is_open():
            raise Error(RESULTS.index("PAR_ERR_ARGUMENT"), "this comm, or the world that it is of, has been closed")
        return self._handle

    @property
    def rank(self):
        return lib.par_rank(self.handle)

    @property
    def size(self):
        return lib.par_size(self.handle)

    def _check(self, result):
        if result:
            text = lib.par_last_error(self._world._handle) if self._world._is_open() else b""
            raise Error(result, (text or lib.par_result_text(result)).decode(errors="replace"))

    def split(self, color, key=0):
        """None where color < 0."""
        part = c_void_p()
        self._check(lib.par_split(self.handle, _int("color", color), _int("key", key), ctypes.byref(part)))
        return Comm(_handle=part.value, _world=self._world) if part.value else None

    def alloc(self, count, dtype="f32"):
        return Memory(self, count, dtype)

    def neighbors_open(self, peers, sources=None):
        """Lists of ranks: where each block goes, and where it comes from (None: the same); -1: no neighbor."""
        if sources is not None and len(sources) != len(peers):
            raise ValueError("%d peers, but %d sources" % (len(peers), len(sources)))
        peers = [_int("peers has a rank that", peer) for peer in peers]
        sources = sources and [_int("sources has a rank that", source) for source in sources]
        ints, handle = c_int * len(peers), c_void_p()
        lib.par_at(self.handle, *_place(2))
        result = lib.par_neighbors_open(
            self.handle, len(peers), ints(*peers), None if sources is None else ints(*sources), ctypes.byref(handle)
        )
        self._check(result)
        return Neighbors(self, handle)

    # Signals: word (one u64) is a part of this rank's own Memory, and means that of rank.

    def signal(self, word, value, rank):
        self._check(lib.par_signal(_word(word), value, rank, self.handle))

    def wait_signal(self, word, value):
        self._check(lib.par_wait_signal(_word(word), value, lib.par_at(self.handle, *_place(2))))

    def close(self):
        if self._is_open():
            sys.stdout.flush()
            handle, self._handle = self._handle, None
            result = lib.par_close(handle)
            if self is not self._world:  # what was begun goes on
                self._world._kept += self._kept
            self._kept = []
            if result:
                raise Error(result, lib.par_result_text(result).decode())

    def __enter__(self):
        return self

    def __exit__(self, *error):
        if error[0] is None:
            self.close()

    def _call(self, number, form, arrays, options):
        call, handle = par_call(kind=number, site=_site(3)), self.handle
        keep = _prepare(call, handle, (self.size, "ranks"), arrays, options)
        return _issue(self, form, keep, lambda out=None: lib.par_begin(handle, ctypes.byref(call), out))


def _add_methods():
    def add(number, name, form):
        def method(self, *arrays, **options):
            return self._call(number, form, arrays, options)

        method.__name__ = name + form
        method.__doc__ = "par_%s; see par.h." % method.__name__
        setattr(Comm, method.__name__, method)

    for number, name in enumerate(KINDS):
        for form in ("", "_begin"):
            if _KINDS[number][5] != "NEIGHBORS":
                add(number, name, form)


_add_methods()
