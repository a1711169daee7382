# weft_library(NAME SOURCES... [ALONE...] [DEPS...] [SEPARATE]): one static library per layer;
# includes src/. Instrumented code is compiled several sources at a time, which saves time. Those of
# ALONE are compiled one by one everywhere: their helpers have the same names as those of others, or
# a program brings a definition of its own. SEPARATE: so are all.
# weft_test(NAME SOURCES... [DEPS...] [PORTABLE] [TIMEOUT_S N]): one GoogleTest program, its cases
# listed to CTest. A portable one needs nothing of the machine but a processor, which may be
# emulated.

function(weft_library name)
  cmake_parse_arguments(ARG "SEPARATE" "" "SOURCES;ALONE;DEPS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES} ${ARG_ALONE})
  if(WEFT_SANITIZE AND NOT ARG_SEPARATE)
    set_target_properties(${name} PROPERTIES UNITY_BUILD ON)
    set_source_files_properties(${ARG_ALONE} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endif()
  target_include_directories(${name} PUBLIC ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(${name} PUBLIC ${ARG_DEPS} PRIVATE weft_options)
endfunction()

function(weft_test name)
  cmake_parse_arguments(ARG "PORTABLE" "TIMEOUT_S" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} GTest::gtest GTest::gmock GTest::gtest_main
                                        weft_options weft_test_options)
  if(NOT ARG_TIMEOUT_S)
    set(ARG_TIMEOUT_S 120)
  endif()
  set(properties TIMEOUT ${ARG_TIMEOUT_S})
  if(CMAKE_CROSSCOMPILING)
    set(properties TIMEOUT 1800)  # emulated
  endif()
  if(ARG_PORTABLE)
    list(APPEND properties LABELS portable)
  endif()
  gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60 PROPERTIES ${properties})
endfunction()

# weft_test_with_checks(NAME [FILTER]): all tests of that program once more, but for those of the
# filter, under the checks of `weft run --check`, which must report nothing.
function(weft_test_with_checks name)
  if(WEFT_SANITIZE)
    return()
  endif()
  target_sources(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src/library/checks.cc)
  target_link_libraries(${name} PRIVATE weft_check)
  add_test(NAME checked.${name} COMMAND ${name} --gtest_filter=-${ARGN})
  set_tests_properties(checked.${name} PROPERTIES
    TIMEOUT 600 ENVIRONMENT "WEFT_CHECK=1;WEFT_CHECK_STATUS=66;WEFT_QUIET=1")
endfunction()

# weft_test_over_tcp(NAME): all tests of that program once more, with connections between processes
# of this host on TCP.
function(weft_test_over_tcp name)
  add_test(NAME tcp.${name} COMMAND ${name})
  set_tests_properties(tcp.${name} PROPERTIES
    TIMEOUT 600 ENVIRONMENT "WEFT_SAME_HOST=off;WEFT_TEST_CARRIER=tcp")
endfunction()

# weft_test_staged(NAME): all tests of that program once more, where the processes of a connection
# cannot reach each other's memory. Both ends are in one process here, and each maps what they share
# at its own address, so ThreadSanitizer does not see that one writes before the other reads.
function(weft_test_staged name)
  if(WEFT_SANITIZE MATCHES thread)
    return()
  endif()
  add_test(NAME staged.${name} COMMAND ${name})
  set_tests_properties(staged.${name} PROPERTIES
    TIMEOUT 600 ENVIRONMENT "WEFT_SAME_HOST=staged;WEFT_TEST_CARRIER=staged")
endfunction()
