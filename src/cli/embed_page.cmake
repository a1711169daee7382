# Writes OUTPUT, the source of the constants in trace_page.h, from PAGE.

file(READ ${PAGE} page)
set(mark "DATA_HERE")
string(FIND "${page}" "${mark}" at)
if(at EQUAL -1)
  message(FATAL_ERROR "${PAGE} has no place for the data")
endif()
string(LENGTH "${mark}" length)
math(EXPR rest "${at} + ${length}")
string(SUBSTRING "${page}" 0 ${at} before)
string(SUBSTRING "${page}" ${rest} -1 behind)
file(WRITE ${OUTPUT} "#include \"cli/trace_page.h\"

namespace weft::cli {

const std::string_view page_before_trace = R\"WEFT(${before})WEFT\";
const std::string_view page_behind_trace = R\"WEFT(${behind})WEFT\";

}  // namespace weft::cli
")
