// decode.h - a kernel's text as a dense array of instructions. A part of ptx.cpp.
//
// Functions are decoded where they are called, with registers of their own; what is given to them and what
// they return are registers, too. So there is no stack.

enum ptx_what { PTX_REGISTER, PTX_ARGUMENT, PTX_SYMBOL, PTX_PARAMETER };
struct ptx_name { // what a name stands for
    ptx_what what;
    int width;      // of a register; p: 1
    int32_t at;     // of a register; the number of an argument
    uint64_t value; // of a symbol: its address
};
struct ptx_operand { // of a register, or a value to be put into a constant
    bool is_register, is_float;
    int width;
    int32_t at;
    uint64_t value;
};
struct ptx_branch {
    size_t from;
    std::string label;
    ptx_token token;
};

class ptx_decoder {
  public:
    ptx_decoder(const ptx_file &f, ptx_kernel *kernel) : file(f), k(kernel) {}
    void decode(const ptx_place &place) {
        read = {place.at, file.memory.data() + file.memory.size(), place.line};
        scopes.emplace_back();
        read_parameters();
        body(-1);
        k->registers = (size_t)next_register, k->local_bytes = local;
    }

  private:
    const ptx_file &file;
    ptx_kernel *k;
    ptx_reader read = {NULL, NULL, 0};
    std::vector<std::map<std::string, ptx_name>> scopes;
    std::map<std::pair<int, int64_t>, ptx_operand> arguments; // registers of functions' arguments, by offset
    std::map<std::pair<uint64_t, int>, int32_t> constants;    // by value and width
    std::map<std::string, int32_t> specials;
    int argument_count = 0, depth = 0;
    int32_t next_register = 0, source_file = 0, source_line = 0;
    size_t local = 0;

    void expect(const char *text) {
        const ptx_token t = read.next();
        if (!t.is(text)) ptx_syntax(file, t, std::string("wanted ") + text);
    }
    ptx_name *find(const std::string &name) {
        for (size_t i = scopes.size(); i--;) {
            auto found = scopes[i].find(name);
            if (found != scopes[i].end()) return &found->second;
        }
        return NULL;
    }
    int32_t new_register(int width) {
        const int32_t bytes_taken = width == 1 ? 64 : width * PTX_LANES;
        return (next_register += bytes_taken) - bytes_taken;
    }
    int32_t constant(uint64_t value, int width) {
        auto found = constants.find({value, width});
        if (found != constants.end()) return found->second;
        const size_t at = (k->constants.size() + 63) / 64 * 64;
        const uint32_t mask = value & 1 ? ~0u : 0;
        k->constants.resize(at + (size_t)(width == 1 ? 4 : width * PTX_LANES));
        for (int l = 0; l < PTX_LANES && width > 1; l++)
            memcpy(k->constants.data() + at + (size_t)(l * width), &value, (size_t)width);
        if (width == 1) memcpy(k->constants.data() + at, &mask, 4);
        return constants[{value, width}] = -1 - (int32_t)at;
    }

    // ---- declarations

    static size_t aligned(size_t at, size_t to) { return (at + to - 1) / to * to; }
    // ".align 8 .b8 name[24]": its name and bytes
    ptx_token variable(size_t *bytes_taken, size_t *align) {
        ptx_token t = read.next();
        size_t element = 1, count = 1;
        for (*align = 0; t.begins("."); t = read.next())
            if (t.is(".align"))
                *align = (size_t)ptx_integer(file, read.next());
            else
                element = ptx_type_bytes(file, t);
        if (read.take("[")) count = (size_t)ptx_integer(file, read.next()), expect("]");
        *bytes_taken = element * count;
        if (!*align) *align = element;
        return t;
    }
    void read_parameters() { // of a kernel
        expect("(");
        while (!read.take(")")) {
            size_t n, align;
            expect(".param");
            const ptx_token t = variable(&n, &align);
            k->parameter_bytes = aligned(k->parameter_bytes, align);
            k->parameters.push_back({t.text(), k->parameter_bytes, n});
            scopes.back()[t.text()] = {PTX_PARAMETER, 8, 0, k->parameter_bytes};
            k->parameter_bytes += n;
            read.take(",");
        }
    }
    void declare_registers() {
        const int width = (int)ptx_type_bytes(file, read.next());
        do {
            const std::string name = read.next().text();
            int64_t count = -1;
            if (read.take("<")) count = ptx_integer(file, read.next()), expect(">");
            for (int64_t i = count < 0 ? -1 : 0; i < std::max<int64_t>(count, 0); i++)
                scopes.back()[i < 0 ? name : name + std::to_string(i)] = {PTX_REGISTER, width,
                                                                          new_register(width), 0};
        } while (read.take(","));
        expect(";");
    }
    void declare_memory(size_t *used) {
        size_t n, align;
        const ptx_token t = variable(&n, &align);
        *used = aligned(*used, align);
        scopes.back()[t.text()] = {PTX_SYMBOL, 8, 0, *used};
        *used += n;
        expect(";");
    }
    void declare_argument() {
        size_t n, align;
        const ptx_token t = variable(&n, &align);
        scopes.back()[t.text()] = {PTX_ARGUMENT, 0, argument_count++, 0};
        expect(";");
    }

    // ---- operands

    int special(const ptx_token &t) { // a register that is set before a block runs
        static const char *const known[] = {"%tid.x",    "%tid.y",    "%tid.z",   "%ntid.x",  "%ntid.y",
                                            "%ntid.z",   "%ctaid.x",  "%ctaid.y", "%ctaid.z", "%nctaid.x",
                                            "%nctaid.y", "%nctaid.z", "%laneid"};
        for (const char *name : known) {
            if (!t.is(name)) continue;
            auto found = specials.find(name);
            if (found != specials.end()) return found->second;
            const int32_t at = new_register(4);
            k->specials.push_back({name, at});
            return specials[name] = at;
        }
        ptx_syntax(file, t, "an unknown register or symbol");
    }
    ptx_operand operand() {
        ptx_token t = read.next();
        if (t.is("-")) {
            ptx_operand o = operand();
            return o.value = 0 - o.value, o;
        }
        if (isdigit((unsigned char)t.at[0])) {
            const bool f32 = t.begins("0f"), f64 = t.begins("0d");
            const uint64_t x =
                f32 || f64 ? strtoull(t.text().c_str() + 2, NULL, 16) : (uint64_t)ptx_integer(file, t);
            return {false, f32 || f64, f32 ? 4 : f64 ? 8 : 0, 0, x};
        }
        const ptx_name *name = find(t.text());
        auto global = file.globals.find(t.text());
        if (name && name->what == PTX_REGISTER) return {true, false, name->width, name->at, 0};
        if (name && name->what != PTX_ARGUMENT) return {false, false, 0, 0, name->value};
        if (global != file.globals.end())
            return {false, false, 0, 0, (uint64_t)(uintptr_t)global->second->data()};
        if (file.dynamic_shared.count(t.text())) return {false, false, 0, 0, k->shared_bytes};
        return {true, false, 4, special(t), 0};
    }
    // As an operand of so many bytes; a constant becomes one.
    int32_t value(const ptx_operand &o, int width, const ptx_token &t) {
        if (o.width && o.width != width)
            ptx_syntax(file, t,
                       "an operand of " + std::to_string(o.width) + " bytes, not " + std::to_string(width));
        return o.is_register ? o.at : constant(o.value, width);
    }
    int32_t value(int width, const ptx_token &t) { return value(operand(), width, t); }
    int32_t destination(int width, const ptx_token &t) {
        if (read.take("_")) return PTX_NONE;
        const ptx_operand o = operand();
        if (!o.is_register) ptx_syntax(file, t, "a result that is no register");
        return value(o, width, t);
    }
    // "[name+8]" or "[%rd1+-8]"
    void address(ptx_ins *i, const ptx_token &t) {
        expect("[");
        const ptx_operand o = operand();
        i->a_width = (uint8_t)(o.is_register ? o.width : 8);
        i->a = o.is_register ? o.at : constant(o.value, 8);
        i->target = 0;
        while (read.take("+")) { // more than once where a test has planted a fault
            const bool minus = read.take("-");
            i->target += (int32_t)ptx_integer(file, read.next()) * (minus ? -1 : 1);
        }
        expect("]");
        if (i->a_width != 4 && i->a_width != 8) ptx_syntax(file, t, "an address of neither 32 nor 64 bits");
    }
    // "{%r1, %r2}" or one: into the list. width 0: of the first. Returns the width.
    int elements(ptx_ins *i, int width, bool results, const ptx_token &t) {
        const bool many = read.take("{");
        i->list = (int32_t)k->lists.size(), i->count = 0;
        do {
            if (results && read.take("_")) {
                k->lists.push_back(PTX_NONE), i->count++;
                continue;
            }
            const ptx_operand o = operand();
            if (!width) width = o.is_register ? o.width : 0;
            if (!width && many) ptx_syntax(file, t, "a vector that begins with a constant");
            k->lists.push_back(width ? value(o, width, t) : 0), i->count++;
            if (!width) return k->lists.back() = constant(o.value, 8), 8;
        } while (many && read.take(","));
        if (many) expect("}");
        return width;
    }

    // ---- instructions

    ptx_ins begin(const ptx_token &t) {
        ptx_ins i = ptx_ins();
        i.d = i.a = i.b = i.c = i.predicate = PTX_NONE;
        i.line = t.line, i.file = source_file, i.source_line = source_line;
        return i;
    }
    bool memory(const ptx_token &t, ptx_ins i) { // ld and st; false: it is another instruction
        std::vector<std::string> part(1);
        for (size_t c = 0; c < t.size; c++)
            if (t.at[c] == '.')
                part.emplace_back();
            else
                part.back() += t.at[c];
        const bool stores = part[0] == "st";
        if (!stores && part[0] != "ld") return false;
        int count = 1;
        i.space = PTX_GENERIC;
        for (size_t p = 1; p + 1 < part.size(); p++)
            if (part[p] == "global" || part[p] == "shared" || part[p] == "local" || part[p] == "param")
                i.space = part[p][0] == 'g'   ? PTX_GLOBAL
                          : part[p][0] == 's' ? PTX_SHARED
                          : part[p][0] == 'l' ? PTX_LOCAL
                                              : PTX_PARAM;
            else if (part[p] == "v2" || part[p] == "v4")
                count = part[p][1] - '0';
            else if (part[p] != "nc" && part[p] != "wb" && part[p] != "volatile")
                ptx_syntax(file, t, "an access in an unknown way: ." + part[p]);
        i.is_signed = part.back()[0] == 's', i.bytes = (uint8_t)(atoi(part.back().c_str() + 1) / 8);
        if (i.space == PTX_GENERIC) ptx_syntax(file, t, "an access of unknown memory");
        if (i.space == PTX_PARAM && argument(t, i, stores)) return true;
        if (stores) address(&i, t), expect(",");
        i.width = (uint8_t)elements(&i, 0, !stores, t);
        if (!stores) expect(","), address(&i, t);
        if (i.count != count || i.bytes > i.width) ptx_syntax(file, t, "an access of other registers");
        i.run = i.space == PTX_GLOBAL   ? ptx_access<PTX_GLOBAL>(stores, i.bytes, i.is_signed)
                : i.space == PTX_SHARED ? ptx_access<PTX_SHARED>(stores, i.bytes, i.is_signed)
                : i.space == PTX_LOCAL  ? ptx_access<PTX_LOCAL>(stores, i.bytes, i.is_signed)
                                        : ptx_access<PTX_PARAM>(stores, i.bytes, i.is_signed);
        k->code.push_back(i);
        return true;
    }
    // A function's argument or result is a register: the access is a move. false: it is a kernel's parameter.
    bool argument(const ptx_token &t, ptx_ins i, bool stores) {
        const ptx_reader before = read;
        ptx_operand other = ptx_operand();
        if (!stores && read.peek().is("{")) return false;
        if (!stores) other = operand(), expect(",");
        expect("[");
        const ptx_name *name = find(read.next().text());
        if (!name || name->what != PTX_ARGUMENT) return read = before, false;
        const int64_t at = read.take("+") ? ptx_integer(file, read.next()) : 0;
        const std::pair<int, int64_t> key = {name->at, at};
        expect("]");
        if (stores) expect(","), other = operand();
        if (!arguments.count(key)) arguments[key] = {true, false, i.bytes, new_register(i.bytes), 0};
        const ptx_operand &own = arguments[key];
        if (own.width != i.bytes) ptx_syntax(file, t, "an argument of another size");
        i.d = value(stores ? own : other, i.bytes, t), i.a = value(stores ? other : own, i.bytes, t);
        i.run = i.bytes == 4 ? PTX_ONE(uint32_t, ptx_copy_of) : PTX_ONE(uint64_t, ptx_copy_of);
        if (i.bytes < 4) ptx_syntax(file, t, "an argument of less than 32 bits");
        k->code.push_back(i);
        return true;
    }
    // "mov.b64 {a, b}, c" and "mov.b64 c, {a, b}"
    bool vector_move(const ptx_token &t, ptx_ins i) {
        if (!t.is("mov.b32") && !t.is("mov.b64")) return false;
        const ptx_reader before = read;
        i.width = t.is("mov.b32") ? 4 : 8;
        if (read.peek().is("{")) {
            const int part = elements(&i, 0, true, t);
            expect(",");
            i.a = value(i.width, t), i.run = ptx_unpack;
            if (part && part * i.count != i.width) ptx_syntax(file, t, "parts of another size");
        } else {
            const ptx_operand d = operand();
            expect(",");
            if (!read.peek().is("{")) return read = before, false;
            if (elements(&i, 0, false, t) * i.count != i.width) ptx_syntax(file, t, "parts of another size");
            i.d = value(d, i.width, t), i.run = ptx_pack;
        }
        k->code.push_back(i);
        return true;
    }
    bool of_warp(const ptx_token &t, ptx_ins i) { // what lanes do together
        if (t.begins("shfl.sync.")) {
            i.kind = PTX_MEET, i.run = t.is("shfl.sync.idx.b32")    ? ptx_shuffle<PTX_IDX>
                                       : t.is("shfl.sync.bfly.b32") ? ptx_shuffle<PTX_BFLY>
                                       : t.is("shfl.sync.up.b32")   ? ptx_shuffle<PTX_UP>
                                       : t.is("shfl.sync.down.b32") ? ptx_shuffle<PTX_DOWN>
                                                                    : NULL;
            if (!i.run) return false;
            i.d = destination(4, t);
            const int32_t p = read.take("|") ? destination(1, t) : PTX_NONE;
            expect(","), i.a = value(4, t), expect(","), i.b = value(4, t), expect(","), i.c = value(4, t),
                         expect(",");
            const int32_t mask = value(4, t);
            i.list = (int32_t)k->lists.size();
            k->lists.push_back(p), k->lists.push_back(mask);
        } else if (t.is("vote.sync.any.pred")) {
            i.kind = PTX_MEET, i.run = ptx_vote_any;
            i.d = destination(1, t), expect(","), i.a = value(1, t), expect(",");
            const int32_t mask = value(4, t);
            i.list = (int32_t)k->lists.size();
            k->lists.push_back(PTX_NONE), k->lists.push_back(mask);
        } else if (t.is("bar.warp.sync")) {
            i.kind = PTX_MEET, i.run = ptx_sync_warp;
            i.list = (int32_t)k->lists.size();
            const int32_t mask = value(4, t);
            k->lists.push_back(PTX_NONE), k->lists.push_back(mask);
        } else if (t.begins("ldmatrix.sync.aligned.m8n8.x4.")) {
            i.kind = PTX_WHOLE, i.run = t.is("ldmatrix.sync.aligned.m8n8.x4.shared.b16") ? ptx_ldmatrix<false>
                                        : t.is("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16")
                                            ? ptx_ldmatrix<true>
                                            : NULL;
            if (!i.run) return false;
            elements(&i, 4, true, t), expect(","), address(&i, t);
        } else if (t.is("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32")) {
            const size_t first = k->lists.size();
            i.kind = PTX_WHOLE, i.run = ptx_mma_bf16;
            elements(&i, 4, true, t), expect(","), elements(&i, 4, false, t), expect(",");
            elements(&i, 4, false, t), expect(","), elements(&i, 4, false, t);
            i.list = (int32_t)first;
            if (k->lists.size() != first + 14) ptx_syntax(file, t, "vectors of other lengths");
        } else
            return false;
        k->code.push_back(i);
        return true;
    }
    bool of_memory(const ptx_token &t, ptx_ins i) { // copies and atomics
        if (t.is("cp.async.cg.shared.global") || t.is("cp.async.ca.shared.global")) {
            ptx_ins to = i, from = i;
            address(&to, t), expect(","), address(&from, t), expect(",");
            const int32_t bytes_of = (int32_t)ptx_integer(file, read.next());
            const int32_t there = read.take(",") ? value(4, t) : PTX_NONE;
            if (to.a_width != 4 || from.a_width != 8) ptx_syntax(file, t, "addresses of other sizes");
            i.list = (int32_t)k->lists.size(), i.run = ptx_copy_async;
            for (int32_t x : {to.a, to.target, from.a, from.target, bytes_of, there}) k->lists.push_back(x);
        } else if (t.is("cp.async.bulk.prefetch.L2.global")) {
            i.run = ptx_prefetch;
            address(&i, t), expect(","), i.b = value(4, t);
        } else if (t.is("atom.global.max.u32") || t.is("atom.global.add.u32")) {
            i.d = destination(4, t), expect(","), address(&i, t), expect(","), i.b = value(4, t);
            i.run =
                t.is("atom.global.max.u32") ? ptx_atomic<uint32_t, ptx_max> : ptx_atomic<uint32_t, ptx_add>;
        } else
            return false;
        k->code.push_back(i);
        return true;
    }
    bool of_table(const ptx_token &t, ptx_ins i) {
        static const std::multimap<std::string, const ptx_row *> rows = [] {
            std::multimap<std::string, const ptx_row *> all;
            for (const ptx_row &row : ptx_rows) all.insert({row.name, &row});
            return all;
        }();
        auto range = rows.equal_range(t.text());
        std::vector<ptx_operand> given;
        if (range.first == range.second) return false;
        while (!read.peek().is(";")) given.push_back(operand()), read.take(",");
        for (auto r = range.first; r != range.second; ++r) {
            const char *widths = r->second->widths;
            bool fits = strlen(widths) == given.size();
            auto width = [=](size_t n) { return widths[n] == 'p' ? 1 : widths[n] - '0'; };
            for (size_t n = 0; fits && n < given.size(); n++)
                fits = !given[n].width || given[n].width == width(n);
            if (!fits || (!given.empty() && !given[0].is_register)) continue;
            int32_t *const at[] = {&i.d, &i.a, &i.b, &i.c};
            for (size_t n = 0; n < given.size(); n++) *at[n] = value(given[n], width(n), t);
            i.run = r->second->run;
            k->code.push_back(i);
            return true;
        }
        ptx_syntax(file, t, "an instruction with operands of unknown sizes");
    }
    // label_end: of a function, where it returns to; -1: a kernel
    void instruction(ptx_token t, std::vector<ptx_branch> *branches, bool function) {
        const size_t first = k->code.size();
        ptx_ins i = begin(t);
        if (t.is("@")) {
            i.unless = read.take("!");
            i.predicate = value(1, t);
            t = read.next();
        }
        if (t.is("bra") || t.is("bra.uni")) {
            i.kind = PTX_BRANCH;
            branches->push_back({first, read.next().text(), t});
            k->code.push_back(i);
        } else if (t.is("ret") || t.is("exit")) {
            i.kind = function && t.is("ret") ? PTX_BRANCH : PTX_EXIT;
            if (i.kind == PTX_BRANCH) branches->push_back({first, "", t});
            k->code.push_back(i);
        } else if (t.is("bar.sync")) {
            i.kind = PTX_BARRIER;
            if (!read.next().is("0")) ptx_syntax(file, t, "a barrier other than the first");
            k->code.push_back(i);
        } else if (t.is("call.uni") || t.is("call")) {
            if (i.predicate != PTX_NONE) ptx_syntax(file, t, "a call with a predicate");
            call(t);
        } else if (!memory(t, i) && !vector_move(t, i) && !of_warp(t, i) && !of_memory(t, i) &&
                   !of_table(t, i))
            ptx_syntax(file, t, "kernel " + k->name + ": an unknown instruction");
        expect(";");
    }
    void call(const ptx_token &t) { // (result), name, (arguments)
        std::vector<ptx_name> given;
        auto list = [&] {
            expect("(");
            do {
                const ptx_token name = read.next();
                const ptx_name *found = find(name.text());
                if (!found || found->what != PTX_ARGUMENT) ptx_syntax(file, name, "not an argument");
                given.push_back(*found);
            } while (read.take(","));
            expect(")");
        };
        if (read.peek().is("(")) list(), expect(",");
        const size_t results = given.size();
        const ptx_token name = read.next();
        if (read.take(",")) list();
        auto found = file.functions.find(name.text());
        if (found == file.functions.end() || ++depth > 8) ptx_syntax(file, t, "a function without a body");
        const ptx_reader back = read;
        auto outer = std::move(scopes);
        const int32_t f = source_file, l = source_line;
        read.at = found->second.at, read.line = found->second.line;
        scopes.clear(), scopes.emplace_back();
        scopes.back()["func_retval0"] = results ? given[0] : ptx_name();
        expect("(");
        for (size_t n = results; !read.take(")"); read.take(",")) {
            size_t bytes_taken, align;
            expect(".param");
            const ptx_token parameter = variable(&bytes_taken, &align);
            if (n == given.size()) ptx_syntax(file, t, "a call with too few arguments");
            scopes.back()[parameter.text()] = given[n++];
        }
        body(1);
        read = back, scopes = std::move(outer), depth--, source_file = f, source_line = l;
    }
    bool directive(const ptx_token &t) {
        if (t.is(".loc")) {
            source_file = (int32_t)ptx_integer(file, read.next());
            source_line = (int32_t)ptx_integer(file, read.next());
            read.skip_line();
        } else if (t.is(".pragma"))
            while (!read.next().is(";")) {
            }
        else if (t.is(".reg"))
            declare_registers();
        else if (t.is(".param"))
            declare_argument();
        else if (t.is(".local"))
            declare_memory(&local);
        else if (t.is(".shared"))
            declare_memory(&k->shared_bytes);
        else
            return false;
        return true;
    }
    void body(int function) { // function: 1; -1: a kernel
        std::map<std::string, int32_t> labels;
        std::vector<ptx_branch> branches;
        const size_t outside = scopes.size();
        for (ptx_token t = read.next(); !t.is("{"); t = read.next()) // .maxntid and its like
            if (!t.size) ptx_syntax(file, t, "a body that is not there");
        scopes.emplace_back();
        while (scopes.size() > outside) {
            const ptx_token t = read.next();
            if (!t.size) ptx_syntax(file, t, "a body without an end");
            if (t.is("{"))
                scopes.emplace_back();
            else if (t.is("}"))
                scopes.pop_back();
            else if (t.is(";") || directive(t))
                continue;
            else if (t.at[0] == '.')
                ptx_syntax(file, t, "an unknown directive");
            else if (read.peek().is(":"))
                read.next(), labels[t.text()] = (int32_t)k->code.size();
            else
                instruction(t, &branches, function > 0);
        }
        labels[""] = (int32_t)k->code.size(); // where a function returns to
        for (const ptx_branch &b : branches) {
            auto found = labels.find(b.label);
            if (found == labels.end()) ptx_syntax(file, b.token, "no label " + b.label);
            k->code[b.from].target = found->second;
        }
        if (function < 0) { // else the array would have an end
            ptx_ins over = begin({read.at, 0, read.line});
            over.kind = PTX_EXIT;
            k->code.push_back(over);
        }
    }
};
