# bindings/par.py: calls on buffers, NumPy arrays and DLPack tensors; errors that name the line; requests,
# neighbors, signals; arrays that do not fit what their call touches.
import array
import ctypes
import os
import sys
import time
import weakref

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "bindings"))
import par

failures = 0


def check(ok):
    global failures
    if not ok:
        failures += 1
        print("CHECK failed in line", sys._getframe(1).f_lineno, file=sys.stderr)


def refused(text, function, *arguments, **options):
    """It is an error with this text on all ranks, and the comm goes on."""
    try:
        function(*arguments, **options)
        said = "nothing"
    except (TypeError, ValueError, BufferError, par.Error) as error:
        said = str(error)
    if text not in said:
        print("wanted %r, got %r" % (text, said), file=sys.stderr)
    check(text in said)


world = par.Comm()
n, me = world.size, world.rank
x, y = array.array("d", [me, 1]), array.array("d", [0, 0])
world.all_reduce(x, y)
check(y[0] == n * (n - 1) / 2 and y[1] == n)
world.all_reduce(x, op="max")
check(x[0] == n - 1)
everybody = array.array("i", [0] * n)
world.all_gather(array.array("i", [me]), everybody)
check(list(everybody) == list(range(n)))
sizes = [r + 1 for r in range(n)]
rows = array.array("q", [0] * sum(sizes))
world.all_gatherv(array.array("q", [me] * (me + 1)), rows, recv_counts=sizes)
check(rows[-1] == n - 1 and rows[-n] == n - 1)
word = array.array("B", b"abc" if me == 1 else b"   ")
world.broadcast(word, root=1)
check(word.tobytes() == b"abc")
got = array.array("f", [0])
requests = [
    world.recv_begin(got, peer=(me - 1) % n),
    world.send_begin(array.array("f", [me]), peer=(me + 1) % n),
]
for request in requests:
    request.wait()
check(got[0] == (me - 1) % n)
after, before = (me + 1) % n, (me - 1) % n
ring = world.neighbors_open([after, before], [before, after])
own, halo = array.array("d", [me, 10 + me, 20 + me]), array.array("d", [0, 0, 0])
ring.exchange(own, halo, [2, 1], [2, 1], recv_displs=[1, 0])
check(list(halo) == [20 + after, before, 10 + before])
ring.exchange_begin(own, halo, [2, 1], [2, 1], send_displs=[1, 0]).wait()
check(list(halo) == [10 + before, 20 + before, after])
for step in range(3):
    own[0] = step
    ring.exchange(own, halo, [2, 1], [2, 1])
    check(halo[0] == step)
try:
    ring.exchange(own, halo, None, None)
    check(False)
except par.Error as error:
    check("test_py.py:" in str(error) and "counts is NULL" in str(error))
ring.close()
shared = world.alloc(8, "u64")
there, flag = shared.peer(after), shared.buffer[2:3]
there[1] = 7 + after
world.signal(flag, 1, after)
world.wait_signal(flag, 1)
check(shared.buffer[1] == 7 + me and there[1] == 7 + after)
world.barrier()
for part in (there, flag):
    part.release()
shared.free()
try:
    world.broadcast(word, root=99)
    check(False)
except par.Error as error:
    check(error.result == "PAR_ERR_ARGUMENT" and "test_py.py:" in str(error))
memory = world.alloc(8, "f32")
memory.buffer[3] = 2
world.all_reduce(memory.buffer)
check(memory.buffer[3] == 2 * n)


class Tensor:  # has DLPack alone
    def __dlpack__(self):
        return memory.__dlpack__()


class Elsewhere(Tensor):
    def __dlpack_device__(self):
        return (2, 0)  # kDLCUDA


class Strided(Tensor):
    step = (ctypes.c_int64 * 1)(2)

    def __dlpack__(self):
        capsule = memory.__dlpack__()
        list(par._exported.values())[-1][0].tensor.strides = self.step
        return capsule


world.all_reduce(Tensor())
check(memory.buffer[3] == 2 * n * n)
for text, source in ("not in the host's memory (DLPack's device 2)", Elsewhere()), ("send has gaps", Strided()):
    refused(text, world.all_reduce, source)
def doubles(count):
    return array.array("d", [1] * count)


# Every kind of call, by its traits: arrays of just the right size pass, and each that is one too short, or too
# long, is refused; so is each list of counts with one entry too few.
for constant, name, sends, receives, who, takes in par._KINDS:
    if takes in ("PEER", "NEIGHBORS") or sends == receives == "NONE":
        continue
    call = getattr(world, name)
    used = {side: not kind.startswith("ROOT") or me == 0 for side, kind in (("send", sends), ("recv", receives))}
    size = {side: 2 * n if kind.endswith("ALL") else 2 for side, kind in (("send", sends), ("recv", receives))}
    lists = {"NONE": [], "SAME": ["recv_counts"], "OWN": ["send_counts", "recv_counts"]}
    lists["ROOT"] = ["send_counts" if sends.endswith("ALL") else "recv_counts"]
    counts = {member: [2] * n for member in lists[who]}
    call(doubles(size["send"]), doubles(size["recv"]), **counts)
    for side, kind in (("send", sends), ("recv", receives)):
        for more in (-1, 1):
            wrong = dict(size)
            wrong[side] += more
            arrays = doubles(wrong["send"]), doubles(wrong["recv"])
            if more > 0 and who != "NONE" and kind.endswith("ALL"):
                call(*arrays, **counts)
            else:
                refused("par_%s" % name, call, *arrays, **counts)
    for member in counts:
        short = dict(counts)
        short[member] = [2] * (n - 1)
        refused("%s has %d entries" % (member, n - 1), call, doubles(size["send"]), doubles(size["recv"]), **short)
    if who == "NONE":  # a mistake of one rank reaches the others at once
        wrong = doubles(size["send"]), doubles(size["recv"] - (me == 0))
        refused("elements, but the call" if me == 0 else "rank 0 called par_" + name, call, *wrong)
ends = world.neighbors_open([(me + 1) % n, -1], [(me - 1) % n, -1])  # without a second neighbor
ends.exchange(doubles(2), doubles(2), [2, 5], [2, 5])
ends.exchange(doubles(2), doubles(7), [2, 5], [2, 5], recv_displs=[5, 100])
refused("recv has 6 elements, but the call writes 7", ends.exchange, doubles(2), doubles(6), [2, 5], [2, 5], None, [5, 0])
refused("send has 1 elements", ends.exchange, doubles(1), doubles(2), [2, 0], [2, 0])
refused("recv_counts has 1 entries, but there are 2 neighbors", ends.exchange, doubles(2), doubles(2), [2, 0], [2])
ends.close()
x, swapped = doubles(2), (ctypes.c_double.__ctype_be__ * 2)(1, 2)
native = (ctypes.c_float * 2)(1, 2)
world.all_reduce(native)
check(native[0] == n)
world.broadcast(b"text" if me == 0 else bytearray(4))  # who sends may have what cannot be written
for text, function, arguments, options in [
    ("in another order of bytes", world.all_reduce, (swapped,), {}),
    ("has gaps", world.all_reduce, (memoryview(doubles(4))[::2],), {}),
    ("is read-only", world.all_reduce, (b"1234",), {}),
    ("is a list", world.all_reduce, ([1.0, 2.0],), {}),
    ("no dtype: pass them as integers", world.all_reduce, ((ctypes.c_void_p * 2)(),), {}),
    ("not of bf16", world.all_reduce, (x,), {"dtype": "bf16"}),
    ("not of i64", world.all_reduce, (x,), {"dtype": "i64"}),
    ("there is no dtype 'float32': they are f64, f32", world.all_reduce, (x,), {"dtype": "float32"}),
    ("send and recv differ in type: f64 and f32", world.all_reduce, (x, native), {}),
    ("bools have no sum", world.all_reduce, ((ctypes.c_bool * 2)(),), {}),
    ("they are sum, avg, prod, min, max, scaled_sum, tree_sum; did you mean avg?", world.all_reduce, (x,), {"op": "mean"}),
    ("did you mean sum?", world.all_reduce, (x,), {"op": "summ"}),
    ("there is no op <built-in function max>", world.all_reduce, (x,), {"op": max}),
    ("no such op", world.all_reduce, (x,), {"op": 99}),
    ("par_scaled_sum(factor)", world.all_reduce, (x,), {"op": "scaled_sum"}),
    ("it takes no root", world.all_reduce, (x,), {"root": 0}),
    ("it takes no op", world.broadcast, (x,), {"op": "sum"}),
    ("it takes no tag", world.broadcast, (x,), {"tag": 3}),
    ("root is 1.5, not an integer", world.broadcast, (x,), {"root": 1.5}),
    ("is no int of C", world.broadcast, (x,), {"root": 2**32}),
    ("it takes send and recv", world.all_gather, (x,), {}),
    ("send is NULL", world.all_gather, (None, doubles(2 * n)), {}),
    ("below 0", world.all_gatherv, (x, doubles(2 * n)), {"recv_counts": [-2] * n}),
    ("counts is NULL", world.all_gatherv, (x, doubles(2 * n)), {}),
    ("it needs peer=", world.send, (x,), {}),
    ("there is no recv_count: it takes dtype, op,", world.all_gatherv, (x, doubles(2 * n)), {"recv_count": [2] * n}),
    ("there is no count: it takes dtype, op,", world.all_reduce, (x,), {"count": [1] * n}),
]:
    refused(text, function, *arguments, **options)
refused("word has 2 elements", world.signal, array.array("Q", [0, 0]), 1, 0)
refused("there is no dtype 'f33'", world.alloc, 4, "f33")
# A request that nobody keeps waits, else a call would write into arrays that have been freed.
flags = world.alloc(1, "u64")
if me == 0:
    for r in range(1, n):
        world.signal(flags.buffer, 1, r)
else:
    world.wait_signal(flags.buffer, 1)
    time.sleep(0.02)  # rank 0 is in the call, or has gone on without it
sum = doubles(1)
world.all_reduce_begin(doubles(1), sum)
check(sum[0] == n)
flags.free()
par.lib.par_group_begin(world.handle)  # in a group the arrays stay
send, sum = doubles(1), doubles(1)
sent = weakref.ref(send)
world.all_reduce_begin(send, sum)
del send
check(sent() is not None)
par.lib.par_group_end(world.handle)
check(sum[0] == n)
# What was begun on a comm that is closed goes on, and its arrays stay
part = world.split(0)
send = doubles(1)
sent = weakref.ref(send)
sum[0] = -1
left = part.all_reduce_begin(send, sum)
part.close()
del send
check(sent() is not None)
left.wait()
check(sum[0] == n)
check(sent() is None)
refused("has been closed", part.barrier)
half = world.split(me % 2)
half.barrier()
half.close()
if "numpy" in sys.argv:
    import numpy

    a = numpy.full((2, 3), me, dtype="float16")
    world.all_reduce(a, op="sum")
    check(a[1, 2] == n * (n - 1) / 2)
    try:
        world.all_reduce(a[:, 1])
        check(False)
    except ValueError:
        pass
    b = numpy.asarray(memory)
    b[:] = 1
    world.all_reduce(b)
    check(memory.buffer[0] == n)
    check(numpy.from_dlpack(memory)[1] == n)
    del a, b
    a = numpy.ones((2, 3))
    refused("has Fortran's order", world.all_reduce, numpy.asfortranarray(a))
    refused("has Fortran's order", world.all_reduce, a, a.T)
    refused("has Fortran's order", world.all_reduce, a if me else numpy.asfortranarray(a)) if me == 0 else refused(
        "rank 0 called par_all_reduce", world.all_reduce, a
    )
    refused("in another order of bytes", world.all_reduce, a.astype(">f8"))
    refused("no dtype", world.all_reduce, a.astype("c16"))
    refused("is read-only", world.all_reduce, numpy.broadcast_to(a, (2, 3)).view())
    world.all_gatherv(a[:, :1].copy(), numpy.ones(2 * n), recv_counts=numpy.full(n, 2))
memory.free()
late = world.all_reduce_begin(doubles(100000))  # a small call may have ended
world.close()
refused("has been closed", late.wait)
refused("has been closed", lambda: world.rank)
sys.exit(failures != 0)
