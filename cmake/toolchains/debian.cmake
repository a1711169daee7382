# What Debian's cross compilers have in common. The file that includes this one has set the names of
# the target. Headers and libraries come from build/sysroot/ARCHITECTURE, which `./dev cross` fills
# with Debian's packages; programs of the target run under qemu-user.

set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_CXX_COMPILER ${weft_triplet}-g++)
set(CMAKE_LIBRARY_ARCHITECTURE ${weft_multiarch})
set(CMAKE_SYSROOT ${CMAKE_CURRENT_LIST_DIR}/../../build/sysroot/${weft_debian_architecture})
cmake_path(NORMAL_PATH CMAKE_SYSROOT)
set(CMAKE_CROSSCOMPILING_EMULATOR ${weft_emulator} -L ${CMAKE_SYSROOT})

set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${CMAKE_SYSROOT})
set(ENV{PKG_CONFIG_LIBDIR}
  ${CMAKE_SYSROOT}/usr/lib/${weft_multiarch}/pkgconfig:${CMAKE_SYSROOT}/usr/share/pkgconfig)
