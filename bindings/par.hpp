// par.hpp - par.h for C++17: typed arrays, comms and requests that close and wait by themselves, and errors as
// exceptions or as values.
//
// Public domain or MIT-0, as par.h.
/*
USE
    #include "bindings/par.hpp" where you call it; one file has par.h's implementation (PAR_IMPLEMENTATION).

EXAMPLE
    #define PAR_IMPLEMENTATION
    #include "par.hpp"
    #include <vector>

    int main() {
        par::comm world;                                    // from here on PAR_RANKS ranks run
        std::vector<double> x(4, world.rank());
        world.all_reduce(x, PAR_SUM);                       // in place
        if (world.is_root()) std::printf("%d ranks: %g\n", world.size(), x[0]);
        // with PAR_RANKS=3 it prints: 3 ranks: 3
    }

    Arrays are whatever has data() and size(), C arrays, and par::view(pointer, count); a single variable is
    par::one(x). A dtype follows from the type of elements; par::f16, par::bf16 and par::f8_... are the types
    that only hold narrow floats. A count follows from the sizes of the arrays, and an array of the wrong size
    is an error, on all ranks of a collective. v-forms take counts, and displs that may be left out, as arrays
    of size_t. Calls return void and throw par::error. par::returning::comm has the same calls, but they return
    par::expected, which is true, or has the error: if (auto r = world.barrier(); !r) puts(r.error()). Where
    exceptions are off, par::comm is that one.
    A _begin call returns a request. Its arrays stay until wait(), or its destructor, which waits; so requests go
    before their world does. neighbors_open(peers) gives an object that exchanges halos; peer, signal and
    wait_signal are C's.
    Errors name the line of the call by themselves. handle() is C's par_comm *, for all that is not here.
*/
#ifndef PAR_HPP
#define PAR_HPP
#include "par.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <string>
#include <type_traits>
#include <utility>
#if defined(__cpp_exceptions)
#include <stdexcept>
#endif

namespace par {

// ---- types of elements

#define PAR_HPP_STRUCT_FLOAT(name, type)
#define PAR_HPP_STRUCT_SIGNED(name, type)
#define PAR_HPP_STRUCT_UNSIGNED(name, type)
#define PAR_HPP_STRUCT_NARROW(name, type)                                                                    \
    struct name {                                                                                            \
        type bits;                                                                                           \
    };
#define X(constant, name, type, sums, family, ...) PAR_HPP_STRUCT_##family(name, type)
PAR_DTYPES(X)
#undef X

// The dtype whose elements are T's; -1: none.
template <class T> constexpr int find_dtype() {
#define PAR_HPP_IS_FLOAT(name, type)  std::is_same_v<T, type>
#define PAR_HPP_IS_NARROW(name, type) std::is_same_v<T, name>
#define PAR_HPP_IS_SIGNED(name, type)                                                                        \
    (std::is_integral_v<T> && !std::is_same_v<T, bool> && std::is_signed_v<T> && sizeof(T) == sizeof(type))
#define PAR_HPP_IS_UNSIGNED(name, type)                                                                      \
    (std::is_integral_v<T> && !std::is_same_v<T, bool> && !std::is_signed_v<T> && sizeof(T) == sizeof(type))
#define X(constant, name, type, sums, family, ...)                                                           \
    if (PAR_HPP_IS_##family(name, type)) return constant;
    PAR_DTYPES(X)
#undef X
    return -1;
}
template <class T> constexpr par_dtype dtype_at() {
    static_assert(find_dtype<T>() >= 0, "no dtype of the kit has elements of this type");
    return static_cast<par_dtype>(find_dtype<T>());
}
template <class T> inline constexpr par_dtype dtype_of = dtype_at<T>();

// ---- arrays

template <class T> class view { // of somebody else's memory; C++20's std::span does as well
  public:
    constexpr view() = default;
    constexpr view(T *data, std::size_t size) : data_(data), size_(size) {}
    constexpr T *data() const { return data_; }
    constexpr std::size_t size() const { return size_; }
    constexpr T *begin() const { return data_; }
    constexpr T *end() const { return data_ + size_; }
    constexpr T &operator[](std::size_t i) const { return data_[i]; }

  private:
    T *data_ = nullptr;
    std::size_t size_ = 0;
};
template <class T> constexpr view<T> one(T &value) { return view<T>(&value, 1); }
template <class A> constexpr auto view_of(A &array) {
    using T = std::remove_pointer_t<decltype(std::data(array))>;
    return view<T>(std::data(array), std::size(array));
}
template <class A>
using element_of = std::remove_cv_t<std::remove_pointer_t<decltype(std::data(std::declval<A &>()))>>;

// Of an array with so many blocks; a rank may have no neighbors.
constexpr std::size_t part(std::size_t size, std::size_t blocks) { return blocks ? size / blocks : 0; }

// Counts or displacements, one for each rank; left out: packed.
class sizes {
  public:
    constexpr sizes() = default;
    template <class A> constexpr sizes(const A &array) : data_(std::data(array)), size_(std::size(array)) {}
    constexpr const std::size_t *data() const { return data_; }
    constexpr std::size_t size() const { return size_; }

  private:
    const std::size_t *data_ = nullptr;
    std::size_t size_ = 0;
};

// What does not fit in a call: it converts to true, and makes the call an error. Ranks of a collective hear of it.
class misfit {
  public:
    misfit(std::size_t needs, const char *array, std::size_t has) { compare(needs, array, has, false); }
    // Arrays and lists of a call of so many blocks, against what par_call_spans says that it touches. With counts,
    // what has a block for each rank may be longer.
    misfit(const par_comm *comm, std::size_t blocks, par_kind kind, int root, std::size_t count,
           const std::size_t (&has)[2], const sizes (&lists)[4]) {
        static const char *const names[] = {"send_counts", "send_displs", "recv_counts", "recv_displs"};
        const par_kind_traits &t = *par_kind_traits_of(kind);
        const bool same = t.counts == PAR_COUNTS_SAME;
        for (int i = 0; i < 4; i++)
            if (lists[i].data()) compare(blocks, names[i] + (same ? 5 : 0), lists[i].size(), false);
        if (array_) return;
        std::size_t needs[2];
        par_call call = par_call();
        call.kind = kind;
        call.root = root;
        call.count = count;
        call.send_counts = lists[0].data();
        call.send_displs = lists[1].data();
        call.recv_counts = lists[2].data();
        call.recv_displs = lists[3].data();
        par_call_spans(comm, &call, &needs[0], &needs[1]);
        for (int i = 0; i < 2; i++) {
            const par_side side = i ? t.recv : t.send;
            const bool cut = (side & PAR_SIDE_ALL) != 0,
                       counted = t.counts != PAR_COUNTS_NONE && (same || cut);
            if (!side || ((side & PAR_SIDE_ROOT) && par_rank(comm) != root)) continue; // it is not touched
            if (counted && !lists[i || same ? 2 : 0].data()) continue;                 // C says so
            compare(needs[i], i ? "recv" : "send", has[i], counted && cut);
        }
    }
    explicit operator bool() const { return array_ != nullptr; }
    par_dtype dtype(par_dtype right) const { return array_ ? PAR_DTYPE_COUNT : right; } // there is none such
    par_result fail(par_comm *comm, const char *call) const {
        return par_fail(comm, PAR_ERR_ARGUMENT, "par::comm::%s: %s has %zu elements, not %zu", call, array_,
                        has_, needs_);
    }

  private:
    void compare(std::size_t needs, const char *array, std::size_t has, bool more) {
        if (array_ || has == needs || (more && has > needs)) return;
        array_ = array;
        has_ = has;
        needs_ = needs;
    }
    const char *array_ = nullptr;
    std::size_t has_ = 0, needs_ = 0;
};

// ---- call sites and errors

struct site { // a default argument: the line of the call
    const char *file;
    int line;
    static constexpr site here(const char *file = __builtin_FILE(), int line = __builtin_LINE()) {
        return site{file, line};
    }
};

// The outcome of a call that does not throw: a value, or an error and its text.
template <class T> class expected {
  public:
    expected(T &&value) : value_(std::move(value)) {}
    expected(par_result result, const char *text, T &&value)
        : result_(result), text_(text), value_(std::move(value)) {}
    explicit operator bool() const { return result_ == PAR_OK; }
    par_result code() const { return result_; }
    const char *error() const { return text_.c_str(); }
    T &operator*() { return value_; }
    T *operator->() { return &value_; }

  private:
    par_result result_ = PAR_OK;
    std::string text_;
    T value_;
};
template <> class expected<void> {
  public:
    expected() = default;
    expected(par_result result, const char *text) : result_(result), text_(text) {}
    explicit operator bool() const { return result_ == PAR_OK; }
    par_result code() const { return result_; }
    const char *error() const { return text_.c_str(); }

  private:
    par_result result_ = PAR_OK;
    std::string text_;
};
// The text of an error: its comm's, or, where that may be gone, where its texts are.
inline const char *text_of(par_result result, const char *text) {
    return *text ? text : par_result_text(result);
}
inline const char *text_of(par_result result, const par_comm *comm) {
    return text_of(result, comm ? par_last_error(comm) : "");
}
inline const char *text_of(par_result result, std::nullptr_t) { return par_result_text(result); }

// How calls report errors: as values ...
struct as_values {
    template <class T> using outcome = expected<T>;
    template <class From> static expected<void> end(par_result result, From from) {
        if (result == PAR_OK) return {};
        return {result, text_of(result, from)};
    }
    template <class From, class T> static expected<T> end(par_result result, From from, T &&value) {
        if (result == PAR_OK) return {std::move(value)};
        return {result, text_of(result, from), std::move(value)};
    }
};
// ... or as exceptions.
#if defined(__cpp_exceptions)
class error : public std::runtime_error {
  public:
    error(par_result result, const char *text) : std::runtime_error(text), result_(result) {}
    par_result code() const noexcept { return result_; }

  private:
    par_result result_;
};
struct as_exceptions {
    template <class T> using outcome = T;
    template <class From> static void end(par_result result, From from) {
        if (result != PAR_OK) throw error(result, text_of(result, from));
    }
    template <class From, class T> static T end(par_result result, From from, T &&value) {
        end(result, from);
        return std::move(value);
    }
};
#endif

// ---- requests

// A call that was begun. It is waited for at the latest by its destructor, which ignores its error: call wait.
// Its comm may be closed before.
template <class Errors> class request {
  public:
    template <class T> using outcome = typename Errors::template outcome<T>;
    explicit request(par_comm *comm = nullptr) : text_(comm ? par_last_error(comm) : "") {}
    request(request &&other) noexcept
        : text_(other.text_), request_(std::exchange(other.request_, par_request())) {}
    request &operator=(request &&other) noexcept {
        if (this != &other) {
            (void)par_wait(&request_);
            text_ = other.text_;
            request_ = std::exchange(other.request_, par_request());
        }
        return *this;
    }
    ~request() { (void)par_wait(&request_); }
    outcome<void> wait() { return Errors::end(par_wait(&request_), text_); }
    outcome<bool> test() { // true: as wait
        int done = 0;
        const par_result result = par_test(&request_, &done);
        return Errors::end(result, text_, done != 0);
    }
    par_request *handle() { return &request_; }

  private:
    template <class> friend class basic_comm;
    template <class> friend class neighbors;
    const char *text_; // of errors, for as long as the world is open
    par_request request_ = par_request();
};

// ---- neighbors

// The ranks with which a rank exchanges a halo: comm::neighbors_open. Calls take counts, and displs that may be
// left out ({}), as arrays of size_t with one for each neighbor. Close it before its comm.
template <class Errors> class neighbors {
  public:
    template <class T> using outcome = typename Errors::template outcome<T>;
    using request = par::request<Errors>;

    neighbors() = default;
    neighbors(neighbors &&other) noexcept
        : neighbors_(std::exchange(other.neighbors_, nullptr)),
          handle_(std::exchange(other.handle_, nullptr)) {}
    neighbors &operator=(neighbors &&other) noexcept {
        std::swap(neighbors_, other.neighbors_);
        std::swap(handle_, other.handle_);
        return *this;
    }
    ~neighbors() { (void)(par_neighbors_close)(neighbors_); }
    outcome<void> close(site at = site::here()) {
        const par_result result = (par_neighbors_close)(at_line(at));
        neighbors_ = nullptr;
        handle_ = nullptr;
        return Errors::end(result, nullptr);
    }
    par_neighbors *handle() const { return neighbors_; }

    // clang-format off
    // GENERATED neighbors by make bindings

    template <class S, class R>
    outcome<void> exchange(const S &send, sizes send_counts, sizes send_displs, R &&recv, sizes recv_counts,
                           sizes recv_displs, site at = site::here()) const {
        using T = element_of<S>;
        const auto send_view = view_of(send);
        const auto recv_view = view_of(recv);
        static_assert(std::is_same_v<T, element_of<R>>, "send and recv differ in type");
        const misfit wrong(handle_, blocks(), PAR_KIND_NEIGHBOR_EXCHANGE, 0, part(send_view.size(), blocks()),
                           {send_view.size(), recv_view.size()}, {{send_counts}, {send_displs}, {recv_counts},
                           {recv_displs}});
        par_result result = (par_neighbor_exchange)(send_view.data(), send_counts.data(), send_displs.data(),
                                                    recv_view.data(), recv_counts.data(), recv_displs.data(),
                                                    wrong.dtype(dtype_of<T>), at_line(at));
        if (wrong) result = wrong.fail(handle_, "exchange");
        return Errors::end(result, handle_);
    }

    template <class S, class R>
    outcome<request> exchange_begin(const S &send, sizes send_counts, sizes send_displs, R &&recv,
                                    sizes recv_counts, sizes recv_displs, site at = site::here()) const {
        using T = element_of<S>;
        const auto send_view = view_of(send);
        const auto recv_view = view_of(recv);
        static_assert(std::is_same_v<T, element_of<R>>, "send and recv differ in type");
        request r(handle_);
        const misfit wrong(handle_, blocks(), PAR_KIND_NEIGHBOR_EXCHANGE, 0, part(send_view.size(), blocks()),
                           {send_view.size(), recv_view.size()}, {{send_counts}, {send_displs}, {recv_counts},
                           {recv_displs}});
        par_result result = (par_neighbor_exchange_begin)(send_view.data(), send_counts.data(),
                                                          send_displs.data(), recv_view.data(),
                                                          recv_counts.data(), recv_displs.data(),
                                                          wrong.dtype(dtype_of<T>), at_line(at), &r.request_);
        if (wrong) result = wrong.fail(handle_, "exchange_begin");
        return Errors::end(result, handle_, std::move(r));
    }
    // END GENERATED
    // clang-format on

  private:
    template <class> friend class basic_comm;
    par_neighbors *at_line(site at) const {
        par_at(handle_, at.file, at.line);
        return neighbors_;
    }
    par_neighbors *neighbors_ = nullptr;
    std::size_t blocks() const { return static_cast<std::size_t>(par_neighbors_degree(neighbors_)); }
    par_comm *handle_ = nullptr; // their own
};

// ---- comms

template <class Errors> class basic_comm {
  public:
    template <class T> using outcome = typename Errors::template outcome<T>;
    using request = par::request<Errors>;
    using neighbors = par::neighbors<Errors>;

    // The world: par_open. Where errors are values, look at valid().
    explicit basic_comm(const par_desc *desc = nullptr) {
        const par_result result = par_open(desc, &handle_);
        if (result != PAR_OK) (void)Errors::end(result, nullptr);
    }
    // Take over a comm of C, which this one closes.
    static basic_comm own(par_comm *handle) { return basic_comm(handle, 0); }
#if defined(PAR_MPI)
    static basic_comm adopt(MPI_Comm mpi, const par_desc *desc = nullptr) {
        basic_comm adopted(nullptr, 0);
        const par_result result = par_open_mpi(desc, mpi, &adopted.handle_);
        if (result != PAR_OK) (void)Errors::end(result, nullptr);
        return adopted;
    }
#endif
    basic_comm(basic_comm &&other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
    basic_comm &operator=(basic_comm &&other) noexcept {
        std::swap(handle_, other.handle_);
        return *this;
    }
    ~basic_comm() { (void)(par_close)(handle_); }
    outcome<void> close(site at = site::here()) {
        const par_result result = (par_close)(at_line(at));
        handle_ = nullptr;
        return Errors::end(result, nullptr);
    }

    bool valid() const { return handle_ != nullptr; }
    par_comm *handle() const { return handle_; }
    int rank() const { return par_rank(handle_); }
    int size() const { return par_size(handle_); }
    bool is_root(int root = 0) const { return rank() == root; }
    // color < 0: the comm is not valid.
    outcome<basic_comm> split(int color, int key = 0, site at = site::here()) const {
        basic_comm part(nullptr, 0);
        const par_result result = (par_split)(at_line(at), color, key, &part.handle_);
        return Errors::end(result, handle_, std::move(part));
    }
    outcome<void> barrier(site at = site::here()) const {
        return Errors::end((par_barrier)(at_line(at)), handle_);
    }
    // Arrays of int: the rank to which each block goes, and the one from which it comes; -1: none.
    template <class P> outcome<neighbors> neighbors_open(const P &peers, site at = site::here()) const {
        return neighbors_open(peers, peers, at);
    }
    template <class P, class S>
    outcome<neighbors> neighbors_open(const P &peers, const S &sources, site at = site::here()) const {
        neighbors n;
        const bool fits = std::size(peers) == std::size(sources);
        par_result result = (par_neighbors_open)(at_line(at), fits ? static_cast<int>(std::size(peers)) : -1,
                                                 std::data(peers), std::data(sources), &n.neighbors_);
        n.handle_ = par_neighbors_comm(n.neighbors_);
        const misfit wrong(std::size(peers), "sources", std::size(sources));
        if (wrong) result = wrong.fail(handle_, "neighbors_open");
        return Errors::end(result, handle_, std::move(n));
    }

    // Symmetric memory of so many elements, zeroed; free it on all ranks.
    template <class T> outcome<view<T>> alloc(std::size_t count, site at = site::here()) const {
        void *memory = (par_alloc)(at_line(at), count * sizeof(T));
        return Errors::end(memory ? PAR_OK : PAR_ERR_MEMORY, handle_,
                           view<T>(static_cast<T *>(memory), count));
    }
    template <class T> outcome<void> free(view<T> memory, site at = site::here()) const {
        return Errors::end((par_free)(at_line(at), memory.data()), handle_);
    }
    // Where rank has what corresponds to mine, in memory of alloc(); nullptr: on another node.
    template <class T> T *peer(const T *mine, int rank) const {
        return static_cast<T *>(par_peer(handle_, mine, rank));
    }

    // In place.
    template <class A> outcome<void> all_reduce(A &&array, par_op op, site at = site::here()) const {
        return all_reduce(array, array, op, at);
    }
    template <class A> outcome<void> broadcast(A &&array, int root, site at = site::here()) const {
        return broadcast(array, array, root, at);
    }
    template <class A> outcome<void> reduce(A &&array, par_op op, int root, site at = site::here()) const {
        return reduce(array, array, op, root, at);
    }

    // clang-format off
    // GENERATED calls by make bindings

    template <class S, class R>
    outcome<void> all_reduce(const S &send, R &&recv, par_op op, site at = site::here()) const {
        using T = element_of<S>;
        const auto send_view = view_of(send);
        const auto recv_view = view_of(recv);
        static_assert(std::is_same_v<T, element_of<R>>, "send and recv differ in type");
        const misfit wrong(handle_, blocks(), PAR_KIND_ALL_REDUCE, 0, send_view.size(), {send_view.size(),
                           recv_view.size()}, {{}, {}, {}, {}});
        par_result result = (par_all_reduce)(send_view.data(), recv_view.data(), send_view.size(),
                                             wrong.dtype(dtype_of<T>), op, at_line(at));
        if (wrong) result = wrong.fail(handle_, "all_reduce");
        return Errors::end(result, handle_);
    }

    template <class S, class R>
    outcome<request> all_reduce_begin(const S &send, R &&recv, par_op op, site at = site::here()) const {
        using T = element_of<S>;
        const auto send_view = view_of(send);
        const auto recv_view = view_of(recv);
        static_assert(std::is_same_v<T, element_of<R>>, "send and recv differ in type");
        request r(handle_);
        const misfit wrong(handle_, blocks(), PAR_KIND_ALL_REDUCE, 0, send_view.size(), {send_view.size(),
                           recv_view.size()}, {{}, {}, {}, {}});
        par_result result = (par_all_reduce_begin)(send_view.data(), recv_view.data(), send_view.size(),
                                                   wrong.dtype(dtype_of<T>), op, at_line(at), &r.request_);
        if (wrong) result = wrong.fail(handle_, "all_reduce_begin");
        return Errors::end(result, handle_, std::move(r));
    }

    template <class S, class R>
    outcome<void> reduce_scatter(const S &send, R &&recv, par_op op, site at = site::here()) const {
        using T = element_of<S>;
        const auto send_view = view_of(send);
        const auto recv_view = view_of(recv);
        static_assert(std::is_same_v<T, element_of<R>>, "send and recv differ in type");
        const misfit wrong(handle_, blocks(), PAR_KIND_REDUCE_SCATTER, 0, recv_view.size(), {send_view.size(),
                           recv_view.size()}, {{}, {}, {}, {}});
        par_result result = (par_reduce_scatter)(send_view.data(), recv_view.data(), recv_view.size(),
                                                 wrong.dtype(dtype_of<T>), op, at_line(at));
        if (wrong) result = wrong.fail(handle_, "reduce_scatter");
        return Errors::end(result, handle_);
    }

    template <class S, class R>
    outcome<request> reduce_scatter_begin(const S &send, R &&recv, par_op op, site at = site::here()) const {
        using T = element_of<S>;
        const auto send_view = view_of(send);
        const auto recv_view = view_of(recv);
        static_assert(std::is_same_v<T, element_of<R>>, "send and recv differ in type");
        request r(handle_);
        const misfit wrong(handle_, blocks(), PAR_KIND_REDUCE_SCATTER, 0, recv_view.size(), {send_view.size(),
                           recv_view.size()}, {{}, {}, {}, {}});
        par_result result = (par_reduce_scatter_begin)(send_view.data(), recv_view.data(), recv_view.size(),
                                                       wrong.dtype(dtype_of<T>), op, at_line(at),
                                                       &r.request_);
        if (wrong) result = wrong.fail(handle_, "reduce_scatter_begin");
        return Errors::end(result, handle_, std::move(r));
    }

    template <class S, class R>
    outcome<void> reduce_scatterv(const S &send, R &&recv, sizes recv_counts, par_op op,
                                  site at = site::here()) const {
        using T = element_of<S>;
        const auto send_view = view_of(send);
        const auto recv_view = view_of(recv);
        static_assert(std::is_same_v<T, element_of<R>>, "send and recv differ in type");
        const misfit wrong(handle_, blocks(), PAR_KIND_REDUCE_SCATTERV, 0, recv_view.size(),
                           {send_view.size(), recv_view.size()}, {{}, {}, {recv_counts}, {}});
        par_result result = (par_reduce_scatterv)(send_view.data(), recv_view.data(), recv_counts.data(),
                                                  wrong.dtype(dtype_of<T>), op, at_line(at));
        if (wrong) result = wrong.fail(handle_, "reduce_scatterv");
        return Errors::end(result, handle_);
    }

    template <class S, class R>
    outcome<request> reduce_scatterv_begin(const S &send, R &&recv, sizes recv_counts, par_op op,
                                           site at = site::here()) const {
        using T = element_of<S>;
        const auto send_view = view_of(send);
        const auto recv_view = view_of(recv);
        static_assert(std::is_same_v<T, element_of<R>>, "send and recv differ in type");
        request r(handle_);
        const misfit wrong(handle_, blocks(), PAR_KIND_REDUCE_SCATTERV, 0, recv_view.size(),
                           {send_view.size(), recv_view.size()}, {{}, {}, {recv_counts}, {}});
        par_result result = (par_reduce_scatterv_begin)(send_view.data(), recv_view.data(),
                                                        recv_counts.data(), wrong.dtype(dtype_of<T>), op,
                                                        at_line(at), &r.request_);
        if (wrong) result = wrong.fail(handle_, "reduce_scatterv_begin");
        return Errors::end(result, handle_, std::move(r));
    }

    template <class S, class R>
    outcome<void> all_gather(const S &send, R &&recv, site at = site::here()) const {
        using T = element_of<S>;
        const auto send_view = view_of(send);
        const auto recv_view = view_of(recv);
        static_assert(std::is_same_v<T, element_of<R>>, "send and recv differ in type");
        const misfit wrong(handle_, blocks(), PAR_KIND_ALL_GATHER, 0, send_view.size(), {send_view.size(),
                           recv_view.size()}, {{}, {}, {}, {}});
        par_result result = (par_all_gather)(send_view.data(), recv_view.data(), send_view.size(),
                                             wrong.dtype(dtype_of<T>), at_line(at));
        if (wrong) result = wrong.fail(handle_, "all_gather");
        return Errors::end(result, handle_);
    }

    template <class S, class R>
    outcome<request> all_gather_begin(const S &send, R &&recv, site at = site::here()) const {
        using T = element_of<S>;
        const auto send_view = view_of(send);
        const auto recv_view = view_of(recv);
        static_assert(std::is_same_v<T, element_of<R>>, "send and recv differ in type");
        request r(handle_);
        const misfit wrong(handle_, blocks(), PAR_KIND_ALL_GATHER, 0, send_view.size(), {send_view.size(),
                           recv_view.size()}, {{}, {}, {}, {}});
        par_result result = (par_all_gather_begin)(send_view.data(), recv_view.data(), send_view.size(),
                                                   wrong.dtype(dtype_of<T>), at_line(at), &r.request_);
        if (wrong) result = wrong.fail(handle_, "all_gather_begin");
        return Errors::end(result, handle_, std::move(r));
    }

    template <class S, class R>
    outcome<void> all_gatherv(const S &send, R &&recv, sizes recv_counts, sizes recv_displs,
                              site at = site::here()) const {
        using T = element_of<S>;
        const auto send_view = view_of(send);
        const auto recv_view = view_of(recv);
        static_assert(std::is_same_v<T, element_of<R>>, "send and recv differ in type");
        const misfit wrong(handle_, blocks(), PAR_KIND_ALL_GATHERV, 0, send_view.size(), {send_view.size(),
                           recv_view.size()}, {{}, {}, {recv_counts}, {recv_displs}});
        par_result result = (par_all_gatherv)(send_view.data(), recv_view.data(), recv_counts.data(),
                                              recv_displs.data(), wrong.dtype(dtype_of<T>), at_line(at));
        if (wrong) result = wrong.fail(handle_, "all_gatherv");
        return Errors::end(result, handle_);
    }

    template <class S, class R>
    outcome<request> all_gatherv_begin(const S &send, R &&recv, sizes recv_counts, sizes recv_displs,
                                       site at = site::here()) const {
        using T = element_of<S>;
        const auto send_view = view_of(send);
        const auto recv_view = view_of(recv);
        static_assert(std::is_same_v<T, element_of<R>>, "send and recv differ in type");
        request r(handle_);
        const misfit wrong(handle_, blocks(), PAR_KIND_ALL_GATHERV, 0, send_view.size(), {send_view.size(),
                           recv_view.size()}, {{}, {}, {recv_counts}, {recv_displs}});
        par_result result = (par_all_gatherv_begin)(send_view.data(), recv_view.data(), recv_counts.data(),
                                                    recv_displs.data(), wrong.dtype(dtype_of<T>), at_line(at),
                                                    &r.request_);
        if (wrong) result = wrong.fail(handle_, "all_gatherv_begin");
        return Errors::end(result, handle_, std::move(r));
    }

    template <class S, class R>
    outcome<void> broadcast(const S &send, R &&recv, int root, site at = site::here()) const {
        using T = element_of<S>;
        const auto send_view = view_of(send);
        const auto recv_view = view_of(recv);
        static_assert(std::is_same_v<T, element_of<R>>, "send and recv differ in type");
        const misfit wrong(handle_, blocks(), PAR_KIND_BROADCAST, root, recv_view.size(), {send_view.size(),
                           recv_view.size()}, {{}, {}, {}, {}});
        par_result result = (par_broadcast)(send_view.data(), recv_view.data(), recv_view.size(),
                                            wrong.dtype(dtype_of<T>), root, at_line(at));
        if (wrong) result = wrong.fail(handle_, "broadcast");
        return Errors::end(result, handle_);
    }

    template <class S, class R>
    outcome<request> broadcast_begin(const S &send, R &&recv, int root, site at = site::here()) const {
        using T = element_of<S>;
        const auto send_view = view_of(send);
        const auto recv_view = view_of(recv);
        static_assert(std::is_same_v<T, element_of<R>>, "send and recv differ in type");
        request r(handle_);
        const misfit wrong(handle_, blocks(), PAR_KIND_BROADCAST, root, recv_view.size(), {send_view.size(),
                           recv_view.size()}, {{}, {}, {}, {}});
        par_result result = (par_broadcast_begin)(send_view.data(), recv_view.data(), recv_view.size(),
                                                  wrong.dtype(dtype_of<T>), root, at_line(at), &r.request_);
        if (wrong) result = wrong.fail(handle_, "broadcast_begin");
        return Errors::end(result, handle_, std::move(r));
    }

    template <class S, class R>
    outcome<void> reduce(const S &send, R &&recv, par_op op, int root, site at = site::here()) const {
        using T = element_of<S>;
        const auto send_view = view_of(send);
        const auto recv_view = view_of(recv);
        static_assert(std::is_same_v<T, element_of<R>>, "send and recv differ in type");
        const misfit wrong(handle_, blocks(), PAR_KIND_REDUCE, root, send_view.size(), {send_view.size(),
                           recv_view.size()}, {{}, {}, {}, {}});
        par_result result = (par_reduce)(send_view.data(), recv_view.data(), send_view.size(),
                                         wrong.dtype(dtype_of<T>), op, root, at_line(at));
        if (wrong) result = wrong.fail(handle_, "reduce");
        return Errors::end(result, handle_);
    }

    template <class S, class R>
    outcome<request> reduce_begin(const S &send, R &&recv, par_op op, int root,
                                  site at = site::here()) const {
        using T = element_of<S>;
        const auto send_view = view_of(send);
        const auto recv_view = view_of(recv);
        static_assert(std::is_same_v<T, element_of<R>>, "send and recv differ in type");
        request r(handle_);
        const misfit wrong(handle_, blocks(), PAR_KIND_REDUCE, root, send_view.size(), {send_view.size(),
                           recv_view.size()}, {{}, {}, {}, {}});
        par_result result = (par_reduce_begin)(send_view.data(), recv_view.data(), send_view.size(),
                                               wrong.dtype(dtype_of<T>), op, root, at_line(at), &r.request_);
        if (wrong) result = wrong.fail(handle_, "reduce_begin");
        return Errors::end(result, handle_, std::move(r));
    }

    template <class S, class R>
    outcome<void> gather(const S &send, R &&recv, int root, site at = site::here()) const {
        using T = element_of<S>;
        const auto send_view = view_of(send);
        const auto recv_view = view_of(recv);
        static_assert(std::is_same_v<T, element_of<R>>, "send and recv differ in type");
        const misfit wrong(handle_, blocks(), PAR_KIND_GATHER, root, send_view.size(), {send_view.size(),
                           recv_view.size()}, {{}, {}, {}, {}});
        par_result result = (par_gather)(send_view.data(), recv_view.data(), send_view.size(),
                                         wrong.dtype(dtype_of<T>), root, at_line(at));
        if (wrong) result = wrong.fail(handle_, "gather");
        return Errors::end(result, handle_);
    }

    template <class S, class R>
    outcome<request> gather_begin(const S &send, R &&recv, int root, site at = site::here()) const {
        using T = element_of<S>;
        const auto send_view = view_of(send);
        const auto recv_view = view_of(recv);
        static_assert(std::is_same_v<T, element_of<R>>, "send and recv differ in type");
        request r(handle_);
        const misfit wrong(handle_, blocks(), PAR_KIND_GATHER, root, send_view.size(), {send_view.size(),
                           recv_view.size()}, {{}, {}, {}, {}});
        par_result result = (par_gather_begin)(send_view.data(), recv_view.data(), send_view.size(),
                                               wrong.dtype(dtype_of<T>), root, at_line(at), &r.request_);
        if (wrong) result = wrong.fail(handle_, "gather_begin");
        return Errors::end(result, handle_, std::move(r));
    }

    template <class S, class R>
    outcome<void> gatherv(const S &send, R &&recv, sizes recv_counts, sizes recv_displs, int root,
                          site at = site::here()) const {
        using T = element_of<S>;
        const auto send_view = view_of(send);
        const auto recv_view = view_of(recv);
        static_assert(std::is_same_v<T, element_of<R>>, "send and recv differ in type");
        const misfit wrong(handle_, blocks(), PAR_KIND_GATHERV, root, send_view.size(), {send_view.size(),
                           recv_view.size()}, {{}, {}, {recv_counts}, {recv_displs}});
        par_result result = (par_gatherv)(send_view.data(), send_view.size(), recv_view.data(),
                                          recv_counts.data(), recv_displs.data(), wrong.dtype(dtype_of<T>),
                                          root, at_line(at));
        if (wrong) result = wrong.fail(handle_, "gatherv");
        return Errors::end(result, handle_);
    }

    template <class S, class R>
    outcome<request> gatherv_begin(const S &send, R &&recv, sizes recv_counts, sizes recv_displs, int root,
                                   site at = site::here()) const {
        using T = element_of<S>;
        const auto send_view = view_of(send);
        const auto recv_view = view_of(recv);
        static_assert(std::is_same_v<T, element_of<R>>, "send and recv differ in type");
        request r(handle_);
        const misfit wrong(handle_, blocks(), PAR_KIND_GATHERV, root, send_view.size(), {send_view.size(),
                           recv_view.size()}, {{}, {}, {recv_counts}, {recv_displs}});
        par_result result = (par_gatherv_begin)(send_view.data(), send_view.size(), recv_view.data(),
                                                recv_counts.data(), recv_displs.data(),
                                                wrong.dtype(dtype_of<T>), root, at_line(at), &r.request_);
        if (wrong) result = wrong.fail(handle_, "gatherv_begin");
        return Errors::end(result, handle_, std::move(r));
    }

    template <class S, class R>
    outcome<void> scatter(const S &send, R &&recv, int root, site at = site::here()) const {
        using T = element_of<S>;
        const auto send_view = view_of(send);
        const auto recv_view = view_of(recv);
        static_assert(std::is_same_v<T, element_of<R>>, "send and recv differ in type");
        const misfit wrong(handle_, blocks(), PAR_KIND_SCATTER, root, recv_view.size(), {send_view.size(),
                           recv_view.size()}, {{}, {}, {}, {}});
        par_result result = (par_scatter)(send_view.data(), recv_view.data(), recv_view.size(),
                                          wrong.dtype(dtype_of<T>), root, at_line(at));
        if (wrong) result = wrong.fail(handle_, "scatter");
        return Errors::end(result, handle_);
    }

    template <class S, class R>
    outcome<request> scatter_begin(const S &send, R &&recv, int root, site at = site::here()) const {
        using T = element_of<S>;
        const auto send_view = view_of(send);
        const auto recv_view = view_of(recv);
        static_assert(std::is_same_v<T, element_of<R>>, "send and recv differ in type");
        request r(handle_);
        const misfit wrong(handle_, blocks(), PAR_KIND_SCATTER, root, recv_view.size(), {send_view.size(),
                           recv_view.size()}, {{}, {}, {}, {}});
        par_result result = (par_scatter_begin)(send_view.data(), recv_view.data(), recv_view.size(),
                                                wrong.dtype(dtype_of<T>), root, at_line(at), &r.request_);
        if (wrong) result = wrong.fail(handle_, "scatter_begin");
        return Errors::end(result, handle_, std::move(r));
    }

    template <class S, class R>
    outcome<void> scatterv(const S &send, sizes send_counts, sizes send_displs, R &&recv, int root,
                           site at = site::here()) const {
        using T = element_of<S>;
        const auto send_view = view_of(send);
        const auto recv_view = view_of(recv);
        static_assert(std::is_same_v<T, element_of<R>>, "send and recv differ in type");
        const misfit wrong(handle_, blocks(), PAR_KIND_SCATTERV, root, recv_view.size(), {send_view.size(),
                           recv_view.size()}, {{send_counts}, {send_displs}, {}, {}});
        par_result result = (par_scatterv)(send_view.data(), send_counts.data(), send_displs.data(),
                                           recv_view.data(), recv_view.size(), wrong.dtype(dtype_of<T>), root,
                                           at_line(at));
        if (wrong) result = wrong.fail(handle_, "scatterv");
        return Errors::end(result, handle_);
    }

    template <class S, class R>
    outcome<request> scatterv_begin(const S &send, sizes send_counts, sizes send_displs, R &&recv, int root,
                                    site at = site::here()) const {
        using T = element_of<S>;
        const auto send_view = view_of(send);
        const auto recv_view = view_of(recv);
        static_assert(std::is_same_v<T, element_of<R>>, "send and recv differ in type");
        request r(handle_);
        const misfit wrong(handle_, blocks(), PAR_KIND_SCATTERV, root, recv_view.size(), {send_view.size(),
                           recv_view.size()}, {{send_counts}, {send_displs}, {}, {}});
        par_result result = (par_scatterv_begin)(send_view.data(), send_counts.data(), send_displs.data(),
                                                 recv_view.data(), recv_view.size(), wrong.dtype(dtype_of<T>),
                                                 root, at_line(at), &r.request_);
        if (wrong) result = wrong.fail(handle_, "scatterv_begin");
        return Errors::end(result, handle_, std::move(r));
    }

    template <class S, class R>
    outcome<void> all_to_all(const S &send, R &&recv, site at = site::here()) const {
        using T = element_of<S>;
        const auto send_view = view_of(send);
        const auto recv_view = view_of(recv);
        static_assert(std::is_same_v<T, element_of<R>>, "send and recv differ in type");
        const misfit wrong(handle_, blocks(), PAR_KIND_ALL_TO_ALL, 0, part(send_view.size(), blocks()),
                           {send_view.size(), recv_view.size()}, {{}, {}, {}, {}});
        par_result result = (par_all_to_all)(send_view.data(), recv_view.data(), part(send_view.size(),
                                             blocks()), wrong.dtype(dtype_of<T>), at_line(at));
        if (wrong) result = wrong.fail(handle_, "all_to_all");
        return Errors::end(result, handle_);
    }

    template <class S, class R>
    outcome<request> all_to_all_begin(const S &send, R &&recv, site at = site::here()) const {
        using T = element_of<S>;
        const auto send_view = view_of(send);
        const auto recv_view = view_of(recv);
        static_assert(std::is_same_v<T, element_of<R>>, "send and recv differ in type");
        request r(handle_);
        const misfit wrong(handle_, blocks(), PAR_KIND_ALL_TO_ALL, 0, part(send_view.size(), blocks()),
                           {send_view.size(), recv_view.size()}, {{}, {}, {}, {}});
        par_result result = (par_all_to_all_begin)(send_view.data(), recv_view.data(), part(send_view.size(),
                                                   blocks()), wrong.dtype(dtype_of<T>), at_line(at),
                                                   &r.request_);
        if (wrong) result = wrong.fail(handle_, "all_to_all_begin");
        return Errors::end(result, handle_, std::move(r));
    }

    template <class S, class R>
    outcome<void> all_to_allv(const S &send, sizes send_counts, sizes send_displs, R &&recv,
                              sizes recv_counts, sizes recv_displs, site at = site::here()) const {
        using T = element_of<S>;
        const auto send_view = view_of(send);
        const auto recv_view = view_of(recv);
        static_assert(std::is_same_v<T, element_of<R>>, "send and recv differ in type");
        const misfit wrong(handle_, blocks(), PAR_KIND_ALL_TO_ALLV, 0, part(send_view.size(), blocks()),
                           {send_view.size(), recv_view.size()}, {{send_counts}, {send_displs}, {recv_counts},
                           {recv_displs}});
        par_result result = (par_all_to_allv)(send_view.data(), send_counts.data(), send_displs.data(),
                                              recv_view.data(), recv_counts.data(), recv_displs.data(),
                                              wrong.dtype(dtype_of<T>), at_line(at));
        if (wrong) result = wrong.fail(handle_, "all_to_allv");
        return Errors::end(result, handle_);
    }

    template <class S, class R>
    outcome<request> all_to_allv_begin(const S &send, sizes send_counts, sizes send_displs, R &&recv,
                                       sizes recv_counts, sizes recv_displs, site at = site::here()) const {
        using T = element_of<S>;
        const auto send_view = view_of(send);
        const auto recv_view = view_of(recv);
        static_assert(std::is_same_v<T, element_of<R>>, "send and recv differ in type");
        request r(handle_);
        const misfit wrong(handle_, blocks(), PAR_KIND_ALL_TO_ALLV, 0, part(send_view.size(), blocks()),
                           {send_view.size(), recv_view.size()}, {{send_counts}, {send_displs}, {recv_counts},
                           {recv_displs}});
        par_result result = (par_all_to_allv_begin)(send_view.data(), send_counts.data(), send_displs.data(),
                                                    recv_view.data(), recv_counts.data(), recv_displs.data(),
                                                    wrong.dtype(dtype_of<T>), at_line(at), &r.request_);
        if (wrong) result = wrong.fail(handle_, "all_to_allv_begin");
        return Errors::end(result, handle_, std::move(r));
    }

    template <class S>
    outcome<void> send(const S &send, int peer, site at = site::here()) const {
        using T = element_of<S>;
        const auto send_view = view_of(send);
        const par_result result = (par_send)(send_view.data(), send_view.size(), dtype_of<T>, peer,
                                             at_line(at));
        return Errors::end(result, handle_);
    }

    template <class S>
    outcome<request> send_begin(const S &send, int peer, site at = site::here()) const {
        using T = element_of<S>;
        const auto send_view = view_of(send);
        request r(handle_);
        const par_result result = (par_send_begin)(send_view.data(), send_view.size(), dtype_of<T>, peer,
                                                   at_line(at), &r.request_);
        return Errors::end(result, handle_, std::move(r));
    }

    template <class R>
    outcome<void> recv(R &&recv, int peer, site at = site::here()) const {
        using T = element_of<R>;
        const auto recv_view = view_of(recv);
        const par_result result = (par_recv)(recv_view.data(), recv_view.size(), dtype_of<T>, peer,
                                             at_line(at));
        return Errors::end(result, handle_);
    }

    template <class R>
    outcome<request> recv_begin(R &&recv, int peer, site at = site::here()) const {
        using T = element_of<R>;
        const auto recv_view = view_of(recv);
        request r(handle_);
        const par_result result = (par_recv_begin)(recv_view.data(), recv_view.size(), dtype_of<T>, peer,
                                                   at_line(at), &r.request_);
        return Errors::end(result, handle_, std::move(r));
    }
    // END GENERATED

    // Signals: a word is in this rank's own block of alloc(), and means the one of rank.
    // GENERATED signals by make bindings

    outcome<void> agree(std::uint64_t *value) const {
        const par_result result = (par_agree)(handle_, value);
        return Errors::end(result, handle_);
    }

    outcome<void> signal(std::uint64_t *word, std::uint64_t value, int rank) const {
        const par_result result = (par_signal)(word, value, rank, handle_);
        return Errors::end(result, handle_);
    }

    outcome<void> wait_signal(const std::uint64_t *word, std::uint64_t value, site at = site::here()) const {
        const par_result result = (par_wait_signal)(word, value, at_line(at));
        return Errors::end(result, handle_);
    }
    // END GENERATED
    // clang-format on

  private:
    basic_comm(par_comm *handle, int) : handle_(handle) {}
    std::size_t blocks() const { return static_cast<std::size_t>(size()); } // one for each rank
    par_comm *at_line(site at) const { return par_at(handle_, at.file, at.line); }
    par_comm *handle_ = nullptr;
};

namespace returning {
using comm = basic_comm<as_values>;
}
#if defined(__cpp_exceptions)
using comm = basic_comm<as_exceptions>;
#else
using comm = returning::comm;
#endif

} // namespace par
#endif // PAR_HPP
