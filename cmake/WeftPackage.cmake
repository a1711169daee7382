# `cpack` makes a Debian package of everything that is installed; `./dev package` calls it.

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME weft)
set(CPACK_PACKAGE_VENDOR Weft)
# Who answers for the package: whoever gives it away, as Debian's own tools ask for it. A package
# that somebody has built for himself has nobody, and says so.
set(weft_maintainer "A local build of Weft <nobody@weft.invalid>")
if(DEFINED ENV{DEBEMAIL})
  set(weft_maintainer "$ENV{DEBFULLNAME} <$ENV{DEBEMAIL}>")
endif()
set(CPACK_PACKAGE_CONTACT "${weft_maintainer}")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)

set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION net)
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION
"An RDMA adapter in user space, which speaks iWARP over ordinary TCP sockets.
Unmodified programs for libibverbs and librdmacm run on it without hardware,
privileges or a kernel module: weft run -- PROGRAM.
.
Also a C++ library with verbs objects, connections, messages and streams, and
an analyzer for captures of RDMA traffic.")
# What the programs and libraries are linked to. Those of this package need each other.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR}/lib/weft)
# And what others that are linked to its libraries will need. Not CPack's own list, which would name
# libibverbs.so.1 and librdmacm.so.1: those of this package are in a folder of theirs.
set(weft_soversion ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/shlibs @ONLY CONTENT
"libweft @weft_soversion@ weft (>= @weft_soversion@)
libweft-capture @weft_soversion@ weft (>= @weft_soversion@)
")
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${PROJECT_BINARY_DIR}/shlibs)
# Only those who compile against the C++ library need the headers; libraries are found at run time.
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "libibverbs-dev, librdmacm-dev")
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "ibverbs-utils, perftest, rdmacm-utils, tshark")

install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME copyright)
include(CPack)
