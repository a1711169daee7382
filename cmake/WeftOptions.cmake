# Compiler settings shared by every target.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
# The layers end up in shared objects that stand in for system libraries: only what is exported on
# purpose may be visible there.
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)

option(WEFT_BENCH "Build the benchmarks" ON)
option(WEFT_FUZZ "Build the libFuzzer targets (needs clang)" OFF)
option(WEFT_WERROR "Treat warnings as errors" ON)
set(WEFT_SANITIZE "" CACHE STRING "Sanitizers to build with, as for -fsanitize=")

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
# Behind weft_options: tests mix sizes and 64-bit numbers, none of them large.
add_library(weft_test_options INTERFACE)
if(CMAKE_SIZEOF_VOID_P EQUAL 4)
  target_compile_options(weft_test_options INTERFACE -Wno-conversion -Wno-narrowing)
endif()
if(WEFT_SANITIZE)
  target_compile_options(weft_options INTERFACE -fsanitize=${WEFT_SANITIZE} -fno-omit-frame-pointer
                                                -fno-sanitize-recover=all)
  target_link_options(weft_options INTERFACE -fsanitize=${WEFT_SANITIZE})
endif()
