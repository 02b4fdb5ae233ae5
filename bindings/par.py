# par.py - par.h for Python: collectives on whatever has the buffer protocol (NumPy arrays, array.array,
# memoryview, ctypes arrays) or DLPack (tensors of PyTorch, JAX, CuPy on the CPU).
#
# Public domain or MIT-0, as par.h.
"""
USE
    make build/libpar.so, and this file beside it, in build/.., or where the loader finds libraries.

EXAMPLE
    import array, par
    world = par.Comm()                                  # from here on PAR_RANKS ranks run
    x = array.array("d", [1, 2, world.rank])
    world.all_reduce(x)                                 # in place; or all_reduce(send, recv, op="max")
    if world.rank == 0: print(world.size, "ranks:", list(x))

Run it: PAR_RANKS=2 python3 prog.py, or under srun, torchrun or mpiexec (with a libpar.so that has MPI). par_open
forks, so call Comm() before the program starts threads; where an import has started some, it runs the script
again for each rank.

Every kind of call of par.h is a method with C's arguments but for count and dtype, which follow from the arrays:
send and recv, then by name op, root, peer, recv_counts, ... dtype="bf16" says what integers of that size hold. A _begin form
returns a Request; its wait() ends the call, and keeps the arrays until then. An _init form returns a Persistent
call. neighbors_open(peers) returns Neighbors, which exchange halos. Memory of alloc is what put, get, fetch_add,
signal, wait_signal, lock and unlock access: slices of its buffer. Errors raise par.Error.
par.lib.par_... are all functions of C whose arguments Python has, for what is not here.
"""
import ctypes
import ctypes.util
import os
import sys
from ctypes import c_char_p, c_double, c_float, c_int, c_size_t, c_uint64, c_void_p

# GENERATED constants by make bindings
VERSION = "0.2.0"
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
    ("PAR_ERR_FILE", "a file is missing or damaged"),
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
    "par_init": (c_int, [c_void_p, c_void_p, c_void_p]),
    "par_start": (c_int, [c_void_p, c_void_p]),
    "par_persistent_free": (c_int, [c_void_p]),
    "par_neighbors_open": (c_int, [c_void_p, c_int, c_void_p, c_void_p, c_void_p]),
    "par_neighbor_exchange": (c_int, [c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_int, c_void_p]),
    "par_neighbor_exchange_begin": (c_int, [c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_int, c_void_p, c_void_p]),
    "par_neighbor_exchange_init": (c_int, [c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_int, c_void_p, c_void_p]),
    "par_neighbors_comm": (c_void_p, [c_void_p]),
    "par_neighbors_close": (c_int, [c_void_p]),
    "par_put": (c_int, [c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p]),
    "par_get": (c_int, [c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p]),
    "par_fence": (None, [c_void_p]),
    "par_fetch_add": (c_int, [c_void_p, c_uint64, c_void_p, c_int, c_void_p]),
    "par_signal": (c_int, [c_void_p, c_uint64, c_int, c_void_p]),
    "par_wait_signal": (c_int, [c_void_p, c_uint64, c_void_p]),
    "par_lock": (c_int, [c_void_p, c_int, c_void_p]),
    "par_unlock": (c_int, [c_void_p, c_int, c_void_p]),
    "par_ledger_reset": (None, [c_void_p]),
    "par_calibrate": (c_int, [c_void_p]),
    "par_predict": (c_double, [c_void_p, c_int, c_size_t]),
    "par_last_algorithm": (c_char_p, [c_void_p]),
    "par_algorithm": (c_char_p, [c_void_p, c_int, c_int]),
    "par_force_algorithm": (c_int, [c_void_p, c_char_p]),
    "par_alive": (c_int, [c_void_p]),
    "par_at": (c_void_p, [c_void_p, c_char_p, c_int]),
    "par_trace_begin": (c_int, [c_void_p, c_char_p]),
    "par_trace_end": (c_int, [c_void_p]),
    "par_uniform": (c_float, [c_uint64, c_uint64, c_uint64]),
    "par_normal": (c_float, [c_uint64, c_uint64, c_uint64]),
    "par_normals": (None, [c_uint64, c_uint64, c_uint64, c_size_t, c_void_p]),
    "par_random": (c_uint64, [c_uint64, c_uint64, c_uint64]),
    "par_all_reduce_init": (c_int, [c_void_p, c_void_p, c_size_t, c_int, c_uint64, c_void_p, c_void_p]),
    "par_reduce_scatter_init": (c_int, [c_void_p, c_void_p, c_size_t, c_int, c_uint64, c_void_p, c_void_p]),
    "par_reduce_scatterv_init": (c_int, [c_void_p, c_void_p, c_void_p, c_int, c_uint64, c_void_p, c_void_p]),
    "par_all_gather_init": (c_int, [c_void_p, c_void_p, c_size_t, c_int, c_void_p, c_void_p]),
    "par_all_gatherv_init": (c_int, [c_void_p, c_void_p, c_void_p, c_void_p, c_int, c_void_p, c_void_p]),
    "par_broadcast_init": (c_int, [c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p, c_void_p]),
    "par_reduce_init": (c_int, [c_void_p, c_void_p, c_size_t, c_int, c_uint64, c_int, c_void_p, c_void_p]),
    "par_gather_init": (c_int, [c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p, c_void_p]),
    "par_gatherv_init": (c_int, [c_void_p, c_size_t, c_void_p, c_void_p, c_void_p, c_int, c_int, c_void_p, c_void_p]),
    "par_scatter_init": (c_int, [c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p, c_void_p]),
    "par_scatterv_init": (c_int, [c_void_p, c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p, c_void_p]),
    "par_all_to_all_init": (c_int, [c_void_p, c_void_p, c_size_t, c_int, c_void_p, c_void_p]),
    "par_all_to_allv_init": (c_int, [c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_int, c_void_p, c_void_p]),
    "par_barrier_init": (c_int, [c_void_p, c_void_p]),
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
    places = [os.path.join(here, "libpar.so"), os.path.join(here, "..", "build", "libpar.so")]
    path = next((place for place in places if os.path.exists(place)), None) or ctypes.util.find_library("par")
    if not path:
        raise ImportError("no libpar.so beside par.py or in ../build: make build/libpar.so")
    library = ctypes.CDLL(path)
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


lib = _load()


class Error(RuntimeError):
    """A call that failed; result is its name: "PAR_ERR_MISMATCH"."""

    def __init__(self, code, text):
        super().__init__(text)
        self.result = RESULTS[code]


# ---- arrays: an address, a number of elements and a dtype

_FORMATS = {"d": "f64", "f": "f32", "e": "f16"}


def _dtype_of_format(form, bytes):
    code = form.lstrip("@=<")[-1:]
    if code in _FORMATS:
        return _FORMATS[code]
    if code in "bhilqn":
        return "i%d" % (8 * bytes)
    if code in "BHILQN?":
        return "u%d" % (8 * bytes)
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
    """Where the elements of `source` are; keeps it alive."""

    def __init__(self, source, dtype, writable):
        if hasattr(source, "__dlpack__") and not _has_buffer(source):
            self._from_dlpack(source)
        else:
            self._from_buffer(source, writable)
        name = dtype or self.name
        if name not in DTYPES:
            raise TypeError("elements of %s have no dtype of the kit" % (name or "this type"))
        self.dtype = DTYPES[name]
        if _dtype_bytes(self.dtype) != self.bytes:
            raise TypeError("elements have %d bytes, those of %s have not" % (self.bytes, name))

    def _from_buffer(self, source, writable):
        view = memoryview(source)
        if not view.contiguous or not view.c_contiguous and not view.f_contiguous:
            raise ValueError("an array has gaps: pass a contiguous copy")
        if writable and view.readonly:
            raise ValueError("recv is read-only")
        self.keep, self.bytes = view, view.itemsize
        self.count = view.nbytes // view.itemsize
        self.name = _dtype_of_format(view.format, view.itemsize)
        self.address = _address_of(view)

    def _from_dlpack(self, source):
        capsule = source.__dlpack__()
        managed = ctypes.cast(_capsule_pointer(capsule, b"dltensor"), ctypes.POINTER(_DLManaged)).contents
        t = managed.tensor
        self.keep, self.count, gapless = (source, capsule), 1, True
        for i in reversed(range(t.ndim)):
            gapless = gapless and (not t.strides or t.shape[i] == 1 or t.strides[i] == self.count)
            self.count *= t.shape[i]
        if not gapless:
            raise ValueError("a tensor has gaps: pass a contiguous copy")
        self.bytes = t.bits // 8
        self.address = (t.data or 0) + t.byte_offset
        signs = {0: "i", 1: "u"}
        self.name = "bf16" if t.code == 4 else _DL_FLOAT.get(t.bits) if t.code == 2 else None
        if t.code in signs:
            self.name = signs[t.code] + str(t.bits)


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


def _sizes(values):
    return (c_size_t * len(values))(*values) if values is not None else None


def _word(array):
    return _Array(array, "u64", True).address


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


# ---- requests, neighbors and comms


class Request:
    """A call that was begun."""

    def __init__(self, comm, call, keep):
        self._comm, self._keep, self._request = comm, (call, keep), par_request()

    def wait(self):
        result = lib.par_wait(ctypes.byref(self._request))
        self._keep = None
        self._comm._check(result)

    def test(self):
        """True when the call has ended; then as wait."""
        done = c_int()
        result = lib.par_test(ctypes.byref(self._request), ctypes.byref(done))
        if done.value:
            self._keep = None
        self._comm._check(result)
        return bool(done.value)


class Persistent:
    """A call that is started again and again: all_reduce_init(x), then start() and wait() in each step."""

    def __init__(self, comm, call, keep):
        self._comm, self._keep, self._handle, self._request = comm, (call, keep), c_void_p(), par_request()

    def start(self):
        self._comm._check(lib.par_start(self._handle, ctypes.byref(self._request)))

    def wait(self):
        self._comm._check(lib.par_wait(ctypes.byref(self._request)))

    def free(self):
        self._comm._check(lib.par_persistent_free(self._handle))


class Neighbors:
    """The ranks with which a rank exchanges a halo, from Comm.neighbors_open; all ranks close it before the comm."""

    def __init__(self, comm, handle):
        self._comm, self._handle = comm, handle

    def _arguments(self, send, recv, dtype, sizes):
        """What all forms pass, and what must stay until they have ended."""
        arrays = _Array(send, dtype, False), _Array(recv, dtype, True)
        if arrays[0].dtype != arrays[1].dtype:
            raise TypeError("send and recv differ in type")
        sizes = [_sizes(values) for values in sizes]
        send_counts, recv_counts, send_displs, recv_displs = sizes
        lib.par_at(lib.par_neighbors_comm(self._handle), *_place(3))
        passed = arrays[0].address, send_counts, send_displs, arrays[1].address, recv_counts, recv_displs
        return (*passed, arrays[0].dtype, self._handle), (arrays, sizes)

    def exchange(self, send, recv, send_counts, recv_counts, send_displs=None, recv_displs=None, dtype=None):
        passed, keep = self._arguments(send, recv, dtype, (send_counts, recv_counts, send_displs, recv_displs))
        self._comm._check(lib.par_neighbor_exchange(*passed))

    def exchange_begin(self, send, recv, send_counts, recv_counts, send_displs=None, recv_displs=None, dtype=None):
        passed, keep = self._arguments(send, recv, dtype, (send_counts, recv_counts, send_displs, recv_displs))
        request = Request(self._comm, None, keep)
        self._comm._check(lib.par_neighbor_exchange_begin(*passed, ctypes.byref(request._request)))
        return request

    def exchange_init(self, send, recv, send_counts, recv_counts, send_displs=None, recv_displs=None, dtype=None):
        passed, keep = self._arguments(send, recv, dtype, (send_counts, recv_counts, send_displs, recv_displs))
        persistent = Persistent(self._comm, None, keep)
        self._comm._check(lib.par_neighbor_exchange_init(*passed, ctypes.byref(persistent._handle)))
        return persistent

    def close(self):
        handle, self._handle = self._handle, None
        self._comm._check(lib.par_neighbors_close(handle))


class Memory:
    """Symmetric memory of par_alloc: a buffer for memoryview(m.buffer), numpy.asarray(m), torch.from_dlpack(m)."""

    def __init__(self, comm, count, dtype):
        self.comm, self.count, self.dtype = comm, count, DTYPES[dtype]
        nbytes = count * _dtype_bytes(self.dtype)
        self.address = lib.par_alloc(comm.handle, nbytes)
        if not self.address:
            comm._check(RESULTS.index("PAR_ERR_MEMORY"))
        self._bytes = (ctypes.c_char * nbytes).from_address(self.address)
        codes = {"f64": "d", "f32": "f", "i8": "b", "u8": "B", "i32": "i", "u32": "I", "i64": "q", "u64": "Q"}
        self.buffer = memoryview(self._bytes).cast("B").cast(codes.get(dtype, "H" if dtype in ("f16", "bf16") else "B"))
        form = {"f": "f", "i": "i", "u": "u"}[dtype[0]] if dtype[0] in "fiu" and dtype[:2] != "f8" else "u"
        self.__array_interface__ = {
            "shape": (count,),
            "typestr": "<%s%d" % (form, _dtype_bytes(self.dtype)),
            "data": (self.address, False),
            "version": 3,
        }

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


class Comm:
    """A group of ranks: the world, Comm(ranks=2), or a part of it by split. Use it as `with par.Comm() as world`."""

    def __init__(self, ranks=0, _handle=None):
        if _handle is None:
            desc, handle = par_desc(rank_count=ranks), c_void_p()
            sys.stdout.flush()
            result = lib.par_open(ctypes.byref(desc), ctypes.byref(handle))
            if result:
                raise Error(result, lib.par_result_text(result).decode())
            _handle = handle.value
        self.handle = _handle

    @property
    def rank(self):
        return lib.par_rank(self.handle)

    @property
    def size(self):
        return lib.par_size(self.handle)

    def _check(self, result):
        if result:
            text = lib.par_last_error(self.handle) if self.handle else b""
            raise Error(result, (text or lib.par_result_text(result)).decode(errors="replace"))

    def split(self, color, key=0):
        """None where color < 0."""
        part = c_void_p()
        self._check(lib.par_split(self.handle, color, key, ctypes.byref(part)))
        return Comm(_handle=part.value) if part.value else None

    def alloc(self, count, dtype="f32"):
        return Memory(self, count, dtype)

    def neighbors_open(self, peers, sources=None):
        """Lists of ranks: where each block goes, and where it comes from (None: the same); -1: no neighbor."""
        if sources is not None and len(sources) != len(peers):
            raise ValueError("%d peers, but %d sources" % (len(peers), len(sources)))
        ints, handle = c_int * len(peers), c_void_p()
        lib.par_at(self.handle, *_place(2))
        result = lib.par_neighbors_open(
            self.handle, len(peers), ints(*peers), None if sources is None else ints(*sources), ctypes.byref(handle)
        )
        self._check(result)
        return Neighbors(self, handle)

    # One-sided access: remote and word (one u64) are parts of this rank's own Memory, and mean those of rank.

    def put(self, send, remote, rank, dtype=None):
        """Write send to where rank has what corresponds to remote."""
        self._move(lib.par_put, _Array(send, dtype, False), _Array(remote, dtype, False), rank)

    def get(self, remote, recv, rank, dtype=None):
        """Read into recv what rank has where this one has remote."""
        self._move(lib.par_get, _Array(remote, dtype, False), _Array(recv, dtype, True), rank)

    def _move(self, function, source, target, rank):
        if (source.count, source.dtype) != (target.count, target.dtype):
            raise TypeError("the arrays differ in size or type")
        self._check(function(source.address, target.address, source.count, source.dtype, rank, self.handle))

    def fetch_add(self, word, value, rank):
        """Add value to rank's word; returns what it was."""
        before = c_uint64()
        self._check(lib.par_fetch_add(_word(word), value, ctypes.byref(before), rank, self.handle))
        return before.value

    def signal(self, word, value, rank):
        self._check(lib.par_signal(_word(word), value, rank, self.handle))

    def wait_signal(self, word, value):
        self._check(lib.par_wait_signal(_word(word), value, lib.par_at(self.handle, *_place(2))))

    def lock(self, word, rank):
        self._check(lib.par_lock(_word(word), rank, lib.par_at(self.handle, *_place(2))))

    def unlock(self, word, rank):
        self._check(lib.par_unlock(_word(word), rank, self.handle))

    def fence(self):
        lib.par_fence(self.handle)

    def close(self):
        if self.handle:
            sys.stdout.flush()
            handle, self.handle = self.handle, None
            result = lib.par_close(handle)
            if result:
                raise Error(result, lib.par_result_text(result).decode())

    def __enter__(self):
        return self

    def __exit__(self, *error):
        if error[0] is None:
            self.close()

    def _call(self, number, form, arguments, op=None, root=0, peer=None, dtype=None, tag=0, **counts):
        constant, name, sends, receives, who, takes = _KINDS[number]
        call = par_call(kind=number, root=root if peer is None else peer, tag=tag, site=_site(3))
        arrays = list(arguments)
        if sends != "NONE" and receives != "NONE" and len(arrays) == 1 and sends.endswith("BLOCK") and receives.endswith("BLOCK"):
            arrays *= 2  # in place
        sides = [side for side in ("send", "recv") if {"send": sends, "recv": receives}[side] != "NONE"]
        if len(arrays) != len(sides):
            raise TypeError("%s takes %s" % (name, " and ".join(sides) or "no array"))
        keep = {}
        for side, array in zip(sides, arrays):
            if array is not None:
                keep[side] = _Array(array, dtype, side == "recv")
                setattr(call, side, keep[side].address)
                call.dtype = keep[side].dtype
        if len({array.dtype for array in keep.values()}) > 1:
            raise TypeError("send and recv differ in type")
        call.op = (OPS[op or "sum"] if isinstance(op or "sum", str) else op) if "OP" in takes else 0
        for member, values in counts.items():
            keep[member] = _sizes(values)
            setattr(call, member, ctypes.cast(keep[member], c_void_p) if values is not None else None)
        call.count = self._count(sends, receives, who, keep)
        if form == "_init":
            persistent = Persistent(self, call, keep)
            self._check(lib.par_init(self.handle, ctypes.byref(call), ctypes.byref(persistent._handle)))
            return persistent
        if form == "_begin":
            request = Request(self, call, keep)
            self._check(lib.par_begin(self.handle, ctypes.byref(call), ctypes.byref(request._request)))
            return request
        self._check(lib.par_begin(self.handle, ctypes.byref(call), None))
        return None

    def _count(self, sends, receives, who, keep):
        """The elements of a block; with counts, those of this rank's block where the call needs them."""
        if sends == "BLOCK":
            return keep["send"].count
        if receives == "BLOCK":
            return keep["recv"].count
        if "send" in keep:
            return keep["send"].count // self.size
        return 0


def _add_methods():
    def add(number, name, form):
        def method(self, *arrays, **others):
            return self._call(number, form, arrays, **others)

        method.__name__ = name + form
        method.__doc__ = "par_%s; see par.h." % method.__name__
        setattr(Comm, method.__name__, method)

    for number, name in enumerate(KINDS):
        for form in ("", "_begin", "_init"):
            if _KINDS[number][5] != "NEIGHBORS":
                add(number, name, form)


_add_methods()
