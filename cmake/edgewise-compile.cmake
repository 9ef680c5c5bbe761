# Compiler settings shared by every target of the project: warnings, sanitizers, ccache, one precompiled header.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
# Hot loops live in the kernels, which ask for -O3 themselves; the rest only compiles slower with it.
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/lib")
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")

# Without NDEBUG some classes of torch (at::RecordFunction) have another layout than in libtorch, which is built with it.
if(NOT CMAKE_BUILD_TYPE STREQUAL "Release")
  add_compile_definitions(NDEBUG)
endif()

# Executables and libraries alike, so that one precompiled header fits all targets.
add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fPIC>)

find_program(EDGEWISE_CCACHE ccache)
if(EDGEWISE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # ccache looks through a precompiled header only when told that its macros do not matter.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime "${EDGEWISE_CCACHE}")
endif()

foreach(sanitizer IN LISTS EDGEWISE_SANITIZE)
  add_compile_options(-fsanitize=${sanitizer} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${sanitizer})
endforeach()
if(EDGEWISE_SANITIZE)
  # Instrumented code defeats GCC's flow analysis: it warns about torch's own optionals.
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wno-maybe-uninitialized>)
endif()
if("undefined" IN_LIST EDGEWISE_SANITIZE)
  # libtorch is built without RTTI checks in mind: the vptr check reports its classes, not ours.
  add_compile_options(-fno-sanitize=vptr -fno-sanitize-recover=undefined)
endif()

# edgewise_target(NAME): our warnings on a target of ours.
function(edgewise_target name)
  target_compile_options(${name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wshadow -Wnon-virtual-dtor
    -Wno-unknown-pragmas>)
  if(EDGEWISE_WERROR)
    target_compile_options(${name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
  endif()
endfunction()

# edgewise_torch_target(NAME): the same for a target that includes torch, with the shared precompiled header.
function(edgewise_torch_target name)
  edgewise_target(${name})
  if(EDGEWISE_PCH)
    if(NOT TARGET edgewise_pch)
      file(CONFIGURE OUTPUT "${CMAKE_BINARY_DIR}/edgewise_pch.cpp" CONTENT "")
      add_library(edgewise_pch OBJECT "${CMAKE_BINARY_DIR}/edgewise_pch.cpp")
      target_link_libraries(edgewise_pch PRIVATE edgewise::torch)
      target_precompile_headers(edgewise_pch PRIVATE <torch/torch.h> <torch/library.h>)
      edgewise_target(edgewise_pch)
    endif()
    target_precompile_headers(${name} REUSE_FROM edgewise_pch)
  endif()
endfunction()

# edgewise_together(NAME GROUP files...): files compiled as one, because each of them would instantiate the same templates of
# torch anew, which takes longer than the file itself. Their unnamed namespaces become one. -DEDGEWISE_TOGETHER=OFF compiles
# every file on its own, which is quicker while one file is being edited.
function(edgewise_together name group)
  if(EDGEWISE_TOGETHER)
    set_target_properties(${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
    set_source_files_properties(${ARGN} TARGET_DIRECTORY ${name} PROPERTIES UNITY_GROUP ${group})
  endif()
endfunction()

# edgewise_light_sources(NAME files...): files that include at most ATen/core/Tensor.h. The precompiled header would cost
# them more than it saves: its pending templates are instantiated at the end of every file that uses it.
function(edgewise_light_sources name)
  set_source_files_properties(${ARGN} TARGET_DIRECTORY ${name} PROPERTIES SKIP_PRECOMPILE_HEADERS ON
    SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# edgewise_parallel_sources(NAME files...): files that call at::parallel_for. It is a template in torch's headers and runs on one thread
# unless the file that calls it is compiled for OpenMP. The runtime is the one that libtorch brings (found through its rpath).
find_package(OpenMP REQUIRED COMPONENTS CXX)
function(edgewise_parallel_sources name)
  edgewise_light_sources(${name} ${ARGN})
  set_property(SOURCE ${ARGN} TARGET_DIRECTORY ${name} APPEND PROPERTY COMPILE_OPTIONS ${OpenMP_CXX_FLAGS})
  target_link_libraries(${name} PRIVATE ${OpenMP_CXX_LIBRARIES})
endfunction()
