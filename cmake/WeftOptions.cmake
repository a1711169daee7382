# What is built, and the compiler settings shared by every target.
#
# Everything below has the scope of this folder: nothing reaches a project that adds Weft as a
# subproject. Options begin with WEFT_. A subproject builds the libraries of the C++ layers only;
# alone, Weft builds everything.

set(weft_tests ${PROJECT_IS_TOP_LEVEL})
if(DEFINED BUILD_TESTING AND NOT BUILD_TESTING)
  set(weft_tests OFF)
endif()
option(WEFT_CAPTURE "Build weft::capture, which analyzes captures" ${PROJECT_IS_TOP_LEVEL})
option(WEFT_DROPIN "Build libibverbs.so.1 and librdmacm.so.1 for unmodified programs"
       ${PROJECT_IS_TOP_LEVEL})
option(WEFT_CLI "Build the program weft and its manual pages" ${PROJECT_IS_TOP_LEVEL})
option(WEFT_FABRIC "Build the libfabric provider, where libfabric is installed"
       ${PROJECT_IS_TOP_LEVEL})
option(WEFT_EXAMPLES "Build the examples" ${PROJECT_IS_TOP_LEVEL})
option(WEFT_TESTS "Build the tests" ${weft_tests})
option(WEFT_BENCH "Build the benchmarks" ${PROJECT_IS_TOP_LEVEL})
option(WEFT_INSTALL "Add rules that install what is built" ${PROJECT_IS_TOP_LEVEL})
option(WEFT_WERROR "Treat warnings as errors" ${PROJECT_IS_TOP_LEVEL})
option(WEFT_FUZZ "Build the libFuzzer targets (needs clang)" OFF)
set(WEFT_SANITIZE "" CACHE STRING "Sanitizers to build with, as for -fsanitize=")

# weft_needs(OPTION NEEDED...): stops with the next step where OPTION is on and a needed one is not.
function(weft_needs option)
  if(${option})
    foreach(needed IN LISTS ARGN)
      if(NOT ${needed})
        message(FATAL_ERROR "${option} needs ${needed}: add -D${needed}=ON or -D${option}=OFF")
      endif()
    endforeach()
  endif()
endfunction()
weft_needs(WEFT_CLI WEFT_CAPTURE WEFT_DROPIN)
weft_needs(WEFT_EXAMPLES WEFT_CAPTURE)
weft_needs(WEFT_BENCH WEFT_CAPTURE WEFT_CLI)
weft_needs(WEFT_TESTS WEFT_CAPTURE WEFT_DROPIN WEFT_CLI WEFT_EXAMPLES WEFT_INSTALL)
weft_needs(WEFT_FUZZ WEFT_CAPTURE)

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_UNITY_BUILD OFF)  # sources have helpers of the same name
# The layers are linked into shared objects that replace system libraries: only what is exported on
# purpose may be visible there.
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)

find_program(WEFT_CCACHE ccache)
if(WEFT_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${WEFT_CCACHE})
endif()

add_library(weft_options INTERFACE)
target_compile_options(weft_options INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion
                                              -Wno-sign-conversion -Wnon-virtual-dtor)
if(WEFT_WERROR)
  target_compile_options(weft_options INTERFACE -Werror)
endif()
if(WEFT_SANITIZE)
  target_compile_options(weft_options INTERFACE -fsanitize=${WEFT_SANITIZE} -fno-omit-frame-pointer
                                                -fno-sanitize-recover=all)
  if(WEFT_SANITIZE MATCHES thread)
    # ThreadSanitizer knows no fences, and GCC warns of each. Asio does not depend on its own: it
    # locks as well.
    target_compile_definitions(weft_options INTERFACE ASIO_DISABLE_FENCED_BLOCK
                               BOOST_ASIO_DISABLE_FENCED_BLOCK)
  endif()
  target_link_options(weft_options INTERFACE -fsanitize=${WEFT_SANITIZE})
endif()

# For sources of tests, after weft_options. Tests are two thirds of all sources: -O1, and line
# tables instead of full debug information, take a third off their time. Stack traces keep their
# lines; to see variables of a test in a debugger, build with CMAKE_BUILD_TYPE=Debug.
# Precompiled headers of GoogleTest were tried: they save a tenth, and make ccache miss, because
# GCC writes other bytes each time.
add_library(weft_test_options INTERFACE)
target_compile_options(weft_test_options INTERFACE "$<$<NOT:$<CONFIG:Debug>>:-O1;-g1>")
if(CMAKE_SIZEOF_VOID_P EQUAL 4)
  # Tests mix sizes and 64-bit numbers, none of them large.
  target_compile_options(weft_test_options INTERFACE -Wno-conversion -Wno-narrowing)
endif()
