# Finds libtorch inside a pip-installed torch and offers it as edgewise::torch.
#
# Torch's own find_package(Torch) demands a CUDA toolkit even from a CPU-only consumer and overrides the
# architectures chosen by the project, so this file reads the wheel's folder itself. It is installed with the
# package: edgewise-config.cmake uses it too.
#
#   EDGEWISE_TORCH_DIR   the folder of the torch Python package (holds include/ and lib/)
if(TARGET edgewise::torch)
  return()
endif()

if(NOT EDGEWISE_TORCH_DIR)
  file(GLOB _edgewise_venv_torch LIST_DIRECTORIES true
       "${CMAKE_SOURCE_DIR}/.venv/lib/python3.*/site-packages/torch")
  if(SKBUILD)  # a wheel is for the Python that builds it
    set(EDGEWISE_PYTHON "${Python_EXECUTABLE}")
    set(_edgewise_venv_torch "")
  endif()
  if(_edgewise_venv_torch)
    list(GET _edgewise_venv_torch 0 _edgewise_torch_dir)
  else()
    find_program(EDGEWISE_PYTHON NAMES python3 python)
    if(EDGEWISE_PYTHON)
      execute_process(
        COMMAND "${EDGEWISE_PYTHON}" -c
                "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')"
        OUTPUT_VARIABLE _edgewise_torch_dir OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    endif()
  endif()
  set(EDGEWISE_TORCH_DIR "${_edgewise_torch_dir}" CACHE PATH "Folder of the torch Python package" FORCE)
endif()

if(NOT EXISTS "${EDGEWISE_TORCH_DIR}/lib/libtorch_cpu.so")
  message(FATAL_ERROR
    "edgewise: no libtorch found (looked in .venv and in python3's packages; EDGEWISE_TORCH_DIR='${EDGEWISE_TORCH_DIR}').\n"
    "Run './run build', or: python3 -m venv .venv && .venv/bin/pip install 'torch==2.11.*', "
    "or pass -DEDGEWISE_TORCH_DIR=/path/to/site-packages/torch")
endif()

file(STRINGS "${EDGEWISE_TORCH_DIR}/version.py" _edgewise_torch_version REGEX "^__version__ = ")
string(REGEX REPLACE "^__version__ = '([^']*)'.*" "\\1" EDGEWISE_TORCH_VERSION "${_edgewise_torch_version}")
if(NOT EDGEWISE_TORCH_VERSION MATCHES "^2\\.11\\.")
  message(WARNING "edgewise is tested with torch 2.11; found ${EDGEWISE_TORCH_VERSION} in ${EDGEWISE_TORCH_DIR}")
endif()
message(STATUS "edgewise: torch ${EDGEWISE_TORCH_VERSION} in ${EDGEWISE_TORCH_DIR}")

find_package(Threads REQUIRED)
add_library(edgewise_torch INTERFACE IMPORTED GLOBAL)
add_library(edgewise::torch ALIAS edgewise_torch)
target_include_directories(edgewise_torch SYSTEM INTERFACE
  "${EDGEWISE_TORCH_DIR}/include" "${EDGEWISE_TORCH_DIR}/include/torch/csrc/api/include")
# libstdc++ first: the wheel's libraries export their own copies of std::filesystem functions, and with those in front
# std::filesystem::remove_all jumps to address 0.
# --no-as-needed: libtorch.so has no symbols of its own but brings in the CUDA back end when the wheel has one.
target_link_libraries(edgewise_torch INTERFACE stdc++
  "-Wl,--no-as-needed,${EDGEWISE_TORCH_DIR}/lib/libtorch.so,${EDGEWISE_TORCH_DIR}/lib/libtorch_cpu.so,${EDGEWISE_TORCH_DIR}/lib/libc10.so,--as-needed"
  Threads::Threads)
if(EDGEWISE_PYTHON_WHEEL)  # it is told where torch is by its own rpath, relative to itself
  target_link_options(edgewise_torch INTERFACE "-Wl,-rpath-link,${EDGEWISE_TORCH_DIR}/lib")
else()
  target_link_options(edgewise_torch INTERFACE "-Wl,-rpath,${EDGEWISE_TORCH_DIR}/lib")
endif()
target_compile_features(edgewise_torch INTERFACE cxx_std_20)
