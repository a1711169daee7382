// How a function of this library gets into its dynamic symbol table; its version is in the list of
// exports, lib*.symbols.
#pragma once

#define WEFT_EXPORT extern "C" __attribute__((visibility("default")))

// For symbols of libibverbs' private version, which have the same meaning under the numbers of
// later releases: drivers built for those load as well. What follows is called weft_NAME here; the
// linker does not take versions of a symbol that is there under its plain name, too.
#if __has_attribute(symver)
#define WEFT_PRIVATE_EXPORT(name)                                                           \
  WEFT_EXPORT                                                                               \
  __attribute__((symver(#name "@@IBVERBS_PRIVATE_34"), symver(#name "@IBVERBS_PRIVATE_57"), \
                 symver(#name "@IBVERBS_PRIVATE_59"), symver(#name "@IBVERBS_PRIVATE_64")))
#else
#define WEFT_PRIVATE_EXPORT(name)                                    \
  __asm__(".symver weft_" #name ", " #name                           \
          "@@IBVERBS_PRIVATE_34\n"                                   \
          ".symver weft_" #name ", " #name                           \
          "@IBVERBS_PRIVATE_57\n"                                    \
          ".symver weft_" #name ", " #name                           \
          "@IBVERBS_PRIVATE_59\n"                                    \
          ".symver weft_" #name ", " #name "@IBVERBS_PRIVATE_64\n"); \
  WEFT_EXPORT
#endif
