# A header of the kit as one file: each header of the kit that it includes is written where it is included first.
function copy(file,    line, name) {
    seen[file] = 1
    while ((getline line < file) > 0) {
        name = line
        if (line !~ /^#include "par[a-z_]*\.h"/) {
            print line
            continue
        }
        sub(/^#include "/, "", name)
        sub(/".*/, "", name)
        if (!(name in seen)) copy(name)
    }
    close(file)
}
BEGIN { copy(ARGV[1]) }
