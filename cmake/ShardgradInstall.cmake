# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Installation: library, public headers, the exported targets shardgrad::shardgrad and shardgrad::mpi, config files.
include(CMakePackageConfigHelpers)

set(shardgrad_config_dir "${CMAKE_INSTALL_LIBDIR}/cmake/shardgrad")

install(
  TARGETS shardgrad shardgrad_mpi
  EXPORT shardgradTargets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR}
  FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT shardgradTargets NAMESPACE shardgrad:: DESTINATION ${shardgrad_config_dir})

configure_package_config_file(
  "${PROJECT_SOURCE_DIR}/cmake/shardgradConfig.cmake.in" "${PROJECT_BINARY_DIR}/shardgradConfig.cmake"
  INSTALL_DESTINATION ${shardgrad_config_dir} NO_SET_AND_CHECK_MACRO)
# Before 1.0 a minor version may break the interface (SemVer).
write_basic_package_version_file("${PROJECT_BINARY_DIR}/shardgradConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/shardgradConfig.cmake" "${PROJECT_BINARY_DIR}/shardgradConfigVersion.cmake"
        DESTINATION ${shardgrad_config_dir})
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION ${CMAKE_INSTALL_DOCDIR})
