# The kit's targets: par::par (its headers, threads), par::mpi (built with PAR_MPI) and par::cuda. Where the headers
# are: par_INCLUDE_DIR, as CMakeLists.txt sets it; else where this file was installed with them.
# find_package(par COMPONENTS mpi cuda) finds MPI and the CUDA toolkit, too.
if(NOT TARGET par::par)
  if(NOT par_INCLUDE_DIR)
    get_filename_component(par_INCLUDE_DIR "${CMAKE_CURRENT_LIST_DIR}/../../../include" ABSOLUTE)
  endif()
  foreach(_par_target par mpi cuda)
    add_library(par::${_par_target} INTERFACE IMPORTED GLOBAL)
  endforeach()
  set_target_properties(par::par PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${par_INCLUDE_DIR}"
    INTERFACE_COMPILE_OPTIONS "-pthread"
    INTERFACE_LINK_LIBRARIES "-pthread;m")
  set_target_properties(par::mpi PROPERTIES
    INTERFACE_COMPILE_DEFINITIONS PAR_MPI
    INTERFACE_LINK_LIBRARIES "par::par;MPI::MPI_C")
  set_target_properties(par::cuda PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${par_INCLUDE_DIR}"
    INTERFACE_LINK_LIBRARIES "CUDA::cudart;m")
endif()
set(par_par_FOUND TRUE)
if("mpi" IN_LIST par_FIND_COMPONENTS AND NOT TARGET MPI::MPI_C)
  find_package(MPI QUIET COMPONENTS C)
endif()
if("cuda" IN_LIST par_FIND_COMPONENTS AND NOT TARGET CUDA::cudart)
  find_package(CUDAToolkit QUIET)
endif()
if(TARGET MPI::MPI_C)
  set(par_mpi_FOUND TRUE)
endif()
if(TARGET CUDA::cudart)
  set(par_cuda_FOUND TRUE)
endif()
foreach(_par_component IN LISTS par_FIND_COMPONENTS)
  if(par_FIND_REQUIRED_${_par_component} AND NOT par_${_par_component}_FOUND)
    set(par_FOUND FALSE)
    if(_par_component MATCHES "^(mpi|cuda)$")
      set(par_NOT_FOUND_MESSAGE "par's component ${_par_component} needs MPI for C, or the CUDA toolkit: not found")
    else()
      set(par_NOT_FOUND_MESSAGE "par has no component ${_par_component}, but par, mpi and cuda")
    endif()
  endif()
endforeach()
