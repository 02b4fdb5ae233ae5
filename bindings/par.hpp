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
    is an error. v-forms take counts, and displs that may be left out, as arrays of size_t.
    Calls return void and throw par::error. par::returning::comm has the same calls, but they return
    par::expected, which is true, or has the error: if (auto r = world.barrier(); !r) puts(r.error()). Where
    exceptions are off, par::comm is that one.
    A _begin call returns a request. Its arrays stay until wait(), or its destructor, which waits. A call made by
    _init is persistent: start() and wait() it again and again. neighbors_open(peers) gives an object that
    exchanges halos; put, get, signal and their like are C's.
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

// Counts or displacements, one for each rank; left out: packed.
class sizes {
  public:
    constexpr sizes() = default;
    template <class A> constexpr sizes(const A &array) : data_(std::data(array)) {}
    constexpr const std::size_t *data() const { return data_; }

  private:
    const std::size_t *data_ = nullptr;
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
inline const char *text_of(par_result result, const par_comm *comm) {
    const char *text = comm ? par_last_error(comm) : "";
    return *text ? text : par_result_text(result);
}

// How calls report errors: as values ...
struct as_values {
    template <class T> using outcome = expected<T>;
    static expected<void> end(par_result result, const par_comm *comm) {
        if (result == PAR_OK) return {};
        return {result, text_of(result, comm)};
    }
    template <class T> static expected<T> end(par_result result, const par_comm *comm, T &&value) {
        if (result == PAR_OK) return {std::move(value)};
        return {result, text_of(result, comm), std::move(value)};
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
    static void end(par_result result, const par_comm *comm) {
        if (result != PAR_OK) throw error(result, text_of(result, comm));
    }
    template <class T> static T end(par_result result, const par_comm *comm, T &&value) {
        end(result, comm);
        return std::move(value);
    }
};
#endif

// ---- requests

// A call that was begun. It is waited for at the latest by its destructor, which ignores its error: call wait.
template <class Errors> class request {
  public:
    template <class T> using outcome = typename Errors::template outcome<T>;
    explicit request(par_comm *comm = nullptr) : comm_(comm) {}
    request(request &&other) noexcept
        : comm_(other.comm_), request_(std::exchange(other.request_, par_request())) {}
    request &operator=(request &&other) noexcept {
        if (this != &other) {
            (void)par_wait(&request_);
            comm_ = other.comm_;
            request_ = std::exchange(other.request_, par_request());
        }
        return *this;
    }
    ~request() { (void)par_wait(&request_); }
    outcome<void> wait() { return Errors::end(par_wait(&request_), comm_); }
    outcome<bool> test() { // true: as wait
        int done = 0;
        const par_result result = par_test(&request_, &done);
        return Errors::end(result, comm_, done != 0);
    }
    par_request *handle() { return &request_; }

  private:
    template <class> friend class basic_comm;
    template <class> friend class neighbors;
    par_comm *comm_;
    par_request request_ = par_request();
};

// A persistent call: begun again and again. Its arrays and sizes stay until it goes, and it goes before its
// comm or its neighbors are closed. wait() ends each start.
template <class Errors> class persistent {
  public:
    template <class T> using outcome = typename Errors::template outcome<T>;
    explicit persistent(par_comm *comm = nullptr) : comm_(comm) {}
    persistent(persistent &&other) noexcept
        : comm_(other.comm_), persistent_(std::exchange(other.persistent_, nullptr)),
          request_(std::exchange(other.request_, par_request())) {}
    persistent &operator=(persistent &&other) noexcept {
        std::swap(comm_, other.comm_);
        std::swap(persistent_, other.persistent_);
        std::swap(request_, other.request_);
        return *this;
    }
    ~persistent() {
        (void)par_wait(&request_);
        (void)par_persistent_free(persistent_);
    }
    outcome<void> start() { return Errors::end(par_start(persistent_, &request_), comm_); }
    outcome<void> wait() { return Errors::end(par_wait(&request_), comm_); }

  private:
    template <class> friend class basic_comm;
    template <class> friend class neighbors;
    par_comm *comm_;
    par_persistent *persistent_ = nullptr;
    par_request request_ = par_request();
};

// ---- neighbors

// The ranks with which a rank exchanges a halo: comm::neighbors_open. Calls take counts, and displs that may be
// left out ({}), as arrays of size_t with one for each neighbor. It is closed by all ranks before its comm.
template <class Errors> class neighbors {
  public:
    template <class T> using outcome = typename Errors::template outcome<T>;
    using request = par::request<Errors>;
    using persistent = par::persistent<Errors>;

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
        const par_result result = (par_neighbor_exchange)(send_view.data(), send_counts.data(),
                                                          send_displs.data(), recv_view.data(),
                                                          recv_counts.data(), recv_displs.data(), dtype_of<T>,
                                                          at_line(at));
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
        const par_result result = (par_neighbor_exchange_begin)(send_view.data(), send_counts.data(),
                                                                send_displs.data(), recv_view.data(),
                                                                recv_counts.data(), recv_displs.data(),
                                                                dtype_of<T>, at_line(at), &r.request_);
        return Errors::end(result, handle_, std::move(r));
    }

    template <class S, class R>
    outcome<persistent> exchange_init(const S &send, sizes send_counts, sizes send_displs, R &&recv,
                                      sizes recv_counts, sizes recv_displs, site at = site::here()) const {
        using T = element_of<S>;
        const auto send_view = view_of(send);
        const auto recv_view = view_of(recv);
        static_assert(std::is_same_v<T, element_of<R>>, "send and recv differ in type");
        persistent r(handle_);
        const par_result result = (par_neighbor_exchange_init)(send_view.data(), send_counts.data(),
                                                               send_displs.data(), recv_view.data(),
                                                               recv_counts.data(), recv_displs.data(),
                                                               dtype_of<T>, at_line(at), &r.persistent_);
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
    par_comm *handle_ = nullptr; // their own
};

// ---- comms

template <class Errors> class basic_comm {
  public:
    template <class T> using outcome = typename Errors::template outcome<T>;
    using request = par::request<Errors>;
    using persistent = par::persistent<Errors>;
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
        if (!fits) result = wrong_size("neighbors_open", "sources", std::size(sources), std::size(peers));
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
    void fence() const { par_fence(handle_); }

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
        const bool fits = recv_view.size() == send_view.size();
        par_result result = (par_all_reduce)(send_view.data(), fits ? recv_view.data() : nullptr,
                                             send_view.size(), dtype_of<T>, op, at_line(at));
        if (!fits) result = wrong_size("all_reduce", "recv", recv_view.size(), send_view.size());
        return Errors::end(result, handle_);
    }

    template <class S, class R>
    outcome<request> all_reduce_begin(const S &send, R &&recv, par_op op, site at = site::here()) const {
        using T = element_of<S>;
        const auto send_view = view_of(send);
        const auto recv_view = view_of(recv);
        static_assert(std::is_same_v<T, element_of<R>>, "send and recv differ in type");
        request r(handle_);
        const bool fits = recv_view.size() == send_view.size();
        par_result result = (par_all_reduce_begin)(send_view.data(), fits ? recv_view.data() : nullptr,
                                                   send_view.size(), dtype_of<T>, op, at_line(at),
                                                   &r.request_);
        if (!fits) result = wrong_size("all_reduce_begin", "recv", recv_view.size(), send_view.size());
        return Errors::end(result, handle_, std::move(r));
    }

    template <class S, class R>
    outcome<persistent> all_reduce_init(const S &send, R &&recv, par_op op, site at = site::here()) const {
        using T = element_of<S>;
        const auto send_view = view_of(send);
        const auto recv_view = view_of(recv);
        static_assert(std::is_same_v<T, element_of<R>>, "send and recv differ in type");
        persistent r(handle_);
        const bool fits = recv_view.size() == send_view.size();
        par_result result = (par_all_reduce_init)(send_view.data(), fits ? recv_view.data() : nullptr,
                                                  send_view.size(), dtype_of<T>, op, at_line(at),
                                                  &r.persistent_);
        if (!fits) result = wrong_size("all_reduce_init", "recv", recv_view.size(), send_view.size());
        return Errors::end(result, handle_, std::move(r));
    }

    template <class S, class R>
    outcome<void> reduce_scatter(const S &send, R &&recv, par_op op, site at = site::here()) const {
        using T = element_of<S>;
        const auto send_view = view_of(send);
        const auto recv_view = view_of(recv);
        static_assert(std::is_same_v<T, element_of<R>>, "send and recv differ in type");
        const bool fits = send_view.size() == ranks() * recv_view.size();
        par_result result = (par_reduce_scatter)(fits ? send_view.data() : nullptr, recv_view.data(),
                                                 recv_view.size(), dtype_of<T>, op, at_line(at));
        if (!fits) result = wrong_size("reduce_scatter", "send", send_view.size(),
            ranks() * recv_view.size());
        return Errors::end(result, handle_);
    }

    template <class S, class R>
    outcome<request> reduce_scatter_begin(const S &send, R &&recv, par_op op, site at = site::here()) const {
        using T = element_of<S>;
        const auto send_view = view_of(send);
        const auto recv_view = view_of(recv);
        static_assert(std::is_same_v<T, element_of<R>>, "send and recv differ in type");
        request r(handle_);
        const bool fits = send_view.size() == ranks() * recv_view.size();
        par_result result = (par_reduce_scatter_begin)(fits ? send_view.data() : nullptr, recv_view.data(),
                                                       recv_view.size(), dtype_of<T>, op, at_line(at),
                                                       &r.request_);
        if (!fits) result = wrong_size("reduce_scatter_begin", "send", send_view.size(),
            ranks() * recv_view.size());
        return Errors::end(result, handle_, std::move(r));
    }

    template <class S, class R>
    outcome<persistent> reduce_scatter_init(const S &send, R &&recv, par_op op,
                                            site at = site::here()) const {
        using T = element_of<S>;
        const auto send_view = view_of(send);
        const auto recv_view = view_of(recv);
        static_assert(std::is_same_v<T, element_of<R>>, "send and recv differ in type");
        persistent r(handle_);
        const bool fits = send_view.size() == ranks() * recv_view.size();
        par_result result = (par_reduce_scatter_init)(fits ? send_view.data() : nullptr, recv_view.data(),
                                                      recv_view.size(), dtype_of<T>, op, at_line(at),
                                                      &r.persistent_);
        if (!fits) result = wrong_size("reduce_scatter_init", "send", send_view.size(),
            ranks() * recv_view.size());
        return Errors::end(result, handle_, std::move(r));
    }

    template <class S, class R>
    outcome<void> reduce_scatterv(const S &send, R &&recv, sizes counts, par_op op,
                                  site at = site::here()) const {
        using T = element_of<S>;
        const auto send_view = view_of(send);
        const auto recv_view = view_of(recv);
        static_assert(std::is_same_v<T, element_of<R>>, "send and recv differ in type");
        const par_result result = (par_reduce_scatterv)(send_view.data(), recv_view.data(), counts.data(),
                                                        dtype_of<T>, op, at_line(at));
        return Errors::end(result, handle_);
    }

    template <class S, class R>
    outcome<request> reduce_scatterv_begin(const S &send, R &&recv, sizes counts, par_op op,
                                           site at = site::here()) const {
        using T = element_of<S>;
        const auto send_view = view_of(send);
        const auto recv_view = view_of(recv);
        static_assert(std::is_same_v<T, element_of<R>>, "send and recv differ in type");
        request r(handle_);
        const par_result result = (par_reduce_scatterv_begin)(send_view.data(), recv_view.data(),
                                                              counts.data(), dtype_of<T>, op, at_line(at),
                                                              &r.request_);
        return Errors::end(result, handle_, std::move(r));
    }

    template <class S, class R>
    outcome<persistent> reduce_scatterv_init(const S &send, R &&recv, sizes counts, par_op op,
                                             site at = site::here()) const {
        using T = element_of<S>;
        const auto send_view = view_of(send);
        const auto recv_view = view_of(recv);
        static_assert(std::is_same_v<T, element_of<R>>, "send and recv differ in type");
        persistent r(handle_);
        const par_result result = (par_reduce_scatterv_init)(send_view.data(), recv_view.data(),
                                                             counts.data(), dtype_of<T>, op, at_line(at),
                                                             &r.persistent_);
        return Errors::end(result, handle_, std::move(r));
    }

    template <class S, class R>
    outcome<void> all_gather(const S &send, R &&recv, site at = site::here()) const {
        using T = element_of<S>;
        const auto send_view = view_of(send);
        const auto recv_view = view_of(recv);
        static_assert(std::is_same_v<T, element_of<R>>, "send and recv differ in type");
        const bool fits = recv_view.size() == ranks() * send_view.size();
        par_result result = (par_all_gather)(send_view.data(), fits ? recv_view.data() : nullptr,
                                             send_view.size(), dtype_of<T>, at_line(at));
        if (!fits) result = wrong_size("all_gather", "recv", recv_view.size(), ranks() * send_view.size());
        return Errors::end(result, handle_);
    }

    template <class S, class R>
    outcome<request> all_gather_begin(const S &send, R &&recv, site at = site::here()) const {
        using T = element_of<S>;
        const auto send_view = view_of(send);
        const auto recv_view = view_of(recv);
        static_assert(std::is_same_v<T, element_of<R>>, "send and recv differ in type");
        request r(handle_);
        const bool fits = recv_view.size() == ranks() * send_view.size();
        par_result result = (par_all_gather_begin)(send_view.data(), fits ? recv_view.data() : nullptr,
                                                   send_view.size(), dtype_of<T>, at_line(at), &r.request_);
        if (!fits) result = wrong_size("all_gather_begin", "recv", recv_view.size(),
            ranks() * send_view.size());
        return Errors::end(result, handle_, std::move(r));
    }

    template <class S, class R>
    outcome<persistent> all_gather_init(const S &send, R &&recv, site at = site::here()) const {
        using T = element_of<S>;
        const auto send_view = view_of(send);
        const auto recv_view = view_of(recv);
        static_assert(std::is_same_v<T, element_of<R>>, "send and recv differ in type");
        persistent r(handle_);
        const bool fits = recv_view.size() == ranks() * send_view.size();
        par_result result = (par_all_gather_init)(send_view.data(), fits ? recv_view.data() : nullptr,
                                                  send_view.size(), dtype_of<T>, at_line(at), &r.persistent_);
        if (!fits) result = wrong_size("all_gather_init", "recv", recv_view.size(),
            ranks() * send_view.size());
        return Errors::end(result, handle_, std::move(r));
    }

    template <class S, class R>
    outcome<void> all_gatherv(const S &send, R &&recv, sizes counts, sizes displs,
                              site at = site::here()) const {
        using T = element_of<S>;
        const auto send_view = view_of(send);
        const auto recv_view = view_of(recv);
        static_assert(std::is_same_v<T, element_of<R>>, "send and recv differ in type");
        const par_result result = (par_all_gatherv)(send_view.data(), recv_view.data(), counts.data(),
                                                    displs.data(), dtype_of<T>, at_line(at));
        return Errors::end(result, handle_);
    }

    template <class S, class R>
    outcome<request> all_gatherv_begin(const S &send, R &&recv, sizes counts, sizes displs,
                                       site at = site::here()) const {
        using T = element_of<S>;
        const auto send_view = view_of(send);
        const auto recv_view = view_of(recv);
        static_assert(std::is_same_v<T, element_of<R>>, "send and recv differ in type");
        request r(handle_);
        const par_result result = (par_all_gatherv_begin)(send_view.data(), recv_view.data(), counts.data(),
                                                          displs.data(), dtype_of<T>, at_line(at),
                                                          &r.request_);
        return Errors::end(result, handle_, std::move(r));
    }

    template <class S, class R>
    outcome<persistent> all_gatherv_init(const S &send, R &&recv, sizes counts, sizes displs,
                                         site at = site::here()) const {
        using T = element_of<S>;
        const auto send_view = view_of(send);
        const auto recv_view = view_of(recv);
        static_assert(std::is_same_v<T, element_of<R>>, "send and recv differ in type");
        persistent r(handle_);
        const par_result result = (par_all_gatherv_init)(send_view.data(), recv_view.data(), counts.data(),
                                                         displs.data(), dtype_of<T>, at_line(at),
                                                         &r.persistent_);
        return Errors::end(result, handle_, std::move(r));
    }

    template <class S, class R>
    outcome<void> broadcast(const S &send, R &&recv, int root, site at = site::here()) const {
        using T = element_of<S>;
        const auto send_view = view_of(send);
        const auto recv_view = view_of(recv);
        static_assert(std::is_same_v<T, element_of<R>>, "send and recv differ in type");
        const bool fits = !is(root) || send_view.size() == recv_view.size();
        par_result result = (par_broadcast)(fits ? send_view.data() : nullptr, recv_view.data(),
                                            recv_view.size(), dtype_of<T>, root, at_line(at));
        if (!fits) result = wrong_size("broadcast", "send", send_view.size(), recv_view.size());
        return Errors::end(result, handle_);
    }

    template <class S, class R>
    outcome<request> broadcast_begin(const S &send, R &&recv, int root, site at = site::here()) const {
        using T = element_of<S>;
        const auto send_view = view_of(send);
        const auto recv_view = view_of(recv);
        static_assert(std::is_same_v<T, element_of<R>>, "send and recv differ in type");
        request r(handle_);
        const bool fits = !is(root) || send_view.size() == recv_view.size();
        par_result result = (par_broadcast_begin)(fits ? send_view.data() : nullptr, recv_view.data(),
                                                  recv_view.size(), dtype_of<T>, root, at_line(at),
                                                  &r.request_);
        if (!fits) result = wrong_size("broadcast_begin", "send", send_view.size(), recv_view.size());
        return Errors::end(result, handle_, std::move(r));
    }

    template <class S, class R>
    outcome<persistent> broadcast_init(const S &send, R &&recv, int root, site at = site::here()) const {
        using T = element_of<S>;
        const auto send_view = view_of(send);
        const auto recv_view = view_of(recv);
        static_assert(std::is_same_v<T, element_of<R>>, "send and recv differ in type");
        persistent r(handle_);
        const bool fits = !is(root) || send_view.size() == recv_view.size();
        par_result result = (par_broadcast_init)(fits ? send_view.data() : nullptr, recv_view.data(),
                                                 recv_view.size(), dtype_of<T>, root, at_line(at),
                                                 &r.persistent_);
        if (!fits) result = wrong_size("broadcast_init", "send", send_view.size(), recv_view.size());
        return Errors::end(result, handle_, std::move(r));
    }

    template <class S, class R>
    outcome<void> reduce(const S &send, R &&recv, par_op op, int root, site at = site::here()) const {
        using T = element_of<S>;
        const auto send_view = view_of(send);
        const auto recv_view = view_of(recv);
        static_assert(std::is_same_v<T, element_of<R>>, "send and recv differ in type");
        const bool fits = !is(root) || recv_view.size() == send_view.size();
        par_result result = (par_reduce)(send_view.data(), fits ? recv_view.data() : nullptr,
                                         send_view.size(), dtype_of<T>, op, root, at_line(at));
        if (!fits) result = wrong_size("reduce", "recv", recv_view.size(), send_view.size());
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
        const bool fits = !is(root) || recv_view.size() == send_view.size();
        par_result result = (par_reduce_begin)(send_view.data(), fits ? recv_view.data() : nullptr,
                                               send_view.size(), dtype_of<T>, op, root, at_line(at),
                                               &r.request_);
        if (!fits) result = wrong_size("reduce_begin", "recv", recv_view.size(), send_view.size());
        return Errors::end(result, handle_, std::move(r));
    }

    template <class S, class R>
    outcome<persistent> reduce_init(const S &send, R &&recv, par_op op, int root,
                                    site at = site::here()) const {
        using T = element_of<S>;
        const auto send_view = view_of(send);
        const auto recv_view = view_of(recv);
        static_assert(std::is_same_v<T, element_of<R>>, "send and recv differ in type");
        persistent r(handle_);
        const bool fits = !is(root) || recv_view.size() == send_view.size();
        par_result result = (par_reduce_init)(send_view.data(), fits ? recv_view.data() : nullptr,
                                              send_view.size(), dtype_of<T>, op, root, at_line(at),
                                              &r.persistent_);
        if (!fits) result = wrong_size("reduce_init", "recv", recv_view.size(), send_view.size());
        return Errors::end(result, handle_, std::move(r));
    }

    template <class S, class R>
    outcome<void> gather(const S &send, R &&recv, int root, site at = site::here()) const {
        using T = element_of<S>;
        const auto send_view = view_of(send);
        const auto recv_view = view_of(recv);
        static_assert(std::is_same_v<T, element_of<R>>, "send and recv differ in type");
        const bool fits = !is(root) || recv_view.size() == ranks() * send_view.size();
        par_result result = (par_gather)(send_view.data(), fits ? recv_view.data() : nullptr,
                                         send_view.size(), dtype_of<T>, root, at_line(at));
        if (!fits) result = wrong_size("gather", "recv", recv_view.size(), ranks() * send_view.size());
        return Errors::end(result, handle_);
    }

    template <class S, class R>
    outcome<request> gather_begin(const S &send, R &&recv, int root, site at = site::here()) const {
        using T = element_of<S>;
        const auto send_view = view_of(send);
        const auto recv_view = view_of(recv);
        static_assert(std::is_same_v<T, element_of<R>>, "send and recv differ in type");
        request r(handle_);
        const bool fits = !is(root) || recv_view.size() == ranks() * send_view.size();
        par_result result = (par_gather_begin)(send_view.data(), fits ? recv_view.data() : nullptr,
                                               send_view.size(), dtype_of<T>, root, at_line(at), &r.request_);
        if (!fits) result = wrong_size("gather_begin", "recv", recv_view.size(), ranks() * send_view.size());
        return Errors::end(result, handle_, std::move(r));
    }

    template <class S, class R>
    outcome<persistent> gather_init(const S &send, R &&recv, int root, site at = site::here()) const {
        using T = element_of<S>;
        const auto send_view = view_of(send);
        const auto recv_view = view_of(recv);
        static_assert(std::is_same_v<T, element_of<R>>, "send and recv differ in type");
        persistent r(handle_);
        const bool fits = !is(root) || recv_view.size() == ranks() * send_view.size();
        par_result result = (par_gather_init)(send_view.data(), fits ? recv_view.data() : nullptr,
                                              send_view.size(), dtype_of<T>, root, at_line(at),
                                              &r.persistent_);
        if (!fits) result = wrong_size("gather_init", "recv", recv_view.size(), ranks() * send_view.size());
        return Errors::end(result, handle_, std::move(r));
    }

    template <class S, class R>
    outcome<void> gatherv(const S &send, R &&recv, sizes recv_counts, sizes recv_displs, int root,
                          site at = site::here()) const {
        using T = element_of<S>;
        const auto send_view = view_of(send);
        const auto recv_view = view_of(recv);
        static_assert(std::is_same_v<T, element_of<R>>, "send and recv differ in type");
        const par_result result = (par_gatherv)(send_view.data(), send_view.size(), recv_view.data(),
                                                recv_counts.data(), recv_displs.data(), dtype_of<T>, root,
                                                at_line(at));
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
        const par_result result = (par_gatherv_begin)(send_view.data(), send_view.size(), recv_view.data(),
                                                      recv_counts.data(), recv_displs.data(), dtype_of<T>,
                                                      root, at_line(at), &r.request_);
        return Errors::end(result, handle_, std::move(r));
    }

    template <class S, class R>
    outcome<persistent> gatherv_init(const S &send, R &&recv, sizes recv_counts, sizes recv_displs, int root,
                                     site at = site::here()) const {
        using T = element_of<S>;
        const auto send_view = view_of(send);
        const auto recv_view = view_of(recv);
        static_assert(std::is_same_v<T, element_of<R>>, "send and recv differ in type");
        persistent r(handle_);
        const par_result result = (par_gatherv_init)(send_view.data(), send_view.size(), recv_view.data(),
                                                     recv_counts.data(), recv_displs.data(), dtype_of<T>,
                                                     root, at_line(at), &r.persistent_);
        return Errors::end(result, handle_, std::move(r));
    }

    template <class S, class R>
    outcome<void> scatter(const S &send, R &&recv, int root, site at = site::here()) const {
        using T = element_of<S>;
        const auto send_view = view_of(send);
        const auto recv_view = view_of(recv);
        static_assert(std::is_same_v<T, element_of<R>>, "send and recv differ in type");
        const bool fits = !is(root) || send_view.size() == ranks() * recv_view.size();
        par_result result = (par_scatter)(fits ? send_view.data() : nullptr, recv_view.data(),
                                          recv_view.size(), dtype_of<T>, root, at_line(at));
        if (!fits) result = wrong_size("scatter", "send", send_view.size(), ranks() * recv_view.size());
        return Errors::end(result, handle_);
    }

    template <class S, class R>
    outcome<request> scatter_begin(const S &send, R &&recv, int root, site at = site::here()) const {
        using T = element_of<S>;
        const auto send_view = view_of(send);
        const auto recv_view = view_of(recv);
        static_assert(std::is_same_v<T, element_of<R>>, "send and recv differ in type");
        request r(handle_);
        const bool fits = !is(root) || send_view.size() == ranks() * recv_view.size();
        par_result result = (par_scatter_begin)(fits ? send_view.data() : nullptr, recv_view.data(),
                                                recv_view.size(), dtype_of<T>, root, at_line(at),
                                                &r.request_);
        if (!fits) result = wrong_size("scatter_begin", "send", send_view.size(), ranks() * recv_view.size());
        return Errors::end(result, handle_, std::move(r));
    }

    template <class S, class R>
    outcome<persistent> scatter_init(const S &send, R &&recv, int root, site at = site::here()) const {
        using T = element_of<S>;
        const auto send_view = view_of(send);
        const auto recv_view = view_of(recv);
        static_assert(std::is_same_v<T, element_of<R>>, "send and recv differ in type");
        persistent r(handle_);
        const bool fits = !is(root) || send_view.size() == ranks() * recv_view.size();
        par_result result = (par_scatter_init)(fits ? send_view.data() : nullptr, recv_view.data(),
                                               recv_view.size(), dtype_of<T>, root, at_line(at),
                                               &r.persistent_);
        if (!fits) result = wrong_size("scatter_init", "send", send_view.size(), ranks() * recv_view.size());
        return Errors::end(result, handle_, std::move(r));
    }

    template <class S, class R>
    outcome<void> scatterv(const S &send, sizes send_counts, sizes send_displs, R &&recv, int root,
                           site at = site::here()) const {
        using T = element_of<S>;
        const auto send_view = view_of(send);
        const auto recv_view = view_of(recv);
        static_assert(std::is_same_v<T, element_of<R>>, "send and recv differ in type");
        const par_result result = (par_scatterv)(send_view.data(), send_counts.data(), send_displs.data(),
                                                 recv_view.data(), recv_view.size(), dtype_of<T>, root,
                                                 at_line(at));
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
        const par_result result = (par_scatterv_begin)(send_view.data(), send_counts.data(),
                                                       send_displs.data(), recv_view.data(), recv_view.size(),
                                                       dtype_of<T>, root, at_line(at), &r.request_);
        return Errors::end(result, handle_, std::move(r));
    }

    template <class S, class R>
    outcome<persistent> scatterv_init(const S &send, sizes send_counts, sizes send_displs, R &&recv, int root,
                                      site at = site::here()) const {
        using T = element_of<S>;
        const auto send_view = view_of(send);
        const auto recv_view = view_of(recv);
        static_assert(std::is_same_v<T, element_of<R>>, "send and recv differ in type");
        persistent r(handle_);
        const par_result result = (par_scatterv_init)(send_view.data(), send_counts.data(),
                                                      send_displs.data(), recv_view.data(), recv_view.size(),
                                                      dtype_of<T>, root, at_line(at), &r.persistent_);
        return Errors::end(result, handle_, std::move(r));
    }

    template <class S, class R>
    outcome<void> all_to_all(const S &send, R &&recv, site at = site::here()) const {
        using T = element_of<S>;
        const auto send_view = view_of(send);
        const auto recv_view = view_of(recv);
        static_assert(std::is_same_v<T, element_of<R>>, "send and recv differ in type");
        const bool fits = recv_view.size() == send_view.size() && send_view.size() % ranks() == 0;
        par_result result = (par_all_to_all)(send_view.data(), fits ? recv_view.data() : nullptr,
                                             send_view.size() / ranks(), dtype_of<T>, at_line(at));
        if (!fits) result = wrong_size("all_to_all", "recv", recv_view.size(), send_view.size());
        return Errors::end(result, handle_);
    }

    template <class S, class R>
    outcome<request> all_to_all_begin(const S &send, R &&recv, site at = site::here()) const {
        using T = element_of<S>;
        const auto send_view = view_of(send);
        const auto recv_view = view_of(recv);
        static_assert(std::is_same_v<T, element_of<R>>, "send and recv differ in type");
        request r(handle_);
        const bool fits = recv_view.size() == send_view.size() && send_view.size() % ranks() == 0;
        par_result result = (par_all_to_all_begin)(send_view.data(), fits ? recv_view.data() : nullptr,
                                                   send_view.size() / ranks(), dtype_of<T>, at_line(at),
                                                   &r.request_);
        if (!fits) result = wrong_size("all_to_all_begin", "recv", recv_view.size(), send_view.size());
        return Errors::end(result, handle_, std::move(r));
    }

    template <class S, class R>
    outcome<persistent> all_to_all_init(const S &send, R &&recv, site at = site::here()) const {
        using T = element_of<S>;
        const auto send_view = view_of(send);
        const auto recv_view = view_of(recv);
        static_assert(std::is_same_v<T, element_of<R>>, "send and recv differ in type");
        persistent r(handle_);
        const bool fits = recv_view.size() == send_view.size() && send_view.size() % ranks() == 0;
        par_result result = (par_all_to_all_init)(send_view.data(), fits ? recv_view.data() : nullptr,
                                                  send_view.size() / ranks(), dtype_of<T>, at_line(at),
                                                  &r.persistent_);
        if (!fits) result = wrong_size("all_to_all_init", "recv", recv_view.size(), send_view.size());
        return Errors::end(result, handle_, std::move(r));
    }

    template <class S, class R>
    outcome<void> all_to_allv(const S &send, sizes send_counts, sizes send_displs, R &&recv,
                              sizes recv_counts, sizes recv_displs, site at = site::here()) const {
        using T = element_of<S>;
        const auto send_view = view_of(send);
        const auto recv_view = view_of(recv);
        static_assert(std::is_same_v<T, element_of<R>>, "send and recv differ in type");
        const par_result result = (par_all_to_allv)(send_view.data(), send_counts.data(), send_displs.data(),
                                                    recv_view.data(), recv_counts.data(), recv_displs.data(),
                                                    dtype_of<T>, at_line(at));
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
        const par_result result = (par_all_to_allv_begin)(send_view.data(), send_counts.data(),
                                                          send_displs.data(), recv_view.data(),
                                                          recv_counts.data(), recv_displs.data(), dtype_of<T>,
                                                          at_line(at), &r.request_);
        return Errors::end(result, handle_, std::move(r));
    }

    template <class S, class R>
    outcome<persistent> all_to_allv_init(const S &send, sizes send_counts, sizes send_displs, R &&recv,
                                         sizes recv_counts, sizes recv_displs, site at = site::here()) const {
        using T = element_of<S>;
        const auto send_view = view_of(send);
        const auto recv_view = view_of(recv);
        static_assert(std::is_same_v<T, element_of<R>>, "send and recv differ in type");
        persistent r(handle_);
        const par_result result = (par_all_to_allv_init)(send_view.data(), send_counts.data(),
                                                         send_displs.data(), recv_view.data(),
                                                         recv_counts.data(), recv_displs.data(), dtype_of<T>,
                                                         at_line(at), &r.persistent_);
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

    // One-sided access: remote and word are in this rank's own block of alloc(), and mean the one of rank.
    // GENERATED one_sided by make bindings

    template <class S, class R>
    outcome<void> put(const S &send, R &&remote, int rank) const {
        using T = element_of<S>;
        const auto send_view = view_of(send);
        const auto remote_view = view_of(remote);
        static_assert(std::is_same_v<T, element_of<R>>, "send and remote differ in type");
        const bool fits = remote_view.size() == send_view.size();
        par_result result = (par_put)(send_view.data(), fits ? remote_view.data() : nullptr, send_view.size(),
                                      dtype_of<T>, rank, handle_);
        if (!fits) result = wrong_size("put", "remote", remote_view.size(), send_view.size());
        return Errors::end(result, handle_);
    }

    template <class S, class R>
    outcome<void> get(const S &remote, R &&recv, int rank) const {
        using T = element_of<S>;
        const auto remote_view = view_of(remote);
        const auto recv_view = view_of(recv);
        static_assert(std::is_same_v<T, element_of<R>>, "remote and recv differ in type");
        const bool fits = recv_view.size() == remote_view.size();
        par_result result = (par_get)(remote_view.data(), fits ? recv_view.data() : nullptr,
                                      remote_view.size(), dtype_of<T>, rank, handle_);
        if (!fits) result = wrong_size("get", "recv", recv_view.size(), remote_view.size());
        return Errors::end(result, handle_);
    }

    outcome<void> fetch_add(std::uint64_t *word, std::uint64_t value, std::uint64_t *before, int rank) const {
        const par_result result = (par_fetch_add)(word, value, before, rank, handle_);
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

    outcome<void> lock(std::uint64_t *word, int rank, site at = site::here()) const {
        const par_result result = (par_lock)(word, rank, at_line(at));
        return Errors::end(result, handle_);
    }

    outcome<void> unlock(std::uint64_t *word, int rank) const {
        const par_result result = (par_unlock)(word, rank, handle_);
        return Errors::end(result, handle_);
    }
    // END GENERATED
    // clang-format on

  private:
    basic_comm(par_comm *handle, int) : handle_(handle) {}
    std::size_t ranks() const { return static_cast<std::size_t>(size()); }
    bool is(int rank) const { return rank == this->rank(); }
    par_result wrong_size(const char *call, const char *array, std::size_t has, std::size_t needs) const {
        return par_fail(handle_, PAR_ERR_ARGUMENT, "par::comm::%s: %s has %zu elements, not %zu", call, array,
                        has, needs);
    }
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
