# cmake --install: headers, libraries, the command line, a package that find_package(edgewise) finds, the Python package
# (PYTHONPATH=PREFIX/lib/python) and the recipes.
include(CMakePackageConfigHelpers)
install(TARGETS edgewise edgewise_train EXPORT edgewise-targets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET edgewise_cpu)
  install(TARGETS edgewise_cpu LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
install(DIRECTORY python/edgewise DESTINATION ${CMAKE_INSTALL_LIBDIR}/python PATTERN __pycache__ EXCLUDE)
install(FILES "${edgewise_built_for}" DESTINATION ${CMAKE_INSTALL_LIBDIR}/python/edgewise)
install(DIRECTORY "${PROJECT_SOURCE_DIR}/apps/edgewise/explore/page/" DESTINATION ${CMAKE_INSTALL_LIBDIR}/python/edgewise/page)
install(DIRECTORY recipes DESTINATION ${CMAKE_INSTALL_DATADIR}/edgewise)
if(TARGET edgewise_cli)
  install(TARGETS edgewise_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(DIRECTORY include/edgewise DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT edgewise-targets NAMESPACE edgewise::
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/edgewise)
configure_package_config_file(cmake/edgewise-config.cmake.in edgewise-config.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/edgewise)
write_basic_package_version_file(edgewise-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/edgewise-config.cmake"
  "${CMAKE_CURRENT_BINARY_DIR}/edgewise-config-version.cmake" cmake/edgewise-torch.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/edgewise)
