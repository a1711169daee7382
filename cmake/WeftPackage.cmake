# `cpack` makes the Debian packages of everything that is installed; `./dev package` calls it. Each
# component of install() is a package.

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME weft)
set(CPACK_PACKAGE_VENDOR Weft)
# The maintainer of the packages: DEBFULLNAME and DEBEMAIL, which Debian's own tools use as well. A
# package that is built without them is marked as a local build.
set(weft_maintainer "A local build of Weft <nobody@weft.invalid>")
if(DEFINED ENV{DEBEMAIL})
  set(weft_maintainer "$ENV{DEBFULLNAME} <$ENV{DEBEMAIL}>")
endif()
set(CPACK_PACKAGE_CONTACT "${weft_maintainer}")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
# The dependencies are the libraries that programs and libraries are linked to. Libraries of these
# packages depend on each other, too; they are in a folder of their own.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR}/lib/weft)

set(weft_soversion ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
set(weft_package_folder ${PROJECT_BINARY_DIR}/package-files)
string(TIMESTAMP weft_date "%a, %d %b %Y %H:%M:%S +0000" UTC)
file(CONFIGURE OUTPUT ${weft_package_folder}/changelog @ONLY CONTENT
"weft (@PROJECT_VERSION@) unstable; urgency=medium

  * The commits of the source have the changes.

 -- @weft_maintainer@  @weft_date@
")
execute_process(COMMAND gzip --best --no-name --force ${weft_package_folder}/changelog)

# Describes the package of a component: weft_package(COMPONENT NAME SECTION DESCRIPTION
# [SETTING VALUE]...), where the settings are variables of CPack without their prefix. Each package
# has a licence and a changelog of its own.
function(weft_package component name section description)
  string(TOUPPER ${component} variable)
  list(APPEND CPACK_COMPONENTS_ALL ${component})
  set(CPACK_COMPONENTS_ALL ${CPACK_COMPONENTS_ALL} PARENT_SCOPE)
  set(settings PACKAGE_NAME ${name} PACKAGE_SECTION ${section} ${ARGN})
  while(settings)
    list(POP_FRONT settings setting value)
    set(CPACK_DEBIAN_${variable}_${setting} "${value}" PARENT_SCOPE)
  endwhile()
  set(CPACK_COMPONENT_${variable}_DESCRIPTION "${description}" PARENT_SCOPE)
  set(CPACK_DEBIAN_${variable}_DESCRIPTION "${description}" PARENT_SCOPE)
  set(folder ${CMAKE_INSTALL_DATAROOTDIR}/doc/${name})
  install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${folder} RENAME copyright
    COMPONENT ${component})
  install(FILES ${weft_package_folder}/changelog.gz DESTINATION ${folder} COMPONENT ${component})
endfunction()

# Describes the package of a shared library: weft_library_package(TARGET LIBRARY DESCRIPTION). What
# is linked to the library depends on the package.
function(weft_library_package target library description)
  set(folder ${weft_package_folder}/${library})
  file(WRITE ${folder}/shlibs
    "${library} ${weft_soversion} ${library}${weft_soversion} (>= ${weft_soversion})\n")
  file(WRITE ${folder}/triggers "activate-noawait ldconfig\n")
  # CPack adds scripts that call ldconfig, beside the trigger that Debian wants.
  file(WRITE ${folder}/overrides "${library}${weft_soversion}: maintscript-calls-ldconfig\n")
  install(FILES ${folder}/overrides RENAME ${library}${weft_soversion}
    DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/lintian/overrides COMPONENT ${target})
  weft_package(${target} ${library}${weft_soversion} libs "${description}"
    PACKAGE_SHLIBDEPS ON)
  string(TOUPPER ${target} variable)
  set(CPACK_DEBIAN_${variable}_PACKAGE_CONTROL_EXTRA ${folder}/shlibs ${folder}/triggers
    PARENT_SCOPE)
  foreach(name DESCRIPTION PACKAGE_NAME PACKAGE_SECTION PACKAGE_SHLIBDEPS)
    set(CPACK_DEBIAN_${variable}_${name} "${CPACK_DEBIAN_${variable}_${name}}" PARENT_SCOPE)
  endforeach()
  set(CPACK_COMPONENTS_ALL ${CPACK_COMPONENTS_ALL} PARENT_SCOPE)
endfunction()

set(same "(= ${PROJECT_VERSION})")
set(libraries_of_dev "libweft${weft_soversion} ${same}")
weft_library_package(weft_shared libweft
"RDMA in user space: the library
Verbs objects, connections, messages and byte streams for C++ and C, on an
RDMA adapter in user space, which speaks iWARP over ordinary TCP sockets, or
on the adapters of rdma-core.")
if(WEFT_CAPTURE)
  string(APPEND libraries_of_dev ", libweft-capture${weft_soversion} ${same}")
  weft_library_package(weft_capture_shared libweft-capture
"RDMA in user space: the library that reads captures
Reads the RDMA traffic of captures, iWARP, RoCE and InfiniBand, and makes
operations, RPCs and findings of the packets.")
endif()
weft_package(development libweft-dev libdevel
"RDMA in user space: headers
The headers of the C++ libraries and of the C interface, with the files for
CMake and pkg-config."
  PACKAGE_DEPENDS "${libraries_of_dev}, libibverbs-dev, librdmacm-dev"
  PACKAGE_SUGGESTS weft-doc)
if(WEFT_CLI)
  weft_package(program weft net
"RDMA for unmodified programs, and an analyzer
Runs programs for libibverbs and librdmacm on an RDMA adapter in user space,
without hardware, privileges or a kernel module: weft run -- PROGRAM.
.
Explains the RDMA traffic of captures: weft dissect FILE."
    PACKAGE_SHLIBDEPS ON
    PACKAGE_SUGGESTS "ibverbs-utils, perftest, rdmacm-utils, tshark")
endif()
weft_package(python python3-weft python
"RDMA in user space: Python modules
Connections, messages and byte streams, also for asyncio, with buffers of
numpy and of all others that have the buffer protocol; and the records of
captures, for pandas."
  PACKAGE_ARCHITECTURE all
  PACKAGE_DEPENDS "python3, libweft${weft_soversion} (>= ${PROJECT_VERSION})"
  PACKAGE_RECOMMENDS weft
  PACKAGE_SUGGESTS "python3-numpy, python3-pandas")
weft_package(documentation weft-doc doc
"RDMA in user space: documentation and examples
The manual of the program and the libraries, and the examples of the C++
libraries and of the Python modules."
  PACKAGE_ARCHITECTURE all)

install(DIRECTORY ${PROJECT_SOURCE_DIR}/python/weft
  DESTINATION lib/python3/dist-packages
  COMPONENT python FILES_MATCHING PATTERN "*.py" PATTERN py.typed
  PATTERN __pycache__ EXCLUDE)
set(folder ${CMAKE_INSTALL_DATAROOTDIR}/doc/weft-doc)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs/ DESTINATION ${folder}
  COMPONENT documentation FILES_MATCHING PATTERN "*.md" PATTERN reference EXCLUDE
  PATTERN man EXCLUDE)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/examples DESTINATION ${folder}
  COMPONENT documentation FILES_MATCHING PATTERN "*.cc")
install(DIRECTORY ${PROJECT_SOURCE_DIR}/python/examples/ DESTINATION ${folder}/examples/python
  COMPONENT documentation FILES_MATCHING PATTERN "*.py")
include(CPack)
