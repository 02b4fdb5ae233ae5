# The generated parts of the bindings: awk -f bindings/make.awk par.h bindings/par.f90 prints par.f90 with
# each part between "GENERATED name" and "END GENERATED" made anew from what par.h declares: its lists, its structs
# and its functions. A function with an argument that the language lacks (a FILE, a callback) is left out.

FNR == 1 { file++ }
file == 1 { header(); next }
!parsed { parsed = 1; parse_statements(); language = FILENAME; sub(/.*\./, "", language) }
/END GENERATED/ { inside = 0 }
!inside { print }
/GENERATED / && !/END GENERATED/ {
    inside = 1
    part = $0
    sub(/.*GENERATED /, "", part)
    sub(/[^a-z_].*/, "", part)
    generate(language "_" part)
}

# ---- par.h: lists, and its API as one text without comments and directives

function header(    text, name) {
    text = $0
    if (text ~ /^#define PAR_VERSION_[A-Z]+ /) version = version (version == "" ? "" : ".") $3
    if (text ~ /^#define PAR_(RESULTS|DTYPES|OPS|KINDS)\(X\)/) {
        list = text
        sub(/^#define /, "", list)
        sub(/\(.*/, "", list)
        rows[list] = ""
    } else if (list != "") {
        rows[list] = rows[list] text
    }
    if (list != "") {
        if (text !~ /\\$/) list = ""
        return
    }
    if (text ~ /^#define par_[a-z_0-9]+\(\.\.\.\)/) {
        name = text
        sub(/^#define /, "", name)
        sub(/\(.*/, "", name)
        has_site[name] = 1
    }
    if (text ~ /^\/\/ ---- /) {
        name = text
        gsub(/^\/\/ -* | -*$/, "", name)
        in_api = name !~ /^(version|devices|matrix products|device backends|shards|files)$/ &&
            name !~ /^(settings|call sites)$/
        return
    }
    if (text ~ /^#endif \/\/ PAR_H/) in_api = 0
    if (!in_api) return
    if (directive || text ~ /^#/) {
        directive = text ~ /\\$/
        return
    }
    sub(/\/\/.*/, "", text)
    api = api " " text
}

# X(a, b, c) rows of a list into field[row, column]; returns how many
function read_list(name, field,    text, i, n, parts, cells, c, k) {
    text = rows[name]
    gsub(/\\/, "", text)
    n = split(text, parts, /X\(/)
    for (i = 2; i <= n; i++) {
        c = split(parts[i], cells, /,/)
        for (k = 1; k <= c; k++) {
            gsub(/^ +|[ )]+$/, "", cells[k])
            gsub(/"/, "", cells[k])
            field[i - 1, k] = cells[k]
        }
    }
    return n - 1
}

function parse_statements(    i, c, depth, text, n) {
    gsub(/__attribute__ *\(\([^;]*\)\)\)/, "", api)
    depth = 0
    n = length(api)
    for (i = 1; i <= n; i++) {
        c = substr(api, i, 1)
        if (c == "{") depth++
        if (c == "}") depth--
        if (c == ";" && depth == 0) {
            statement(text)
            text = ""
        } else {
            text = text c
        }
    }
    for (i = 1; i <= function_count; i++)
        for (n = 1; n <= arg_count[i]; n++) arg_class[i, n] = class_of(arg_type[i, n], arg_name[i, n])
    result_count = read_list("PAR_RESULTS", results)
    dtype_count = read_list("PAR_DTYPES", dtypes)
    op_count = read_list("PAR_OPS", ops)
    kind_count = read_list("PAR_KINDS", kinds)
    for (i = 1; i <= kind_count; i++) kind_of["par_" kinds[i, 2]] = i
}

function statement(text,    name, body, n, i, parts) {
    gsub(/PAR_[A-Z]+\(PAR__X\)/, "", text)
    gsub(/[ \t]+/, " ", text)
    sub(/^ /, "", text)
    if (text ~ /^typedef struct par_[a-z_]+ par_[a-z_]+$/) {
        name = text
        sub(/.* /, "", name)
        if (!(name in defined)) opaque[name] = 1
    } else if (text ~ /^(typedef )?struct par_[a-z_]+ \{/) {
        name = text
        sub(/^(typedef )?struct /, "", name)
        sub(/ .*/, "", name)
        body = text
        sub(/^[^{]*\{/, "", body)
        sub(/\}[^}]*$/, "", body)
        defined[name] = 1
        delete opaque[name]
        struct_order[++struct_count] = name
        struct_body[name] = body
    } else if (text ~ /^[a-z_0-9 ]+[ *]+par_[a-z_0-9]+\(.*\)$/) {
        declaration(text)
    }
}

function declaration(text,    name, args, i, n, parts, f) {
    name = text
    sub(/\(.*/, "", name)
    f = ++function_count
    function_type[f] = name
    sub(/[ ]*par_[a-z_0-9]+$/, "", function_type[f])
    sub(/.*[ *]/, "", name)
    function_name[f] = name
    named[name] = 1
    args = text
    sub(/^[^(]*\(/, "", args)
    sub(/\)$/, "", args)
    if (args == "void") args = ""
    n = split(args, parts, / *, */)
    arg_count[f] = n
    for (i = 1; i <= n; i++) {
        arg_name[f, i] = parts[i]
        sub(/.*[ *]/, "", arg_name[f, i])
        arg_type[f, i] = substr(parts[i], 1, length(parts[i]) - length(arg_name[f, i]))
        sub(/ +$/, "", arg_type[f, i])
    }
}

# What a parameter is to the languages; "": none of them has it.
function class_of(type, name,    base) {
    base = type
    gsub(/const |[ *]/, "", base)
    if (name ~ /\[/) return ""
    if (type == "const void *") return "send"
    if (type == "void *") return "recv"
    if (type == "size_t") return "count"
    if (type == "const size_t *") return name ~ /displs/ ? "displs" : "counts"
    if (type ~ /^(int|par_dtype|par_kind|par_result)$/) return "int"
    if (type == "par_op" || type == "uint64_t") return "int64"
    if (type == "double" || type == "float") return type
    if (type == "const char *") return "text"
    if (type == "const int *") return name == "sources" ? "ints_null" : "ints"
    if (type ~ /uint64_t \*$/) return "word"
    if (type == "int *" || type == "par_dtype *") return "int_out"
    if (type == "par_op *") return "int64_out"
    if (type == "double *") return "double_out"
    if (type == "float *") return "floats"
    if (type == "par_request *") return name ~ /s$/ ? "requests" : "request"
    if (base in opaque) {
        if (type ~ /\*\*$/) return "handle_out"
        if (type ~ /\*$/) return "handle"
    }
    if (type == "const " base " *" && base in defined && plain(base)) return "struct"
    if (type == base " *" && base in defined && plain(base)) return "struct_out"
    return ""
}
function handle_type(type) {
    gsub(/const |[ *]/, "", type)
    return type
}
# A struct whose members are numbers and texts.
function plain(name,    body) {
    body = struct_body[name]
    gsub(/(const char \*|int|double|size_t|uint64_t) *[a-z_, ]+;/, "", body)
    return body ~ /^ *$/
}
function supported(f,    i, type) {
    if (function_name[f] == "par_alloc") return 0 # by hand
    type = function_type[f]
    if (type !~ /^(par_result|int|double|float|size_t|uint64_t|par_op|void|void \*|const char \*)$/ &&
        !(type in defined && plain(type)) && !(handle_of_result(type)))
        return 0
    for (i = 1; i <= arg_count[f]; i++)
        if (arg_class[f, i] == "") return 0
    return 1
}
function handle_of_result(type,    base) {
    base = handle_type(type)
    return type == base " *" && base in opaque
}
function has_class(f, class,    i) {
    for (i = 1; i <= arg_count[f]; i++)
        if (arg_class[f, i] == class) return arg_name[f, i]
    return ""
}
function short_name(f) { return substr(function_name[f], 5) }
function is_begun(f) {
    return has_class(f, "request") != "" && (has_class(f, "send") has_class(f, "recv")) != ""
}

function generate(name) {
    if (name ~ /^f90/ && !nulls_known++) f90_nulls()
    if (name == "f90_public") f90_public()
    else if (name == "f90_constants") f90_constants()
    else if (name == "f90_types") f90_types()
    else if (name == "f90_generics") f90_generics()
    else if (name == "f90_interfaces") f90_interfaces()
    else if (name == "f90_procedures") f90_procedures()
    else if (name ~ /^f90_alloc/) f90_alloc()
    else if (name == "py_constants") py_constants()
    else if (name == "py_structs") py_structs()
    else if (name == "py_functions") py_functions()
    else if (name == "hpp_calls") hpp_calls()
    else if (name == "hpp_signals") hpp_signals()
    else if (name == "hpp_neighbors") hpp_neighbors()
    else {
        print "no part is called " name > "/dev/stderr"
        exit 1
    }
}

# ---- Fortran

# A statement whose long lines are continued; parts are separated by ", ".
function f90_line(indent, text,    limit, cut, continued) {
    limit = 110 - length(indent)
    while (length(text) > limit) {
        cut = limit - 2
        while (cut > 20 && substr(text, cut, 2) != ", ") cut--
        print indent substr(text, 1, cut + 1) "&"
        text = substr(text, cut + 2)
        if (!continued++) indent = indent "    "
        limit = 110 - length(indent)
    }
    print indent text
}

# What C may get NULL for has a class of its own: displs, a struct, and what ends in _null. Counts that the root
# alone needs, and what is said of a clock or a launcher.
function f90_nulls(    f, i, k, kind) {
    for (f = 1; f <= function_count; f++) {
        kind = function_name[f]
        sub(/_begin$/, "", kind)
        k = kind in kind_of ? kind_of[kind] : 0
        for (i = 1; i <= arg_count[f]; i++)
            if (arg_class[f, i] == "counts" && k && kinds[k, 5] == "ROOT" ||
                function_name[f] "(" arg_name[f, i] ~ /^par_(launched.rank|clock_offset.error)$/)
                arg_class[f, i] = arg_class[f, i] "_null"
    }
}
function f90_public(    i) {
    for (i = 1; i <= function_count; i++)
        if (supported(i)) print "    public :: " function_name[i]
}
function f90_constants(    i, at, names) {
    names = "integer(c_int), parameter, public :: "
    print "    integer, parameter, public :: PAR_VERSION = " f90_version()
    for (i = 1; i <= result_count; i++) print "    " names results[i, 1] " = " i - 1
    for (i = 1; i <= dtype_count; i++) print "    " names dtypes[i, 1] " = " i - 1
    for (i = 1; i <= kind_count; i++) print "    " names kinds[i, 1] " = " i - 1
    for (i = 1; i <= op_count; i++)
        if (!(tolower(ops[i, 1]) in named)) # par_scaled_sum is a function
            print "    integer(c_int64_t), parameter, public :: " ops[i, 1] " = " i - 1
}
function f90_version(    v) {
    split(version, v, ".")
    return 10000 * v[1] + 100 * v[2] + v[3]
}
function f90_types(    i, n, name, members, m, k, parts, type, list) {
    for (i = 1; i <= opaque_list(); i++) {
        name = opaque_names[i]
        print "    type, public :: " name
        print "        type(c_ptr) :: handle = c_null_ptr ! C's " name " *"
        print "    end type"
    }
    for (i = 1; i <= struct_count; i++) {
        name = struct_order[i]
        if (name == "par_call") f90_call()
        if (!plain(name)) continue
        print "    type, bind(c), public :: " name
        n = split(struct_body[name], members, ";")
        for (m = 1; m < n; m++) {
            type = members[m]
            gsub(/^ +| +$/, "", type)
            list = type
            sub(/^(const char \*|int |double |size_t |uint64_t )/, "", list)
            type = substr(type, 1, length(type) - length(list))
            k = split(list, parts, / *, */)
            for (k = 1; k in parts; k++)
                print "        " f90_member(type) " :: " parts[k] " = " \
                    (type ~ /char/ ? "c_null_ptr" : "0")
            delete_all(parts)
        }
        print "    end type"
    }
}
function f90_call(    n, m, k, members, parts) { # for this module alone: other programs call functions
    print "    type, bind(c) :: par_call"
    n = split(struct_body["par_call"], members, ";")
    for (m = 1; m < n; m++) {
        k = split(members[m], parts, /,/)
        for (k = 1; k in parts; k++) {
            if (parts[k] ~ /\*/) print "        type(c_ptr) :: " f90_last(parts[k]) " = c_null_ptr"
            else if (members[m] ~ /size_t|par_op/) print "        integer(c_int64_t) :: " f90_last(parts[k]) " = 0"
            else print "        integer(c_int) :: " f90_last(parts[k]) " = 0"
        }
        delete_all(parts)
    }
    print "    end type"
}
function f90_last(text) { # word
    sub(/ +$/, "", text)
    sub(/.*[ *]/, "", text)
    return text
}
function delete_all(array,    i) {
    for (i in array) delete array[i]
}
function f90_member(type) {
    if (type ~ /char/) return "type(c_ptr)"
    if (type ~ /double/) return "real(c_double)"
    if (type ~ /size_t|uint64_t/) return "integer(c_int64_t)"
    return "integer(c_int)"
}
# Opaque types in the order of their first use.
function opaque_list(    f, i, name, n, seen) {
    for (f = 1; f <= function_count; f++)
        for (i = 0; i <= arg_count[f]; i++) {
            name = handle_type(i ? arg_type[f, i] : function_type[f])
            if (name in opaque && !(name in seen)) {
                seen[name] = 1
                opaque_names[++n] = name
            }
        }
    return n
}

function f90_generics(    f, i) {
    for (f = 1; f <= function_count; f++) {
        if (!supported(f) || !f90_sized(f)) continue
        print "    interface " function_name[f]
        print "        module procedure " function_name[f] "_i64" \
            (f90_narrow(f) ? ", " function_name[f] "_i32" : "")
        print "    end interface"
    }
}
# Counts may be of either kind, but where arrays of them must stay until a request ends: those are C's.
function f90_sized(f) { return (has_class(f, "count") f90_counts(f)) != "" }
function f90_narrow(f) { return !(is_begun(f) && f90_counts(f) != "") }
function f90_counts(f) { return has_class(f, "counts") has_class(f, "counts_null") }

function f90_c_type(class, type) {
    if (class ~ /^(send|recv|counts|displs|handle|struct|word|.*_null)$/)
        return "type(c_ptr), value"
    if (class == "count") return "integer(c_size_t), value"
    if (class == "int") return "integer(c_int), value"
    if (class == "int64") return "integer(c_int64_t), value"
    if (class == "double") return "real(c_double), value"
    if (class == "float") return "real(c_float), value"
    if (class == "text") return "character(kind=c_char), intent(in)"
    if (class == "ints") return "integer(c_int), intent(in)"
    if (class == "int_out") return "integer(c_int), intent(out)"
    if (class == "int64_out") return "integer(c_int64_t), intent(out)"
    if (class == "double_out") return "real(c_double), intent(out)"
    if (class == "floats") return "real(c_float), intent(inout)"
    if (class ~ /^request/) return "type(par_request), intent(inout)"
    if (class == "handle_out") return "type(c_ptr), intent(out)"
    return "type(" handle_type(type) "), intent(out)"
}
function f90_array(class) { return class ~ /^(text|ints|floats|requests)$/ ? "(*)" : "" }
function f90_result_type(type) {
    if (type ~ /\*$/) return "type(c_ptr)"
    if (type ~ /^(par_result|int)$/) return "integer(c_int)"
    if (type == "double") return "real(c_double)"
    if (type == "float") return "real(c_float)"
    if (type == "size_t") return "integer(c_size_t)"
    if (type ~ /^(uint64_t|par_op)$/) return "integer(c_int64_t)"
    return "type(" type ")"
}
function f90_arguments(f,    i, line) {
    for (i = 1; i <= arg_count[f]; i++) line = line (i > 1 ? ", " : "") arg_name[f, i]
    return line
}
function f90_interfaces(    f, i, what) {
    for (f = 1; f <= function_count; f++) {
        if (!supported(f)) continue
        what = function_type[f] == "void" ? "subroutine" : "function"
        f90_line("        ", what " c_" short_name(f) "(" f90_arguments(f) ") bind(c, name='" \
            function_name[f] "')" (what == "function" ? " result(r)" : ""))
        print "            import"
        for (i = 1; i <= arg_count[f]; i++)
            print "            " f90_c_type(arg_class[f, i], arg_type[f, i]) " :: " arg_name[f, i] \
                f90_array(arg_class[f, i])
        if (what == "function") print "            " f90_result_type(function_type[f]) " :: r"
        print "        end " what
    }
}

# What C may get NULL for comes last and is optional.
function f90_optional(class) { return class ~ /^(displs|struct|.*_null)$/ }
# The dummy arguments of a procedure of ours, in order: first what is there always.
function f90_dummies(f,    i, line, tail) {
    for (i = 1; i <= arg_count[f]; i++) {
        if (f90_optional(arg_class[f, i])) tail = tail ", " arg_name[f, i]
        else line = line (line == "" ? "" : ", ") arg_name[f, i]
    }
    if (line == "") sub(/^, /, "", tail)
    line = line tail
    if (function_type[f] == "par_result") line = line (line == "" ? "" : ", ") "result"
    if (f90_site(f)) line = line ", file, line"
    return line
}
function f90_site(f) { return function_name[f] in has_site && f90_comm(f) != "c_null_ptr" }
function f90_declare(f, i, count_kind,    class, kept) {
    class = arg_class[f, i]
    kept = is_begun(f) ? ", asynchronous" : ""
    if (class == "send") return "type(*), dimension(..), intent(in), target" kept
    if (class == "recv") return "type(*), dimension(..), intent(inout), target" kept
    if (class == "count") return "integer(c_" count_kind "_t), intent(in)"
    if (class ~ /^(counts|counts_null|displs)$/)
        return "integer(c_" count_kind "_t), intent(in), target, contiguous" \
            (f90_optional(class) ? ", optional" : "") kept
    if (class == "int_out_null") return "integer(c_int), intent(out), target, optional"
    if (class == "double_out_null") return "real(c_double), intent(out), target, optional"
    if (class == "ints_null") return "integer(c_int), intent(in), target, contiguous, optional"
    if (class == "word") return "integer(c_int64_t), intent(inout), target"
    if (class == "int") return "integer(c_int), intent(in)"
    if (class == "int64") return "integer(c_int64_t), intent(in)"
    if (class == "double") return "real(c_double), intent(in)"
    if (class == "float") return "real(c_float), intent(in)"
    if (class == "text") return "character(*), intent(in)"
    if (class == "handle") return "type(" handle_type(arg_type[f, i]) "), intent(in)"
    if (class == "handle_out") return "type(" handle_type(arg_type[f, i]) "), intent(out)"
    if (class == "struct") return "type(" handle_type(arg_type[f, i]) "), intent(in), optional, target"
    return f90_c_type(class, arg_type[f, i])
}
function f90_dummy_array(class) {
    if (class ~ /^(counts|counts_null|displs|ints_null)$/) return "(:)"
    return class == "text" ? "" : f90_array(class)
}
function f90_procedures(    f) {
    for (f = 1; f <= function_count; f++) {
        if (!supported(f)) continue
        f90_procedure(f, f90_sized(f) ? "_i64" : "")
        if (f90_sized(f) && f90_narrow(f)) f90_from_int32(f)
    }
}
function f90_head(f, suffix, count_kind,    i, what) {
    what = function_type[f] ~ /^(void|par_result)$/ ? "subroutine" : "function"
    print ""
    f90_line("    ", what " " function_name[f] suffix "(" f90_dummies(f) ")" \
        (what == "function" ? " result(r)" : ""))
    for (i = 1; i <= arg_count[f]; i++)
        print "        " f90_declare(f, i, count_kind) " :: " arg_name[f, i] f90_dummy_array(arg_class[f, i])
    if (function_type[f] == "par_result") print "        integer(c_int), intent(out), optional :: result"
    if (f90_site(f)) {
        print "        character(*), intent(in), optional :: file"
        print "        integer, intent(in), optional :: line"
    }
    if (function_type[f] == "const char *") print "        character(:), allocatable :: r"
    else if (handle_of_result(function_type[f])) print "        type(" handle_type(function_type[f]) ") :: r"
    else if (what == "function") print "        " f90_result_type(function_type[f]) " :: r"
    return what
}
function f90_procedure(f, suffix,    what, i, type, call_text, comm, name, class) {
    what = f90_head(f, suffix, "int64")
    type = function_type[f]
    if (type == "par_result") print "        integer(c_int) :: r"
    if (f90_compared(f)) print "        type(misfit) :: wrong"
    if (f90_compared(f) && f90_kind(f)) print "        integer(c_int64_t) :: needs(2)"
    for (i = 1; i <= arg_count[f]; i++)
        if (f90_optional(arg_class[f, i])) print "        type(c_ptr) :: " arg_name[f, i] "_or_null"
    comm = f90_comm(f)
    for (i = 1; i <= arg_count[f]; i++) {
        name = arg_name[f, i]
        if (!f90_optional(arg_class[f, i])) continue
        print "        " name "_or_null = c_null_ptr"
        print "        if (present(" name ")) " name "_or_null = c_loc(" name ")"
    }
    if (f90_compared(f)) f90_compare(f)
    if (f90_site(f)) print "        call set_site(" f90_comm(f) ", file, line)"
    call_text = "c_" short_name(f) "("
    for (i = 1; i <= arg_count[f]; i++) {
        name = arg_name[f, i]
        class = arg_class[f, i]
        if (class == "send" || class == "recv") name = f90_address(f, i)
        else if (class == "counts" || class == "word") name = "c_loc(" name ")"
        else if (f90_optional(class)) name = name "_or_null"
        else if (class == "count") name = "int(" name ", c_size_t)"
        else if (class == "text") name = "trim(" name ")//c_null_char"
        else if (class ~ /^handle/) name = name "%handle"
        else if (arg_type[f, i] == "par_dtype" && f90_compared(f)) name = "merge(-1_c_int, " name ", wrong%what /= 0)"
        call_text = call_text (i > 1 ? ", " : "") name
    }
    call_text = call_text ")"
    if (type == "void") f90_line("        ", "call " call_text)
    else if (type == "const char *") f90_line("        ", "r = string_at(" call_text ")")
    else if (handle_of_result(type)) f90_line("        ", "r%handle = " call_text)
    else f90_line("        ", "r = " call_text)
    if (f90_compared(f))
        print "        if (wrong%what /= 0) r = refuse(wrong, " comm ", '" function_name[f] "')"
    else if (type == "par_result" && f90_without_gaps(f) != "") {
        print "        if (.not. (" f90_without_gaps(f) ")) &"
        print "            r = gaps(" comm ", '" function_name[f] "')"
    }
    if (function_name[f] ~ /_close$/) comm = "c_null_ptr" # it has gone
    if (type == "par_result") print "        call finish(r, " comm ", result)"
    print "    end " what
}
# Are its arrays compared with what it reads and writes? What does not fit makes the dtype none, so that the other
# ranks hear of it, too.
function f90_compared(f,    i) {
    for (i = 1; i <= arg_count[f]; i++)
        if (arg_type[f, i] == "par_dtype" && f90_without_gaps(f) != "") return function_type[f] == "par_result"
    return 0
}
function f90_kind(f,    name) { # the row of its kind; 0: it is of none
    name = function_name[f]
    sub(/_begin$/, "", name)
    return name in kind_of ? kind_of[name] : 0
}
function f90_argument(f, name,    i) {
    for (i = 1; i <= arg_count[f]; i++)
        if (arg_name[f, i] == name) return name
    return ""
}
function f90_compare(f,    i, k, name, comm, blocks, list, count, type, side) {
    k = f90_kind(f)
    comm = f90_comm(f)
    blocks = comm ~ /neighbors/ ? "c_neighbors_degree(neighbors%handle)" : "c_size(" comm ")"
    for (i = 1; i <= arg_count[f]; i++) {
        name = arg_name[f, i]
        if (arg_class[f, i] !~ /^(counts|counts_null|displs)$/) continue
        print "        " (f90_optional(arg_class[f, i]) ? "if (present(" name ")) " : "") "call compare_list(wrong, '" \
            name "', size(" name "), " blocks ")"
        list[name ~ /^(counts|displs)$/ ? "recv_" name : name] = \
            f90_optional(arg_class[f, i]) ? name "_or_null" : "c_loc(" name ")"
    }
    if (k)
        f90_line("        ", "needs = bytes_touched(wrong, " comm ", " kinds[k, 1] ", " \
            (f90_argument(f, "root") ? "root" : "0") ", " (f90_argument(f, "count") ? "count" : "0_c_int64_t") \
            ", dtype, " f90_or_null(list["send_counts"]) ", " f90_or_null(list["send_displs"]) ", " \
            f90_or_null(list["recv_counts"]) ", " f90_or_null(list["recv_displs"]) ")")
    for (i = 1; i <= arg_count[f]; i++) {
        if (arg_class[f, i] !~ /^(send|recv)$/) continue
        name = arg_name[f, i]
        count = f90_argument(f, name "_count") ? name "_count" : "count"
        type = f90_argument(f, name "_type") ? name "_type" : "dtype"
        side = arg_class[f, i] == "send" ? 1 : 2
        f90_line("        ", "call compare(wrong, '" name "', " name ", " \
            (k ? "needs(" side ")" : count "*c_dtype_bytes(" type ")") ")")
    }
}
function f90_or_null(text) { return text == "" ? "c_null_ptr" : text }
function f90_comm(f,    i) { # the comm whose call this is, and which knows the text of an error
    for (i = 1; i <= arg_count[f]; i++) {
        if (arg_class[f, i] != "handle") continue
        if (arg_type[f, i] ~ /par_comm/) return arg_name[f, i] "%handle"
        if (arg_type[f, i] == "par_neighbors *") return "c_neighbors_comm(" arg_name[f, i] "%handle)"
    }
    return "c_null_ptr"
}
function f90_without_gaps(f,    i, line) { # a condition; "": it takes no arrays
    for (i = 1; i <= arg_count[f]; i++)
        if (arg_class[f, i] ~ /^(send|recv)$/)
            line = line (line == "" ? "" : " .and. ") "is_contiguous(" arg_name[f, i] ")"
    return line
}
# Where an array begins. In place: where the kind's own block is in the other array.
function f90_address(f, i) {
    if (f90_compared(f)) return f90_place(f, i)
    return "without_gaps(" f90_place(f, i) ", is_contiguous(" arg_name[f, i] "))"
}
function f90_place(f, i,    name, kind, row, send, recv, other, elements, j) {
    name = arg_name[f, i]
    kind = function_name[f]
    sub(/_begin$/, "", kind)
    if (!(kind in kind_of)) return "c_loc(" name ")"
    row = kind_of[kind]
    if (kinds[row, 5] != "NONE" || arg_class[f, i] == "") return "c_loc(" name ")"
    send = kinds[row, 3]
    recv = kinds[row, 4]
    if (send == "NONE" || recv == "NONE" || kind == "par_all_to_all") return "c_loc(" name ")"
    for (j = 1; j <= arg_count[f]; j++)
        if (j != i && arg_class[f, j] ~ /^(send|recv)$/) other = arg_name[f, j]
    elements = ""
    if (arg_class[f, i] == "send" && recv ~ /BLOCK$/ && send ~ /BLOCK$/) elements = "0_c_int64_t"
    if (arg_class[f, i] == "send" ? recv ~ /ALL$/ && send ~ /BLOCK$/ : send ~ /ALL$/)
        elements = "own_block(comm, count, dtype)"
    if (elements == "") return "c_loc(" name ")"
    if (elements ~ /^own/ && (send recv) ~ /ROOT/) sub(/dtype\)/, "dtype, root)", elements)
    return "or_in_place(c_loc(" name "), c_loc(" other "), " elements ")"
}
function f90_from_int32(f,    what, i, line, name, class, tail) {
    what = f90_head(f, "_i32", "int32")
    for (i = 1; i <= arg_count[f]; i++)
        if (arg_class[f, i] ~ /^(counts|counts_null|displs)$/)
            print "        integer(c_int64_t), allocatable :: wide_" arg_name[f, i] "(:)"
    for (i = 1; i <= arg_count[f]; i++) {
        name = arg_name[f, i]
        class = arg_class[f, i]
        if (class == "counts") print "        allocate (wide_" name ", source=int(" name ", c_int64_t))"
        if (class ~ /^(counts_null|displs)$/)
            print "        if (present(" name ")) allocate (wide_" name ", source=int(" name ", c_int64_t))"
        if (class ~ /^(counts|counts_null|displs)$/) name = "wide_" name
        if (class == "count") name = "int(" name ", c_int64_t)"
        if (f90_optional(class)) tail = tail ", " name
        else line = line (line == "" ? "" : ", ") name
    }
    line = line tail
    if (function_type[f] == "par_result") line = line ", result"
    if (f90_site(f)) line = line ", file, line"
    line = function_name[f] "_i64(" line ")"
    f90_line("        ", what == "function" ? "r = " line : "call " line)
    print "    end " what
}

# par_alloc for arrays of the types that Fortran has, of 1 to 4 dimensions.
function f90_alloc(    i, d, type, names, name) {
    for (i = 1; i <= dtype_count; i++) {
        if (dtypes[i, 5] == "FLOAT") type = "real(c_" dtypes[i, 3] ")"
        else if (dtypes[i, 5] == "SIGNED") type = "integer(c_" dtypes[i, 3] ")"
        else continue
        for (d = 1; d <= 4; d++) {
            name = "alloc_" dtypes[i, 2] "_" d
            if (part == "alloc") f90_alloc_one(name, type, d)
            else print "        module procedure " name
        }
    }
}
function f90_alloc_one(name, type, d,    colons, shape, bounds, k) {
    for (k = 1; k <= d; k++) {
        colons = colons (k > 1 ? ", " : "") ":"
        bounds = bounds (k > 1 ? ", " : "") "first(" k "):"
    }
    print ""
    f90_line("    ", "subroutine " name "(comm, array, upper, lower, result, file, line)")
    print "        type(par_comm), intent(in) :: comm"
    print "        " type ", pointer, intent(out) :: array(" colons ")"
    print "        integer, intent(in) :: upper(" d ")"
    print "        integer, intent(in), optional :: lower(" d ")"
    print "        integer(c_int), intent(out), optional :: result"
    print "        character(*), intent(in), optional :: file"
    print "        integer, intent(in), optional :: line"
    print "        " type ", pointer :: whole(" colons ")"
    print "        type(c_ptr) :: memory"
    print "        integer(c_size_t) :: extents(" d "), bytes"
    print "        integer :: first(" d ")"
    print "        first = 1"
    print "        if (present(lower)) first = lower"
    print "        extents = max(0_c_size_t, int(upper, c_size_t) - first + 1)"
    print "        bytes = product(extents)*(storage_size(array)/8)"
    print "        call set_site(comm%handle, file, line)"
    print "        memory = c_alloc(comm%handle, bytes)"
    print "        array => null()"
    print "        if (c_associated(memory)) then"
    print "            call c_f_pointer(memory, whole, extents)"
    print "            array(" bounds ") => whole"
    print "        end if"
    print "        call finish(merge(PAR_OK, PAR_ERR_MEMORY, c_associated(memory)), comm%handle, result)"
    print "    end subroutine"
}

# ---- Python

function py_list(name, field, count, columns,    i, k, line) {
    print name " = ["
    for (i = 1; i <= count; i++) {
        line = "    ("
        for (k = 1; k <= columns; k++) line = line (k > 1 ? ", " : "") "\"" field[i, k] "\""
        print line "),"
    }
    print "]"
}
function py_constants(    i) {
    print "VERSION = \"" version "\""
    py_list("_RESULTS", results, result_count, 2)
    print "# constant, name, C type, C type that adds, family"
    py_list("_DTYPES", dtypes, dtype_count, 5)
    py_list("_OPS", ops, op_count, 2)
    print "# constant, name, send, recv, who passes counts, other arguments"
    py_list("_KINDS", kinds, kind_count, 6)
}
function py_type(type) {
    if (type ~ /char \*$/) return "c_char_p"
    if (type ~ /\*$/) return "c_void_p"
    if (type ~ /double/) return "c_double"
    if (type ~ /float/) return "c_float"
    if (type ~ /size_t/) return "c_size_t"
    if (type ~ /uint64_t|par_op/) return "c_uint64"
    return "c_int"
}
function py_structs(    i, n, m, k, count, name, members, parts, type, text) {
    for (i = 1; i <= struct_count; i++) {
        name = struct_order[i]
        if (struct_body[name] ~ /\(|\[/) continue
        print ""
        print ""
        print "class " name "(ctypes.Structure):"
        print "    _fields_ = ["
        n = split(struct_body[name], members, ";")
        for (m = 1; m < n; m++) {
            count = split(members[m], parts, /,/)
            type = parts[1]
            sub(/[a-z_]+ *$/, "", type)
            for (k = 1; k <= count; k++) {
                text = parts[k]
                sub(/ +$/, "", text)
                sub(/.*[ *]/, "", text)
                print "        (\"" text "\", " py_type(k == 1 || parts[k] ~ /\*/ ? py_trim(type) : type) "),"
            }
        }
        print "    ]"
    }
}
function py_trim(text) {
    gsub(/^ +| +$/, "", text)
    return text
}
function py_functions(    f, i, line, type) {
    print "_FUNCTIONS = {"
    for (f = 1; f <= function_count; f++) {
        if (!supported(f) && function_name[f] !~ /^par_(alloc|begin|call_spans)$/) continue
        line = ""
        for (i = 1; i <= arg_count[f]; i++) line = line (i > 1 ? ", " : "") py_type(arg_type[f, i])
        type = function_type[f]
        type = type == "void" ? "None" : type in defined ? type : py_type(type)
        print "    \"" function_name[f] "\": (" type ", [" line "]),"
    }
    print "}"
}

# ---- C++

# The methods of a comm for each kind of call: blocking, and those that are begun.
function hpp_calls(    i, name) {
    for (i = 1; i <= kind_count; i++) {
        name = kinds[i, 2]
        if (kinds[i, 3] == "NONE" && kinds[i, 4] == "NONE" || kinds[i, 6] == "NEIGHBORS") continue
        hpp_forms(i, "par_" name, name)
    }
}
function hpp_neighbors(    i, name) { # an exchange is a method of its neighbors
    for (i = 1; i <= kind_count; i++) {
        name = kinds[i, 2]
        if (kinds[i, 6] != "NEIGHBORS") continue
        sub(/^neighbor_/, "", name)
        hpp_forms(i, "par_" kinds[i, 2], name)
    }
}
function hpp_signals(    f) { # what accesses a word of a rank
    for (f = 1; f <= function_count; f++)
        if (function_type[f] == "par_result" && supported(f) && has_class(f, "word") != "")
            hpp_call(f, 0, "", short_name(f))
}
function hpp_forms(k, function_of, method) {
    hpp_call(function_called(function_of), k, "", method)
    hpp_call(function_called(function_of "_begin"), k, "_begin", method "_begin")
}
function function_called(name,    f) { # 0: there is none
    for (f = function_count; f; f--) if (function_name[f] == name) break
    return f
}
function hpp_parameter(class, type) {
    if (class == "send") return "const S &"
    if (class == "recv") return "R &&"
    if (class ~ /^(counts|displs)$/) return "sizes "
    if (type ~ /^(par_op|int|uint64_t)$/) type = type " "
    else if (type !~ /uint64_t \*$/) return ""
    sub(/uint64_t/, "std::&", type)
    return type
}
# Function f, which is a form of kind k, or of none (0).
function hpp_call(f, k, suffix, method,    i, name, class, type, parameters, pass, send, recv, arrays,
    sited, compared) {
    if (!f) return
    sited = k || function_name[f] in has_site
    send = has_class(f, "send")
    recv = has_class(f, "recv")
    arrays = send recv != ""
    compared = send != "" && recv != ""
    for (i = 1; i <= arg_count[f]; i++) {
        name = arg_name[f, i]
        class = arg_class[f, i]
        type = hpp_parameter(class, arg_type[f, i])
        if (type != "") parameters = parameters type name ", "
        if (class ~ /^(send|recv)$/) pass = pass ", " name "_view.data()"
        else if (class == "count") pass = pass ", " hpp_count(k, send, recv)
        else if (class ~ /^(counts|displs)$/) pass = pass ", " name ".data()"
        else if (arg_type[f, i] == "par_dtype") pass = pass ", " (compared ? "wrong.dtype(dtype_of<T>)" : "dtype_of<T>")
        else if (class == "handle") pass = pass ", " (sited ? "at_line(at)" : "handle_")
        else if (class == "request") pass = pass ", &r.request_"
        else pass = pass ", " name
    }
    sub(/^, /, "", pass)
    type = suffix == "" ? "void" : "request"
    print ""
    if (arrays)
        print "    template <" (send != "" ? "class S" : "") (send != "" && recv != "" ? ", " : "") \
            (recv != "" ? "class R" : "") ">"
    if (sited) parameters = parameters "site at = site::here(), "
    sub(/, $/, "", parameters)
    hpp_line("    ", "outcome<" type "> " method "(" parameters ") const {")
    if (arrays) print "        using T = element_of<" (send != "" ? "S" : "R") ">;"
    if (send != "") print "        const auto " send "_view = view_of(" send ");"
    if (recv != "") print "        const auto " recv "_view = view_of(" recv ");"
    if (send != "" && recv != "")
        hpp_line("        ", "static_assert(std::is_same_v<T, element_of<R>>, \"" send " and " recv \
            " differ in type\");")
    if (suffix != "") print "        " type " r(handle_);"
    if (compared) hpp_line("        ", "const misfit wrong" hpp_misfit(f, k, send, recv))
    hpp_line("        ", (compared ? "" : "const ") "par_result result = (" function_name[f] ")(" pass ");")
    if (compared) hpp_line("        ", "if (wrong) result = wrong.fail(handle_, \"" method "\");")
    print "        return Errors::end(result, handle_" (suffix == "" ? "" : ", std::move(r)") ");"
    print "    }"
}
# As clang-format breaks a line: after a comma, to the column of the last open parenthesis.
function hpp_line(indent, text,    limit, cut, open, depth, c) {
    limit = 110 - length(indent)
    while (length(text) > limit) {
        cut = limit
        while (cut > 20 && substr(text, cut, 2) != ", ") cut--
        print indent substr(text, 1, cut)
        if (!open) {
            open = index(text, ")(")
            open = open ? open + 1 : index(text, "(")
            indent = indent sprintf("%" open "s", "")
            limit = 110 - length(indent)
        }
        text = substr(text, cut + 2)
    }
    print indent text
}
# The elements of a block: the size of what is a block; else the nth part.
function hpp_count(k, send, recv) {
    if (kinds[k, 3] == "BLOCK") return send "_view.size()"
    if (kinds[k, 4] == "BLOCK") return recv "_view.size()"
    return "part(" send "_view.size(), blocks())"
}
# How a misfit is made: of a call from its kind, root, count, sizes of arrays and lists.
function hpp_misfit(f, k, send, recv,    i, name, root, list) {
    root = "0"
    for (i = 1; i <= arg_count[f]; i++) {
        name = arg_name[f, i]
        if (name == "root") root = name
        if (arg_class[f, i] !~ /^(counts|displs)$/) continue
        list[name ~ /^(counts|displs)$/ ? "recv_" name : name] = name
    }
    return "(handle_, blocks(), " kinds[k, 1] ", " root ", " hpp_count(k, send, recv) ", {" send "_view.size(), " \
        recv "_view.size()}, {{" list["send_counts"] "}, {" list["send_displs"] "}, {" list["recv_counts"] "}, {" \
        list["recv_displs"] "}});"
}
