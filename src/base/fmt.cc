// The compiled part of fmt, built once and linked into everything of Weft.
//
// Weft does not link the system's libfmt.so: the drop-in libraries are loaded into arbitrary
// programs and must bring along what they need. The header-only mode of fmt would do that as well,
// but compiles this code again in each source file that formats something, three to four seconds
// each. Its symbols are hidden in the libraries, so that a program may use another version of fmt.
//
// The instantiations are those of format.cc in the sources of fmt 9, which packages do not ship.

#include <fmt/format-inl.h>

FMT_BEGIN_NAMESPACE
namespace detail {

template auto dragonbox::to_decimal(float x) noexcept -> dragonbox::decimal_fp<float>;
template auto dragonbox::to_decimal(double x) noexcept -> dragonbox::decimal_fp<double>;
template locale_ref::locale_ref(const std::locale& loc);
template auto locale_ref::get<std::locale>() const -> std::locale;
template auto thousands_sep_impl(locale_ref) -> thousands_sep_result<char>;
template auto decimal_point_impl(locale_ref) -> char;
template void buffer<char>::append(const char*, const char*);
template void vformat_to(buffer<char>&, string_view, basic_format_args<FMT_BUFFER_CONTEXT(char)>,
                         locale_ref);

}  // namespace detail
FMT_END_NAMESPACE
