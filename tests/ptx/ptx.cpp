// ptx.cpp - the PTX of kernels, run on a CPU. See ptx.h.
#include "ptx.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <float.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <type_traits>

#include "text.h"

#include "check.h"
#include "ops.h"
#include "rows.h"

#include "decode.h"
#include "run.h"

// ---- the names of kernels

// Of each function of this program, by address, as it is linked.
static std::map<uintptr_t, std::string> *ptx_read_symbols(void) {
    auto *names = new std::map<uintptr_t, std::string>();
    struct stat s;
    const int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &s)) ptx_die("this program cannot be read");
    const char *file = (const char *)mmap(NULL, (size_t)s.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (file == MAP_FAILED) ptx_die("this program cannot be mapped");
    const Elf64_Ehdr *head = (const Elf64_Ehdr *)(const void *)file;
    const Elf64_Shdr *sections = (const Elf64_Shdr *)(const void *)(file + head->e_shoff);
    for (int i = 0; i < head->e_shnum; i++) {
        if (sections[i].sh_type != SHT_SYMTAB) continue;
        const Elf64_Sym *all = (const Elf64_Sym *)(const void *)(file + sections[i].sh_offset);
        const char *text = file + sections[sections[i].sh_link].sh_offset;
        for (size_t k = 0; k < sections[i].sh_size / sizeof *all; k++)
            if (ELF64_ST_TYPE(all[k].st_info) == STT_FUNC) (*names)[all[k].st_value] = text + all[k].st_name;
    }
    munmap((void *)(uintptr_t)file, (size_t)s.st_size);
    return names;
}
// As nvcc calls it, which does not mark that a name is of one file: _ZL3abcv is _Z3abcv.
static std::string ptx_name_of(const void *kernel) {
    static std::map<uintptr_t, std::string> *names;
    Dl_info info;
    if (!names) names = ptx_read_symbols();
    if (!dladdr(kernel, &info)) ptx_die("a kernel that is not in this program");
    const uintptr_t at = (uintptr_t)kernel;
    auto found = names->find(at);
    if (found == names->end()) found = names->find(at - (uintptr_t)info.dli_fbase);
    if (found == names->end()) ptx_die("a kernel without a symbol");
    std::string name = found->second;
    return name.compare(0, 3, "_ZL") ? name : "_Z" + name.substr(3);
}

// ---- launches

static std::map<std::string, ptx_kernel *> &ptx_kernels = *new std::map<std::string, ptx_kernel *>();
static std::map<std::string, int> &ptx_others = *new std::map<std::string, int>(); // without PTX

int ptx_is_wanted(void) {
    static const char *path = getenv("PTX");
    return path && *path && strcmp(path, "0");
}
static void ptx_begin(void) {
    const char *path = getenv("PTX"), *approximates = getenv("PTX_APPROXIMATE");
    ptx_text = ptx_open(strcmp(path, "1") ? path : "build/test_cuda.ptx");
    ptx_approximates = approximates && atoi(approximates);
}
// A line of what is run here first.
static void ptx_log(const std::string &what) {
    const char *path = getenv("PTX_LOG");
    const int fd = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666) : -1;
    if (fd < 0) return;
    const std::string line = what + "\n";
    if (write(fd, line.data(), line.size()) != (ssize_t)line.size()) ptx_die(std::string(path) + ": no room");
    close(fd);
}
// A kernel, decoded when it is launched first; NULL: the file does not have it.
static ptx_kernel *ptx_find(const std::string &name) {
    auto known = ptx_kernels.find(name);
    if (known != ptx_kernels.end()) return known->second;
    auto found = ptx_text->kernels.find(name);
    if (found == ptx_text->kernels.end()) return NULL;
    ptx_kernel *k = new ptx_kernel();
    k->name = name;
    ptx_decoder(*ptx_text, k).decode(found->second);
    ptx_log("ptx " + name);
    return ptx_kernels[name] = k;
}
// Each argument where the kernel's text wants it.
static ptx_arguments ptx_pack_arguments(const ptx_kernel &k, const ptx_arguments &given) {
    ptx_arguments packed;
    packed.bytes.resize(k.parameter_bytes + 16);
    if (given.sizes.size() != k.parameters.size())
        ptx_die("kernel " + k.name + " has another number of arguments");
    for (size_t i = 0, at = 0; i < given.sizes.size(); at += given.sizes[i++]) {
        if (given.sizes[i] != k.parameters[i].bytes)
            ptx_die("kernel " + k.name + ": an argument of another size");
        memcpy(packed.bytes.data() + k.parameters[i].offset, given.bytes.data() + at, given.sizes[i]);
    }
    return packed;
}
int ptx_launch(const void *kernel, const ptx_arguments &arguments, const ptx_grid &g) {
    static ptx_block block; // kept, because its memory is
    if (!ptx_is_wanted()) return 0;
    if (!ptx_text) ptx_begin();
    const std::string name = ptx_name_of(kernel);
    ptx_kernel *k = ptx_find(name);
    if (!k) {
        if (!ptx_others[name]++) ptx_log("g++ " + name);
        return 0;
    }
    const ptx_arguments packed = ptx_pack_arguments(*k, arguments);
    ptx_make_block(&block, *k, g, packed);
    const uint64_t blocks = (uint64_t)g.grid[0] * g.grid[1] * g.grid[2], sampled = emu_current_sample();
    const int order = emu_current_order();
    const uint64_t first = order == 2 ? emu_next_random() % blocks : 0;
    for (uint64_t n = 0; n < blocks; n++) {
        if (sampled && n == sampled && blocks > 2 * sampled) n = blocks - sampled;
        const uint64_t i = order == 1 ? blocks - 1 - n : (n + (sampled ? 0 : first)) % blocks;
        block.index[0] = (uint32_t)(i % g.grid[0]), block.index[1] = (uint32_t)(i / g.grid[0] % g.grid[1]);
        block.index[2] = (uint32_t)(i / g.grid[0] / g.grid[1]);
        ptx_run_block(block, g, order);
    }
    return 1;
}
