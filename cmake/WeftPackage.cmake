# `cpack` makes a Debian package of everything that is installed; `./dev package` calls it.

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME weft)
set(CPACK_PACKAGE_VENDOR Weft)
# The maintainer of the package: DEBFULLNAME and DEBEMAIL, which Debian's own tools use as well. A
# package that is built without them is marked as a local build.
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
# The dependencies are the libraries that programs and libraries are linked to. Libraries of this
# package depend on each other, too; they are in a folder of their own.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR}/lib/weft)
# Packages that are linked to these libraries depend on this one. CPack's own list would also name
# libibverbs.so.1 and librdmacm.so.1, which are in a folder of their own and not for linking.
set(weft_soversion ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/shlibs @ONLY CONTENT
"libweft @weft_soversion@ weft (>= @weft_soversion@)
libweft-capture @weft_soversion@ weft (>= @weft_soversion@)
")
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${PROJECT_BINARY_DIR}/shlibs)
# Only programs that are compiled against the C++ library need the headers; the libraries are found
# at run time.
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "libibverbs-dev, librdmacm-dev")
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "ibverbs-utils, perftest, rdmacm-utils, tshark")

install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME copyright)
include(CPack)
