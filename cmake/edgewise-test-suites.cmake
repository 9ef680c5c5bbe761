# edgewise_discover_suites(TARGET LAYER): one test of ctest a GoogleTest suite, named LAYER.SUITE, listed by the program itself
# right after it is linked. One a test, as gtest_discover_tests makes them, would load libtorch 1,500 times.
#
# This file is also the script that lists them:
#   cmake -DPROGRAM=... -DLAYER=... -DENVIRONMENT=... -DOUT=... -P edgewise-test-suites.cmake
if(CMAKE_SCRIPT_MODE_FILE)
  cmake_minimum_required(VERSION 3.25)
  set(ENV{ASAN_OPTIONS} "detect_leaks=0:protect_shadow_gap=0:detect_odr_violation=0")
  execute_process(COMMAND "${PROGRAM}" --gtest_list_tests OUTPUT_VARIABLE listed COMMAND_ERROR_IS_FATAL ANY)
  # "Suite.", "Cases/Suite.", "Suite/0.  # TypeParam = ..."; tests follow, indented.
  string(REGEX MATCHALL "(^|\n)[A-Za-z0-9_/]+\\.(  #[^\n]*)?\n" suites "\n${listed}")
  set(text "")
  foreach(suite IN LISTS suites)
    string(REGEX REPLACE "^\n*([A-Za-z0-9_/]+)\\..*" "\\1" suite "${suite}")
    # Of a suite that skips altogether the report ends with what was skipped; a failure would come after it.
    string(APPEND text "add_test([==[${LAYER}.${suite}]==] [==[${PROGRAM}]==] [==[--gtest_filter=${suite}.*]==])\n"
      "set_tests_properties([==[${LAYER}.${suite}]==] PROPERTIES LABELS [==[${LAYER}]==] TIMEOUT 900 "
      "ENVIRONMENT [==[${ENVIRONMENT}]==] "
      "SKIP_REGULAR_EXPRESSION [==[PASSED  \\] 0 tests\\.\n(\\[  SKIPPED \\] [^\n]*\n)+$]==])\n")
  endforeach()
  if(text STREQUAL "")
    message(FATAL_ERROR "edgewise: expected tests in ${PROGRAM}; it lists none")
  endif()
  file(WRITE "${OUT}" "${text}")
  return()
endif()

set(EDGEWISE_TEST_SUITES_SCRIPT "${CMAKE_CURRENT_LIST_FILE}")
function(edgewise_discover_suites target layer)
  set(list "${CMAKE_CURRENT_BINARY_DIR}/${target}_suites.cmake")
  add_custom_command(TARGET ${target} POST_BUILD BYPRODUCTS "${list}" VERBATIM
    COMMAND "${CMAKE_COMMAND}" "-DPROGRAM=$<TARGET_FILE:${target}>" -DLAYER=${layer}
      "-DENVIRONMENT=${EDGEWISE_TEST_ENVIRONMENT}" "-DOUT=${list}" -P "${EDGEWISE_TEST_SUITES_SCRIPT}")
  # A program that is not built is a test that fails.
  file(CONFIGURE OUTPUT "${list}.in.cmake" CONTENT [[
if(EXISTS "@list@")
  include("@list@")
else()
  add_test(@layer@ "@target@_was_not_built")
endif()
]] @ONLY)
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES "${list}.in.cmake")
endfunction()
