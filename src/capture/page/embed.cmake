# Writes OUTPUT, the source of the constants in page.h. Run with -D DIRECTORY, SCRIPTS (separated by
# commas) and OUTPUT.

file(READ ${DIRECTORY}/page.html page)
file(READ ${DIRECTORY}/page.css style)
set(script "")
string(REPLACE "," ";" names "${SCRIPTS}")
foreach(name IN LISTS names)
  file(READ ${DIRECTORY}/${name} text)
  string(APPEND script "${text}")
endforeach()
string(REPLACE "/* STYLE */" "${style}" page "${page}")
string(REPLACE "/* SCRIPT */" "${script}" page "${page}")

set(mark "DATA_HERE")
string(FIND "${page}" "${mark}" at)
if(at EQUAL -1)
  message(FATAL_ERROR "page.html has no place for the data")
endif()
string(LENGTH "${mark}" length)
math(EXPR rest "${at} + ${length}")
string(SUBSTRING "${page}" 0 ${at} before)
string(SUBSTRING "${page}" ${rest} -1 behind)
file(WRITE ${OUTPUT} "#include \"capture/page/page.h\"

namespace weft::capture::page {

const std::string_view before_data = R\"WEFT(${before})WEFT\";
const std::string_view after_data = R\"WEFT(${behind})WEFT\";

}  // namespace weft::capture::page
")
