# bindings/par.py: calls on buffers, NumPy arrays and DLPack tensors; errors that name the line; requests,
# neighbors, one-sided access.
import array
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "bindings"))
import par

failures = 0


def check(ok):
    global failures
    if not ok:
        failures += 1
        print("CHECK failed in line", sys._getframe(1).f_lineno, file=sys.stderr)


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
again = world.all_reduce_init(x, y)
for step in range(3):
    x[0] = step
    again.start()
    again.wait()
    check(y[0] == n * step)
again.free()
after, before = (me + 1) % n, (me - 1) % n
ring = world.neighbors_open([after, before], [before, after])
own, halo = array.array("d", [me, 10 + me, 20 + me]), array.array("d", [0, 0, 0])
ring.exchange(own, halo, [2, 1], [2, 1], recv_displs=[1, 0])
check(list(halo) == [20 + after, before, 10 + before])
ring.exchange_begin(own, halo, [2, 1], [2, 1], send_displs=[1, 0]).wait()
check(list(halo) == [10 + before, 20 + before, after])
again = ring.exchange_init(own, halo, [2, 1], [2, 1])
for step in range(3):
    own[0] = step
    again.start()
    again.wait()
    check(halo[0] == step)
again.free()
try:
    ring.exchange(own, halo, None, None)
    check(False)
except par.Error as error:
    check("test_py.py:" in str(error) and "counts is NULL" in str(error))
ring.close()
shared = world.alloc(8, "u64")
one, flag, total, mutex = (shared.buffer[i : i + 1] for i in range(1, 5))
world.put(array.array("Q", [7 + after]), one, after)
world.signal(flag, 1, after)
world.wait_signal(flag, 1)
check(one[0] == 7 + me)
back = array.array("Q", [0])
world.get(one, back, after)
check(back[0] == 7 + after)
world.lock(mutex, 0)
check(world.fetch_add(total, 2, 0) % 2 == 0)
world.unlock(mutex, 0)
world.barrier()
check(me or total[0] == 2 * n)
for slice in (one, flag, total, mutex):
    slice.release()
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


world.all_reduce(Tensor())
check(memory.buffer[3] == 2 * n * n)
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
memory.free()
world.close()
sys.exit(failures != 0)
