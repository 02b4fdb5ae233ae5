// text.h - a PTX file as tokens. A part of ptx.cpp.

struct ptx_token {
    const char *at;
    size_t size;
    int line;
    bool is(const char *text) const { return size == strlen(text) && !memcmp(at, text, size); }
    bool begins(const char *text) const { return size >= strlen(text) && !memcmp(at, text, strlen(text)); }
    std::string text() const { return std::string(at, size); }
};

// Reads tokens: names with their dots, numbers, strings, single characters. size 0: the end.
struct ptx_reader {
    const char *at, *end;
    int line;
    static bool in_name(char c) {
        return isalnum((unsigned char)c) || c == '_' || c == '$' || c == '%' || c == '.';
    }
    void skip() {
        for (; at < end; at++) {
            if (*at == '\n')
                line++;
            else if (end - at > 1 && at[0] == '/' && at[1] == '/')
                while (at + 1 < end && at[1] != '\n') at++;
            else if (!isspace((unsigned char)*at))
                return;
        }
    }
    void skip_line() {
        while (at < end && *at != '\n') at++;
    }
    ptx_token next() {
        skip();
        ptx_token t = {at, 0, line};
        if (at == end) return t;
        if (in_name(*at))
            while (at < end && (in_name(*at) || (*at == ':' && at + 1 < end && at[1] == ':' && ++at))) at++;
        else if (*at == '"') {
            for (at++; at < end && *at != '"';) at++;
            at++;
        } else
            at++;
        t.size = (size_t)(at - t.at);
        return t;
    }
    ptx_token peek() const {
        ptx_reader copy = *this;
        return copy.next();
    }
    bool take(const char *text) {
        if (!peek().is(text)) return false;
        next();
        return true;
    }
};

// Where functions and kernels are, and what stands outside of them.
struct ptx_place {
    const char *at; // behind the name
    int line;
};
struct ptx_file {
    std::string path;
    std::string memory;
    std::map<std::string, ptx_place> kernels, functions;
    std::map<std::string, std::vector<unsigned char> *> globals;
    std::set<std::string> dynamic_shared;
    std::map<int, std::string> sources;
};

[[noreturn]] static void ptx_die(const std::string &what) {
    fflush(stdout);
    fprintf(stderr, "ptx: %s\n", what.c_str());
    abort();
}
[[noreturn]] static void ptx_syntax(const ptx_file &f, const ptx_token &t, const std::string &what) {
    ptx_die(f.path + ":" + std::to_string(t.line) + ": " + what + " at \"" +
            std::string(t.at, std::min<size_t>(t.size, 80)) + "\"");
}
static int64_t ptx_integer(const ptx_file &f, const ptx_token &t) {
    char *end;
    const std::string text = t.text();
    const uint64_t x = strtoull(text.c_str(), &end, 0);
    if (*end && strcmp(end, "U")) ptx_syntax(f, t, "not a number");
    return (int64_t)x;
}
static size_t ptx_type_bytes(const ptx_file &f, const ptx_token &t) { // .b32
    const std::string type = t.text();
    if (type == ".pred") return 1;
    const int bits = type.size() > 2 ? atoi(type.c_str() + 2) : 0;
    if (bits != 8 && bits != 16 && bits != 32 && bits != 64) ptx_syntax(f, t, "an unknown type");
    return (size_t)bits / 8;
}

// Behind .global or .const: .align N .b8 name[N] = {...};
static void ptx_read_global(ptx_file *f, ptx_reader *r) {
    size_t align = 1, element = 1, count = 1, at = 0;
    ptx_token t = r->next(), name;
    for (; t.begins("."); t = r->next())
        if (t.is(".align"))
            align = (size_t)ptx_integer(*f, r->next());
        else
            element = ptx_type_bytes(*f, t);
    name = t;
    if (align > 16) ptx_syntax(*f, name, "an alignment of more than 16");
    if (r->take("[")) count = (size_t)ptx_integer(*f, r->next()), r->take("]");
    auto *bytes = new std::vector<unsigned char>(count * element);
    if (r->take("=")) {
        const bool many = r->take("{");
        do {
            const bool minus = r->take("-");
            const int64_t x = ptx_integer(*f, r->next()) * (minus ? -1 : 1);
            if (at + element > bytes->size()) ptx_syntax(*f, name, "more values than elements");
            memcpy(bytes->data() + at, &x, element), at += element;
        } while (many && r->take(","));
        r->take("}");
    }
    f->globals[name.text()] = bytes;
}
// Goes through the file once, and remembers where bodies begin.
static void ptx_index(ptx_file *f) {
    ptx_reader r = {f->memory.data(), f->memory.data() + f->memory.size(), 1};
    for (ptx_token t = r.next(); t.size; t = r.next()) {
        const bool kernel = t.is(".entry");
        if (t.is(".global") || t.is(".const")) {
            ptx_read_global(f, &r);
        } else if (t.is(".extern")) {
            if (!r.peek().is(".shared")) continue;
            while (!(t = r.next()).is("[")) f->dynamic_shared.insert(t.text());
        } else if (kernel || t.is(".func")) {
            if (r.peek().is("(")) // what a function returns
                while (!r.next().is(")")) {
                }
            t = r.next();
            const ptx_place place = {r.at, r.line};
            ptx_token brace = r.next();
            while (brace.size && !brace.is("{") && !brace.is(";")) brace = r.next();
            if (brace.is(";")) continue;
            (kernel ? f->kernels : f->functions)[t.text()] = place;
            const char *over =
                (const char *)memmem(r.at, (size_t)(r.end - r.at), "\n}", 2); // in a column of its own
            if (!over) ptx_syntax(*f, t, "a body without an end");
            for (; r.at < over; r.at++) r.line += *r.at == '\n';
        } else if (t.is(".file")) {
            const int number = (int)ptx_integer(*f, r.next());
            const std::string path = r.next().text();
            f->sources[number] = path.substr(1, path.size() - 2);
        } else if (t.is(".section"))
            return;
    }
}
static ptx_file *ptx_open(const char *path) {
    ptx_file *f = new ptx_file();
    FILE *in = fopen(path, "r");
    f->path = path;
    if (!in) ptx_die(f->path + ": " + strerror(errno) + ". nvcc -ptx makes it: see tests/ptx/ptx.h");
    for (size_t n; (f->memory.resize(f->memory.size() + (1 << 20)),
                    n = fread(&f->memory[f->memory.size() - (1 << 20)], 1, 1 << 20, in),
                    f->memory.resize(f->memory.size() - (1 << 20) + n), n > 0);) {
    }
    fclose(in);
    ptx_index(f);
    return f;
}
