# Spack's recipe. Put this folder into a repository of yours as packages/par, and the tarball of `make dist`
# where PAR_DIST_URL says (https://..., file:///...): spack install --no-checksum par. Headers need no compiler.
import os

from spack.package import *

try:  # from Spack 1.0 on build systems are not in spack.package
    from spack_repo.builtin.build_systems.makefile import MakefilePackage
except ImportError:
    pass


class Par(MakefilePackage):
    """Header-only distributed training: ranks, shared memory, collectives, sharded data parallelism, pipelines
    and tensor parallelism for C, C++, Fortran and CUDA programs."""

    homepage = "https://localhost/par"
    url = os.environ.get("PAR_DIST_URL", "file:///tmp/par_0.9.0.orig.tar.gz")

    license("Unlicense OR MIT-0")

    version("0.9.0")

    variant("mpi", default=True, description="ranks on several machines by MPI")
    variant("cuda", default=False, description="ranks with GPUs")

    depends_on("mpi", when="+mpi")
    depends_on("cuda@12:", when="+cuda")

    def build(self, spec, prefix):
        pass

    def install(self, spec, prefix):
        make("install", "PREFIX=" + prefix)
