// Exports a function from the drop-in libraries. Its symbol version is in the list of exports,
// lib*.symbols.
#pragma once

#define WEFT_EXPORT extern "C" __attribute__((visibility("default")))

// Exports a symbol of libibverbs' private version also under the numbers of later releases, with
// the same meaning, so that drivers built for those load as well. The function that follows must be
// called weft_NAME: the linker rejects versions of a symbol that also exists under its plain name.
#if __has_attribute(symver)
#define WEFT_PRIVATE_EXPORT(name)                                                           \
  WEFT_EXPORT                                                                               \
  __attribute__((symver(#name "@@IBVERBS_PRIVATE_34"), symver(#name "@IBVERBS_PRIVATE_57"), \
                 symver(#name "@IBVERBS_PRIVATE_59"), symver(#name "@IBVERBS_PRIVATE_64"),  \
                 symver(#name "@IBVERBS_PRIVATE_65")))
#else
#define WEFT_PRIVATE_EXPORT(name)                                    \
  __asm__(".symver weft_" #name ", " #name                           \
          "@@IBVERBS_PRIVATE_34\n"                                   \
          ".symver weft_" #name ", " #name                           \
          "@IBVERBS_PRIVATE_57\n"                                    \
          ".symver weft_" #name ", " #name                           \
          "@IBVERBS_PRIVATE_59\n"                                    \
          ".symver weft_" #name ", " #name                           \
          "@IBVERBS_PRIVATE_64\n"                                    \
          ".symver weft_" #name ", " #name "@IBVERBS_PRIVATE_65\n"); \
  WEFT_EXPORT
#endif
