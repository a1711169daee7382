# Where things are installed. Writes CMAKE_INSTALL_* to the cache, as GNUInstallDirs does; hence it
# is included only where Weft installs something.

# Debian's layout for every prefix. GNUInstallDirs chooses it by itself under /usr only.
if(PROJECT_IS_TOP_LEVEL AND EXISTS /etc/debian_version AND CMAKE_LIBRARY_ARCHITECTURE)
  set(CMAKE_INSTALL_LIBDIR lib/${CMAKE_LIBRARY_ARCHITECTURE} CACHE PATH "Folder of libraries")
endif()
include(GNUInstallDirs)
