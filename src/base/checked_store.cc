#include "base/checked_store.h"

#include "base/guarded_code.h"

#if defined(WEFT_CHECKED_STORE)
#include <sys/rseq.h>
#endif

namespace weft {

#if defined(WEFT_CHECKED_STORE)

static_assert(sizeof(StoreCheck) == 40 && offsetof(StoreCheck, stag) == 8 &&
              offsetof(StoreCheck, stag_value) == 16 && offsetof(StoreCheck, generation) == 24 &&
              offsetof(StoreCheck, generation_value) == 32 && offsetof(struct rseq, rseq_cs) == 8);

extern "C" {
int weft_checked_store(struct rseq* area, const StoreCheck* check, void* to, const void* from,
                       std::size_t bytes);
// The same with registers of 32 bytes, for processors with AVX.
int weft_checked_store_wide(struct rseq* area, const StoreCheck* check, void* to, const void* from,
                            std::size_t bytes);
int weft_checked_fetch_add(struct rseq* area, const StoreCheck* check, void* at,
                           std::uint64_t* operand_then_original);
int weft_checked_compare_swap(struct rseq* area, const StoreCheck* check, void* at,
                              std::uint64_t* expected_then_original, std::uint64_t desired);
}

// Each sequence begins behind the store that names it to the kernel, and ends with its last store
// or with the atomic instruction, so an atomic that was executed is never repeated. The kernel
// demands the four bytes before the place where an interrupted thread continues. A signal
// interrupts as well, also that of a fault: its handler finds the thread there, and lets it go on
// at the place for faults.
asm(R"(
    .macro WEFT_BEGIN name, interrupted
    .pushsection .data.rel.ro.weft_checked, "aw"
    .p2align 5
.Lweft_\name\()_sequence:
    .long   0, 0
    .quad   .Lweft_\name\()_first, .Lweft_\name\()_end - .Lweft_\name\()_first
    .quad   \interrupted
    .popsection
    .p2align 4
    .globl  weft_checked_\name
    .hidden weft_checked_\name
    .type   weft_checked_\name, @function
weft_checked_\name:
    .cfi_startproc
    leaq    .Lweft_\name\()_sequence(%rip), %rax
    movq    %rax, 8(%rdi)
.Lweft_\name\()_first:
    movq    (%rsi), %rax
    cmpl    $0, (%rax)
    je      .Lweft_checked_withdrawn
    movq    8(%rsi), %rax
    movl    16(%rsi), %r9d
    cmpl    %r9d, (%rax)
    jne     .Lweft_checked_withdrawn
    movq    24(%rsi), %rax
    movq    32(%rsi), %r9
    cmpq    %r9, (%rax)
    jne     .Lweft_checked_withdrawn
    .endm

    .macro WEFT_END name
    .cfi_endproc
    .size   weft_checked_\name, . - weft_checked_\name
    .endm

    # Bytes up to a multiple of 8, words up to one of 32, the body, then words and bytes.
    .macro WEFT_STORE_HEAD name
    testq   %r8, %r8
    jz      .Lweft_\name\()_end
.Lweft_\name\()_head:
    testb   $7, %dl
    jz      .Lweft_\name\()_aligned
    movzbl  (%rcx), %eax
    movb    %al, (%rdx)
    incq    %rcx
    incq    %rdx
    decq    %r8
    jnz     .Lweft_\name\()_head
    jmp     .Lweft_\name\()_end
.Lweft_\name\()_aligned:
    cmpq    $64, %r8
    jb      .Lweft_\name\()_words
.Lweft_\name\()_align:
    testb   $31, %dl
    jz      .Lweft_\name\()_body
    movq    (%rcx), %rax
    movq    %rax, (%rdx)
    addq    $8, %rcx
    addq    $8, %rdx
    subq    $8, %r8
    jmp     .Lweft_\name\()_align
.Lweft_\name\()_body:
    .endm

    .macro WEFT_STORE_TAIL name
.Lweft_\name\()_words:
    subq    $8, %r8
    jb      .Lweft_\name\()_tail
    movq    (%rcx), %rax
    movq    %rax, (%rdx)
    addq    $8, %rcx
    addq    $8, %rdx
    jmp     .Lweft_\name\()_words
.Lweft_\name\()_tail:
    addq    $8, %r8
    jz      .Lweft_\name\()_end
.Lweft_\name\()_byte:
    movzbl  (%rcx), %eax
    movb    %al, (%rdx)
    incq    %rcx
    incq    %rdx
    decq    %r8
    jnz     .Lweft_\name\()_byte
.Lweft_\name\()_end:
    movq    $0, 8(%rdi)
    xorl    %eax, %eax
    ret
    WEFT_END \name
    .endm

    .text
    WEFT_BEGIN store, weft_checked_interrupted
    WEFT_STORE_HEAD store
.Lweft_store_narrow:
    cmpq    $64, %r8
    jb      .Lweft_store_words
    movdqu  (%rcx), %xmm0
    movdqu  16(%rcx), %xmm1
    movdqu  32(%rcx), %xmm2
    movdqu  48(%rcx), %xmm3
    movdqa  %xmm0, (%rdx)
    movdqa  %xmm1, 16(%rdx)
    movdqa  %xmm2, 32(%rdx)
    movdqa  %xmm3, 48(%rdx)
    addq    $64, %rcx
    addq    $64, %rdx
    subq    $64, %r8
    jmp     .Lweft_store_narrow
    WEFT_STORE_TAIL store

    WEFT_BEGIN store_wide, weft_checked_interrupted_wide
    WEFT_STORE_HEAD store_wide
    subq    $128, %r8
    jb      .Lweft_store_wide_rest
    .p2align 4
.Lweft_store_wide_loop:
    vmovdqu (%rcx), %ymm0
    vmovdqu 32(%rcx), %ymm1
    vmovdqu 64(%rcx), %ymm2
    vmovdqu 96(%rcx), %ymm3
    vmovdqa %ymm0, (%rdx)
    vmovdqa %ymm1, 32(%rdx)
    vmovdqa %ymm2, 64(%rdx)
    vmovdqa %ymm3, 96(%rdx)
    subq    $-128, %rcx
    subq    $-128, %rdx
    subq    $128, %r8
    jae     .Lweft_store_wide_loop
.Lweft_store_wide_rest:
    addq    $128, %r8
.Lweft_store_wide_step:
    cmpq    $32, %r8
    jb      .Lweft_store_wide_narrow
    vmovdqu (%rcx), %ymm0
    vmovdqa %ymm0, (%rdx)
    addq    $32, %rcx
    addq    $32, %rdx
    subq    $32, %r8
    jmp     .Lweft_store_wide_step
.Lweft_store_wide_narrow:
    vzeroupper
    WEFT_STORE_TAIL store_wide

    WEFT_BEGIN fetch_add, weft_checked_interrupted
    movq    (%rcx), %rax
    lock xaddq %rax, (%rdx)
.Lweft_fetch_add_end:
    movq    $0, 8(%rdi)
    movq    %rax, (%rcx)
    xorl    %eax, %eax
    ret
    WEFT_END fetch_add

    WEFT_BEGIN compare_swap, weft_checked_interrupted
    movq    (%rcx), %rax
    lock cmpxchgq %r8, (%rdx)
.Lweft_compare_swap_end:
    movq    $0, 8(%rdi)
    movq    %rax, (%rcx)
    xorl    %eax, %eax
    ret
    WEFT_END compare_swap

.Lweft_checked_withdrawn:
    movq    $0, 8(%rdi)
    movl    $1, %eax
    ret
    .byte   0x0f, 0xb9, 0x3d
    .long   0x53053053
    .globl  weft_checked_interrupted_wide
    .hidden weft_checked_interrupted_wide
weft_checked_interrupted_wide:
    vzeroupper
    movq    $0, 8(%rdi)
    movl    $2, %eax
    ret
    .byte   0x0f, 0xb9, 0x3d
    .long   0x53053053
    .globl  weft_checked_interrupted
    .hidden weft_checked_interrupted
weft_checked_interrupted:
    movq    $0, 8(%rdi)
    movl    $2, %eax
    ret
    .globl  weft_checked_fault_wide
    .hidden weft_checked_fault_wide
weft_checked_fault_wide:
    vzeroupper
    .globl  weft_checked_fault
    .hidden weft_checked_fault
weft_checked_fault:
    movq    $0, 8(%rdi)
    movl    $3, %eax
    ret
)");

namespace {

const bool avx = __builtin_cpu_supports("avx") != 0;

struct rseq* area_of_thread() {
  return reinterpret_cast<struct rseq*>(static_cast<char*>(__builtin_thread_pointer()) +
                                        __rseq_offset);
}

}  // namespace

// The kernel stores the processor's number there, which is negative where nothing is registered.
bool can_store_checked() {
  if (__rseq_size == 0) return false;
  return static_cast<int>(const_cast<volatile std::uint32_t&>(area_of_thread()->cpu_id)) >= 0;
}

bool has_wide_registers() {
  return avx;
}

Stored checked_store(const StoreCheck& check, void* to, const void* from, std::size_t bytes,
                     bool wide) {
  const auto store = wide ? weft_checked_store_wide : weft_checked_store;
  return static_cast<Stored>(store(area_of_thread(), &check, to, from, bytes));
}

Stored checked_fetch_add(const StoreCheck& check, void* at, std::uint64_t& operand_then_original) {
  return static_cast<Stored>(
      weft_checked_fetch_add(area_of_thread(), &check, at, &operand_then_original));
}

Stored checked_compare_swap(const StoreCheck& check, void* at,
                            std::uint64_t& expected_then_original, std::uint64_t desired) {
  return static_cast<Stored>(
      weft_checked_compare_swap(area_of_thread(), &check, at, &expected_then_original, desired));
}

#else

bool can_store_checked() {
  return false;
}

bool has_wide_registers() {
  return false;
}

Stored checked_store(const StoreCheck& /*check*/, void* /*to*/, const void* /*from*/,
                     std::size_t /*bytes*/, bool /*wide*/) {
  return Stored::withdrawn;
}

Stored checked_fetch_add(const StoreCheck& /*check*/, void* /*at*/,
                         std::uint64_t& /*operand_then_original*/) {
  return Stored::withdrawn;
}

Stored checked_compare_swap(const StoreCheck& /*check*/, void* /*at*/,
                            std::uint64_t& /*expected_then_original*/, std::uint64_t /*desired*/) {
  return Stored::withdrawn;
}

#endif

}  // namespace weft
