// ptx.h - runs on a CPU the PTX that nvcc makes of kernels, not what g++ makes of them. For tests only.
//
//     make build/test_cuda_emu build/test_cuda.ptx
//     PTX=build/test_cuda.ptx build/test_cuda_emu --only casts
//
// text.h reads a PTX file, rows.h has a row for each instruction, ops.h what it does, decode.h makes a kernel
// a dense array of instructions, run.h runs it, check.h looks at each access. An instruction that has no row
// is an error that names it and its line. Values of the 32 lanes of a warp lie side by side, so that an
// instruction is a loop over lanes. Environment:
//     PTX=FILE            what nvcc wrote; 1: build/test_cuda.ptx
//     PTX_APPROXIMATE=1   approximate functions differ from exact results by what the PTX ISA allows, and
//                         tensor cores add in another order
//     PTX_LOG=FILE        gets a line for each kernel that a process runs: "ptx NAME", or "g++ NAME" if the
//                         PTX does not have it, so that what g++ made of it runs
#ifndef PTX_H
#define PTX_H
#include <stddef.h>
#include <stdint.h>
#include <string>
#include <vector>

enum { PTX_LANES = 32 };
static const int32_t PTX_NONE = INT32_MIN; // no operand

struct ptx_warp;
struct ptx_ins;
// Executes an instruction for the lanes of the mask.
typedef void (*ptx_handler)(ptx_warp &w, const ptx_ins &i, uint32_t mask);
enum ptx_kind : uint8_t {
    PTX_PLAIN,
    PTX_BRANCH,
    PTX_EXIT,
    PTX_MEET,   // the lanes of a mask wait for each other, then the instruction is executed
    PTX_WHOLE,  // the same, of all lanes of a warp
    PTX_BARRIER // the threads of the block wait for each other
};
enum ptx_space : uint8_t { PTX_GENERIC, PTX_GLOBAL, PTX_SHARED, PTX_LOCAL, PTX_PARAM };

// Operands are offsets of registers in the memory of a warp, or below 0: -1 - the offset of a constant.
struct ptx_ins {
    ptx_handler run;
    int32_t d, a, b, c; // destination and sources; a: the register of an address, if it has one
    int32_t predicate;  // PTX_NONE: always
    int32_t target;     // of a branch; else a part of an address that is known
    int32_t list;       // more operands: where they begin in the kernel's lists
    ptx_kind kind;
    bool unless;            // the predicate must be false
    uint8_t count;          // elements of a vector
    uint8_t width, a_width; // bytes of the register of a value, and of an address
    uint8_t bytes;          // of an element in memory
    bool is_signed;
    ptx_space space;
    int32_t line, file, source_line; // of the PTX, and of the source
};
struct ptx_parameter {
    std::string name;
    size_t offset, bytes;
};
struct ptx_special { // a register that is set before a block runs
    std::string name;
    int32_t at;
};
struct ptx_kernel {
    std::string name;
    std::vector<ptx_ins> code;
    std::vector<int32_t> lists;
    std::vector<unsigned char> constants;
    std::vector<ptx_parameter> parameters;
    std::vector<ptx_special> specials;
    size_t registers = 0, local_bytes = 0, shared_bytes = 0, parameter_bytes = 0;
};

// What the emulation calls, if the program has the interpreter. arguments: the bytes of each, one after the
// other. Returns 0 if there is no PTX of this kernel, or none is wanted.
struct ptx_arguments {
    std::vector<unsigned char> bytes;
    std::vector<size_t> sizes;
};
struct ptx_grid {
    uint32_t grid[3], block[3];
    size_t shared;
};
__attribute__((weak)) int ptx_is_wanted(void);
__attribute__((weak)) int ptx_launch(const void *kernel, const ptx_arguments &arguments,
                                     const ptx_grid &grid);

// What it asks the emulation.
int emu_is_accessible(const void *p, size_t bytes_accessed); // by the device that works just now
const char *emu_device_memory(size_t *bytes_of_all);         // of all devices
// Of a byte of device memory: 1 if it was written. NULL: it is other memory.
unsigned char *emu_written(const void *p);
uint64_t emu_next_random(void);
int emu_current_order(void);
size_t emu_current_sample(void);
void emu_count_bank_cycles(const uint32_t *addresses); // of 8 rows of ldmatrix
#endif
