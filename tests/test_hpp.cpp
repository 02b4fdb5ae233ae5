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
    const auto wrong = world.all_gather(x, std::vector<double>(1));
    CHECK(!wrong && wrong.code() == PAR_ERR_ARGUMENT);
    CHECK(std::string(wrong.error()).find("recv has 1 elements, not ") != std::string::npos);
}

// An array of another size than its call reads or writes is an error on all ranks, which names the array.
static void sizes_differ(const par::returning::comm &world) {
    const std::size_t n = static_cast<std::size_t>(world.size());
    const std::vector<std::size_t> two(n, 2), fewer(n - 1, 2);
    std::vector<int> block(2), one(1), all(2 * n), more(2 * n + 1), less(2 * n - 1);
    const auto says = [](const auto &outcome, const char *text) {
        return !outcome && std::string(outcome.error()).find(text) != std::string::npos;
    };
    CHECK(world.all_gatherv(block, more, two, {}) && world.reduce_scatterv(all, block, two, PAR_SUM));
    CHECK(says(world.all_gatherv(block, less, two, {}), "recv has "));
    CHECK(says(world.all_gatherv(one, all, two, {}), "send has 1 elements, not 2"));
    CHECK(says(world.all_gatherv(block, all, fewer, {}), ": counts has "));
    CHECK(says(world.all_gatherv(block, all, two, fewer), ": displs has "));
    CHECK(says(world.all_gatherv(block, all, {}, {}), "counts is NULL"));
    CHECK(says(world.reduce_scatterv(less, block, two, PAR_SUM), "send has "));
    CHECK(says(world.all_to_allv(all, two, {}, less, two, {}), "recv has "));
    CHECK(says(world.all_to_allv_begin(less, two, {}, all, two, {}), "send has "));
    CHECK(says(world.all_to_allv_begin(all, two, {}, all, fewer, {}), "recv_counts has "));
    CHECK(says(world.all_to_all(all, less), "recv has ") && says(world.all_to_all(more, more), "send has "));
    const auto gathered = world.gatherv(block, less, two, {}, 0);
    CHECK(says(gathered, world.is_root() ? "recv has " : "rank 0 called par_gatherv"));
    const auto scattered = world.scatterv(less, two, {}, block, 0);
    CHECK(says(scattered, world.is_root() ? "send has " : "rank 0 called par_scatterv"));
    std::vector<int> none; // rank 0 sends nothing, but wants to receive
    CHECK(says(world.all_reduce(none, world.is_root() ? one : none, PAR_SUM),
               world.is_root() ? "recv has 1 elements, not 0" : "rank 0 called par_all_reduce"));
    const int me = world.rank();
    auto self = world.neighbors_open(std::array<int, 2>{{me, -1}}); // without a second neighbor
    const std::array<std::size_t, 2> counts = {{2, 9}};
    CHECK(self && self->exchange(block, counts, {}, std::vector<int>(2), counts, {}));
    CHECK(says(self->exchange(block, counts, {}, one, counts, {}), "recv has 1 elements, not 2"));
    CHECK(says(self->exchange(one, counts, {}, block, counts, {}), "send has 1 elements, not 2"));
    CHECK(says(self->exchange(block, two, {}, one, std::array<std::size_t, 1>{{2}}, {}), "_counts has "));
    const std::vector<std::size_t> no_counts; // of a rank without neighbors
    auto alone = world.neighbors_open(std::vector<int>());
    CHECK(alone && alone->exchange(none, no_counts, {}, none, no_counts, {}));
}

// A ring: two values go to the next rank, one to the one before.
static void halo(const par::returning::comm &world) {
    const int n = world.size(), me = world.rank(), next = (me + 1) % n, before = (me + n - 1) % n;
    const std::array<int, 2> to = {{next, before}}, from = {{before, next}};
    const std::array<std::size_t, 2> counts = {{2, 1}}, displs = {{1, 0}};
    std::array<double, 3> own = {{1.0 * me, 10.0 + me, 20.0 + me}}, got = {};
    auto neighbors = world.neighbors_open(to, from);
    CHECK(neighbors && neighbors->exchange(own, counts, {}, got, counts, displs));
    CHECK(got[0] == 20 + next && got[1] == before && got[2] == 10 + before);
    auto begun = neighbors->exchange_begin(own, counts, displs, got, counts, {});
    CHECK(begun->wait() && got[0] == 10 + before && got[2] == next);
    for (own[0] = 0; own[0] < 3; own[0]++)
        CHECK(neighbors->exchange(own, counts, {}, got, counts, {}) && got[0] == own[0] &&
              got[2] == 20 + next);
    const auto wrong = neighbors->exchange(own, {}, {}, got, {}, {});
    CHECK(!wrong && std::string(wrong.error()).find("test_hpp.cpp:") != std::string::npos);
    CHECK(std::string(wrong.error()).find("counts is NULL") != std::string::npos);
    CHECK(!world.neighbors_open(to, std::array<int, 1>()) && !world.neighbors_open(std::array<int, 1>{{n}}));
    begun = neighbors->exchange_begin(own, counts, {}, got, counts, {});
    CHECK(neighbors->close() && !neighbors->handle() && begun->wait() && got[0] == own[0]);
}

// Each rank writes to the next one, which waits for its signal, and reads it back.
static void signals(const par::returning::comm &world) {
    const int next = (world.rank() + 1) % world.size();
    auto memory = world.alloc<std::uint64_t>(8);
    const par::view<std::uint64_t> words = *memory;
    std::uint64_t *signal = words.data() + 2, *there = world.peer(words.data() + 1, next);
    *there = 7u + static_cast<unsigned>(next);
    CHECK(world.signal(signal, 1, next) && world.wait_signal(signal, 1));
    CHECK(words[1] == 7u + static_cast<unsigned>(world.rank()) && *there == 7u + static_cast<unsigned>(next));
    CHECK(!world.signal(signal, 1, world.size())); // no such rank
    CHECK(world.barrier() && world.free(words));
}

int main() {
    par::returning::comm world;
    if (!world.valid()) return 1;
    collectives(world);
    sizes_differ(world);
    halo(world);
    signals(world);
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
