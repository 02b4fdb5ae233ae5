! The line of a call, for the bindings' optional arguments file and line; #include "par_site.h" in a Fortran file.
#define PAR_SITE file=__FILE__//char(0),line=__LINE__
