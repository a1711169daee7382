# weft_exports(TARGET FILE): exports from a shared library exactly the symbols that FILE lists, one
# `NAME VERSION [ANSWER]` per line. Writes the version script, and the functions that only return an
# error or a constant.

# The versions that PRIVATE means; see src/dropin/export.h.
set(WEFT_PRIVATE_VERSIONS IBVERBS_PRIVATE_34 IBVERBS_PRIVATE_57 IBVERBS_PRIVATE_59
                          IBVERBS_PRIVATE_64 IBVERBS_PRIVATE_65)

function(weft_exports target file)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  file(STRINGS ${file} lines REGEX "^[^# ]")
  set(versions "")
  set(answers "#include \"dropin/answers.h\"\n\n")
  foreach(line IN LISTS lines)
    string(REPLACE " " ";" words ${line})
    list(GET words 0 name)
    list(GET words 1 version)
    set(prefix "WEFT")
    if(version STREQUAL "PRIVATE")
      set(prefix "WEFT_PRIVATE")  # these name their versions in the source
      list(APPEND versions ${WEFT_PRIVATE_VERSIONS})
    else()
      list(APPEND versions ${version})
      string(APPEND names_of_${version} "    ${name};\n")
    endif()
    list(LENGTH words count)
    if(count GREATER 2)
      list(GET words 2 answer)
      string(APPEND answers "${prefix}_ANSWER_${answer}(${name})\n")
    endif()
  endforeach()

  set(script "")
  list(REMOVE_DUPLICATES versions)
  foreach(version IN LISTS versions)
    string(APPEND script "${version} {\n")
    if(names_of_${version})
      string(APPEND script "  global:\n${names_of_${version}}")
    endif()
    string(APPEND script "};\n")
  endforeach()
  # Everything else stays inside.
  string(APPEND script "WEFT_LOCAL { local: *; };\n")

  set(map ${CMAKE_CURRENT_BINARY_DIR}/${target}.map)
  set(source ${CMAKE_CURRENT_BINARY_DIR}/${target}_answers.cc)
  file(CONFIGURE OUTPUT ${map} CONTENT "${script}" @ONLY)
  file(CONFIGURE OUTPUT ${source} CONTENT "${answers}" @ONLY)
  target_sources(${target} PRIVATE ${source})
  target_link_options(${target} PRIVATE LINKER:--version-script=${map})
  set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS ${map})
endfunction()
