# What the Python wheel holds beside python/edgewise: the libraries, and what they were built for. pyproject.toml asks for it.
#
#   EDGEWISE_BUILT   a folder with libraries that are already built, such as build/dev/lib; then nothing is compiled
install(FILES "${edgewise_built_for}" DESTINATION edgewise COMPONENT python_libraries)
install(DIRECTORY "${PROJECT_SOURCE_DIR}/apps/edgewise/explore/page/" DESTINATION edgewise/page COMPONENT python_libraries)

add_custom_target(edgewise_wheel)
if(EDGEWISE_BUILT)
  file(GLOB libraries "${EDGEWISE_BUILT}/libedgewise.so" "${EDGEWISE_BUILT}/libedgewise_cpu.so")
  if(NOT libraries)
    message(FATAL_ERROR "edgewise: expected libedgewise.so in EDGEWISE_BUILT; there is none in ${EDGEWISE_BUILT}")
  endif()
  install(PROGRAMS ${libraries} DESTINATION edgewise COMPONENT python_libraries)
else()
  set(libraries edgewise)
  if(TARGET edgewise_cpu)
    list(APPEND libraries edgewise_cpu)
  endif()
  add_dependencies(edgewise_wheel ${libraries})
  set_target_properties(${libraries} PROPERTIES INSTALL_RPATH "$ORIGIN/../torch/lib" INSTALL_REMOVE_ENVIRONMENT_RPATH ON)
  install(TARGETS ${libraries} LIBRARY DESTINATION edgewise COMPONENT python_libraries)
endif()
