// bindings/par.hpp: every call on several ranks, errors as exceptions and as values, requests that wait.
#include "../bindings/par.hpp"

#include <array>
#include <cstdint>
#include <vector>

static int failures = 0;
#define CHECK(c)                                                                                             \
    do {                                                                                                     \
        if (!(c)) failures++, std::fprintf(stderr, "CHECK(%s) at line %d\n", #c, __LINE__);                  \
    } while (0)

static_assert(par::dtype_of<double> == PAR_F64 && par::dtype_of<long long> == PAR_I64, "");
static_assert(par::dtype_of<par::bf16> == PAR_BF16 && par::dtype_of<unsigned char> == PAR_U8, "");

static void collectives(const par::returning::comm &world) {
    const int n = world.size(), me = world.rank();
    const std::size_t ranks = static_cast<std::size_t>(n);
    std::vector<double> x(3, me), y(3), all(3 * ranks);
    double sum = 0;
    for (int r = 0; r < n; r++) sum += r;
    CHECK(world.all_reduce(x, y, PAR_SUM) && y[2] == sum);
    CHECK(world.reduce_scatter(all, y, PAR_SUM) && y[0] == 0);
    CHECK(world.all_gather(x, all) && all[3 * ranks - 1] == n - 1);
    CHECK(world.gather(x, all, 0) && (me || all[3] == 1));
    for (double &value : all) value = value + 1;
    CHECK(world.scatter(all, y, 0) && (me || y[1] == 1));
    CHECK(world.all_to_all(all, std::vector<double>(3 * ranks)));
    int word = me == 1 ? 7 : 0;
    CHECK(world.broadcast(par::one(word), 1) && word == 7);
    CHECK(world.reduce(par::one(word), PAR_MAX, 0) && word == 7);
    std::vector<std::size_t> counts(ranks, 1);
    std::int64_t ids[8] = {}, mine = me;
    CHECK(world.all_gatherv(par::one(mine), par::view<std::int64_t>(ids, ranks), counts, {}) &&
          ids[n - 1] == n - 1);
    auto half = world.split(me % 2, 0);
    CHECK(half && (*half).size() == (n + 1 - me % 2) / 2);
    auto memory = world.alloc<float>(64);
    CHECK(memory && (*memory)[63] == 0 && world.free(*memory));
    std::array<float, 2> got = {}, put = {{1, 2}};
    auto recv = world.recv_begin(got, me ? me - 1 : n - 1);
    auto sent = world.send_begin(put, (me + 1) % n);
    CHECK(sent->wait() && recv->wait() && got[1] == 2);
    { auto request = world.all_reduce_begin(x, y, PAR_MAX); } // its destructor waits
    CHECK(y[0] == n - 1);
    auto again = world.all_reduce_init(x, y, PAR_SUM);
    for (int i = 0; i < 3; i++) {
        x[0] = i;
        CHECK(again->start() && again->wait() && y[0] == i * n);
    }
    const auto wrong = world.all_gather(x, std::vector<double>(1));
    CHECK(!wrong && wrong.code() == PAR_ERR_ARGUMENT);
    CHECK(std::string(wrong.error()).find("recv has 1 elements, not ") != std::string::npos);
}

int main() {
    par::returning::comm world;
    if (!world.valid()) return 1;
    collectives(world);
#if defined(__cpp_exceptions)
    par_comm *part;
    CHECK(par_split(world.handle(), 0, 0, &part) == PAR_OK);
    const par::comm throwing = par::comm::own(part);
    int x[2] = {1, 1};
    throwing.all_reduce(x, PAR_SUM);
    CHECK(x[1] == world.size());
    try {
        throwing.broadcast(x, 99);
        CHECK(!"it throws");
    } catch (const par::error &e) {
        CHECK(e.code() == PAR_ERR_ARGUMENT &&
              std::string(e.what()).find("test_hpp.cpp:") != std::string::npos);
    }
#endif
    CHECK(world.barrier());
    return failures != 0;
}
