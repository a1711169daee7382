// The code of the guarded accesses, in assembly: the fault handler has to know exactly which
// instructions may fault, and that nothing is on the stack there.
//
// Copies are as memcpy(3) makes them. Up to 128 bytes are loaded before they are stored. Beyond,
// the first and the last piece are not aligned and overlap with the aligned stores between them.
#include "base/guarded_code.h"

#if defined(__x86_64__) && defined(__LP64__)

// 1 where the processor has AVX, whose registers hold 32 bytes.
extern "C" {
// Hidden, so that the assembly reaches it without the global offset table. It is 0 before its
// initialization: copies then use the registers of 16 bytes, which each x86-64 processor has.
__attribute__((visibility("hidden"))) extern int weft_guarded_wide;
int weft_guarded_wide = __builtin_cpu_supports("avx") ? 1 : 0;
}

// The System V calling convention: the arguments are in rdi, rsi and rdx, the result is in eax.
// Only registers that the caller saves are used, so that weft_guarded_fault need not restore any.
// It clears the upper halves of the vector registers, because the copy may have been in the wide
// loop. cmpxchg stores in each case, also the old value, and so notices memory that cannot be
// written to.
asm(R"(
    .text
    .p2align 6
    .globl  weft_guarded_begin
    .hidden weft_guarded_begin
weft_guarded_begin:

    .globl  weft_guarded_copy
    .hidden weft_guarded_copy
    .type   weft_guarded_copy, @function
weft_guarded_copy:
    .cfi_startproc
    movl    $1, %eax
    cmpq    $16, %rdx
    jb      .Lweft_under_16
    cmpq    $32, %rdx
    ja      .Lweft_over_32
    movdqu  (%rsi), %xmm0
    movdqu  -16(%rsi,%rdx), %xmm1
    movdqu  %xmm0, (%rdi)
    movdqu  %xmm1, -16(%rdi,%rdx)
    ret
.Lweft_under_16:
    cmpl    $8, %edx
    jb      .Lweft_under_8
    movq    (%rsi), %rcx
    movq    -8(%rsi,%rdx), %r8
    movq    %rcx, (%rdi)
    movq    %r8, -8(%rdi,%rdx)
    ret
.Lweft_under_8:
    cmpl    $4, %edx
    jb      .Lweft_under_4
    movl    (%rsi), %ecx
    movl    -4(%rsi,%rdx), %r8d
    movl    %ecx, (%rdi)
    movl    %r8d, -4(%rdi,%rdx)
    ret
.Lweft_under_4:
    cmpl    $1, %edx
    jb      .Lweft_done
    movzbl  (%rsi), %ecx
    je      .Lweft_one
    movzwl  -2(%rsi,%rdx), %r8d
    movb    %cl, (%rdi)
    movw    %r8w, -2(%rdi,%rdx)
    ret
.Lweft_one:
    movb    %cl, (%rdi)
.Lweft_done:
    ret
.Lweft_over_32:
    cmpq    $64, %rdx
    ja      .Lweft_over_64
    movdqu  (%rsi), %xmm0
    movdqu  16(%rsi), %xmm1
    movdqu  -32(%rsi,%rdx), %xmm2
    movdqu  -16(%rsi,%rdx), %xmm3
    movdqu  %xmm0, (%rdi)
    movdqu  %xmm1, 16(%rdi)
    movdqu  %xmm2, -32(%rdi,%rdx)
    movdqu  %xmm3, -16(%rdi,%rdx)
    ret
.Lweft_over_64:
    cmpq    $128, %rdx
    ja      .Lweft_over_128
    movdqu  (%rsi), %xmm0
    movdqu  16(%rsi), %xmm1
    movdqu  32(%rsi), %xmm2
    movdqu  48(%rsi), %xmm3
    movdqu  -64(%rsi,%rdx), %xmm4
    movdqu  -48(%rsi,%rdx), %xmm5
    movdqu  -32(%rsi,%rdx), %xmm6
    movdqu  -16(%rsi,%rdx), %xmm7
    movdqu  %xmm0, (%rdi)
    movdqu  %xmm1, 16(%rdi)
    movdqu  %xmm2, 32(%rdi)
    movdqu  %xmm3, 48(%rdi)
    movdqu  %xmm4, -64(%rdi,%rdx)
    movdqu  %xmm5, -48(%rdi,%rdx)
    movdqu  %xmm6, -32(%rdi,%rdx)
    movdqu  %xmm7, -16(%rdi,%rdx)
    ret
.Lweft_over_128:
    # r8, r9: the ends. rsi, rdi: behind the first piece, so that rdi is aligned.
    leaq    (%rsi,%rdx), %r8
    leaq    (%rdi,%rdx), %r9
    cmpl    $0, weft_guarded_wide(%rip)
    je      .Lweft_narrow
    vmovdqu (%rsi), %ymm0
    vmovdqu %ymm0, (%rdi)
    movq    %rdi, %rcx
    andq    $31, %rcx
    subq    $32, %rcx
    subq    %rcx, %rsi
    subq    %rcx, %rdi
    leaq    -128(%r9), %rcx
    cmpq    %rcx, %rdi
    jae     .Lweft_wide_end
    .p2align 4
.Lweft_wide_loop:
    vmovdqu (%rsi), %ymm0
    vmovdqu 32(%rsi), %ymm1
    vmovdqu 64(%rsi), %ymm2
    vmovdqu 96(%rsi), %ymm3
    subq    $-128, %rsi
    vmovdqa %ymm0, (%rdi)
    vmovdqa %ymm1, 32(%rdi)
    vmovdqa %ymm2, 64(%rdi)
    vmovdqa %ymm3, 96(%rdi)
    subq    $-128, %rdi
    cmpq    %rcx, %rdi
    jb      .Lweft_wide_loop
.Lweft_wide_end:
    vmovdqu -128(%r8), %ymm0
    vmovdqu -96(%r8), %ymm1
    vmovdqu -64(%r8), %ymm2
    vmovdqu -32(%r8), %ymm3
    vmovdqu %ymm0, -128(%r9)
    vmovdqu %ymm1, -96(%r9)
    vmovdqu %ymm2, -64(%r9)
    vmovdqu %ymm3, -32(%r9)
    vzeroupper
    ret
.Lweft_narrow:
    movdqu  (%rsi), %xmm0
    movdqu  %xmm0, (%rdi)
    movq    %rdi, %rcx
    andq    $15, %rcx
    subq    $16, %rcx
    subq    %rcx, %rsi
    subq    %rcx, %rdi
    leaq    -64(%r9), %rcx
.Lweft_narrow_loop:
    movdqu  (%rsi), %xmm0
    movdqu  16(%rsi), %xmm1
    movdqu  32(%rsi), %xmm2
    movdqu  48(%rsi), %xmm3
    addq    $64, %rsi
    movdqa  %xmm0, (%rdi)
    movdqa  %xmm1, 16(%rdi)
    movdqa  %xmm2, 32(%rdi)
    movdqa  %xmm3, 48(%rdi)
    addq    $64, %rdi
    cmpq    %rcx, %rdi
    jb      .Lweft_narrow_loop
    movdqu  -64(%r8), %xmm0
    movdqu  -48(%r8), %xmm1
    movdqu  -32(%r8), %xmm2
    movdqu  -16(%r8), %xmm3
    movdqu  %xmm0, -64(%r9)
    movdqu  %xmm1, -48(%r9)
    movdqu  %xmm2, -32(%r9)
    movdqu  %xmm3, -16(%r9)
    ret
    .cfi_endproc
    .size   weft_guarded_copy, . - weft_guarded_copy

    # Copies blocks of 256 bytes, and folds each block into the one behind it: rcx is a Crc32cFold.
    # zmm0 to zmm3 are the block, multiplied in halves of 64 bits by the two factors in zmm4.
    .globl  weft_guarded_copy_fold_avx512
    .hidden weft_guarded_copy_fold_avx512
    .type   weft_guarded_copy_fold_avx512, @function
weft_guarded_copy_fold_avx512:
    .cfi_startproc
    movl    $1, %eax
    vbroadcasti32x4 256(%rcx), %zmm4
    vmovdqu64 (%rcx), %zmm5
    vmovdqu64 (%rsi), %zmm0
    vmovdqu64 64(%rsi), %zmm1
    vmovdqu64 128(%rsi), %zmm2
    vmovdqu64 192(%rsi), %zmm3
    vmovdqu64 %zmm0, (%rdi)
    vmovdqu64 %zmm1, 64(%rdi)
    vmovdqu64 %zmm2, 128(%rdi)
    vmovdqu64 %zmm3, 192(%rdi)
    vpxorq  %zmm5, %zmm0, %zmm0
    subq    $256, %rdx
    jz      .Lweft_folded
    .p2align 4
.Lweft_fold:
    addq    $256, %rsi
    addq    $256, %rdi
    vmovdqu64 (%rsi), %zmm5
    vmovdqu64 64(%rsi), %zmm6
    vmovdqu64 128(%rsi), %zmm7
    vmovdqu64 192(%rsi), %zmm8
    vmovdqu64 %zmm5, (%rdi)
    vmovdqu64 %zmm6, 64(%rdi)
    vmovdqu64 %zmm7, 128(%rdi)
    vmovdqu64 %zmm8, 192(%rdi)
    vpclmulqdq $0x00, %zmm4, %zmm0, %zmm9
    vpclmulqdq $0x11, %zmm4, %zmm0, %zmm0
    vpclmulqdq $0x00, %zmm4, %zmm1, %zmm10
    vpclmulqdq $0x11, %zmm4, %zmm1, %zmm1
    vpclmulqdq $0x00, %zmm4, %zmm2, %zmm11
    vpclmulqdq $0x11, %zmm4, %zmm2, %zmm2
    vpclmulqdq $0x00, %zmm4, %zmm3, %zmm12
    vpclmulqdq $0x11, %zmm4, %zmm3, %zmm3
    vpternlogq $0x96, %zmm5, %zmm9, %zmm0
    vpternlogq $0x96, %zmm6, %zmm10, %zmm1
    vpternlogq $0x96, %zmm7, %zmm11, %zmm2
    vpternlogq $0x96, %zmm8, %zmm12, %zmm3
    subq    $256, %rdx
    jnz     .Lweft_fold
.Lweft_folded:
    vmovdqu64 %zmm0, (%rcx)
    vmovdqu64 %zmm1, 64(%rcx)
    vmovdqu64 %zmm2, 128(%rcx)
    vmovdqu64 %zmm3, 192(%rcx)
    vzeroupper
    ret
    .cfi_endproc
    .size   weft_guarded_copy_fold_avx512, . - weft_guarded_copy_fold_avx512

    # Copies blocks of 2048 bytes, and adds as many bytes at rcx to a checksum: r8 is a Crc32cLanes,
    # which xmm7 keeps. ymm0 to ymm3 are its folded lane, r8 to r11 the others, and rax counts 32
    # bytes of each of those, 128 of the folded lane and 256 of the copy.
    .globl  weft_guarded_copy_lanes
    .hidden weft_guarded_copy_lanes
    .type   weft_guarded_copy_lanes, @function
weft_guarded_copy_lanes:
    .cfi_startproc
    vmovq   %r8, %xmm7
    vbroadcasti128 160(%r8), %ymm10
    vbroadcasti128 176(%r8), %ymm9
    vmovq   192(%r8), %xmm11
    .irp    i, 0, 1, 2, 3
    vmovdqu 32*\i(%r8), %ymm\i
    .endr
    movq    152(%r8), %r11
    movq    144(%r8), %r10
    movq    136(%r8), %r9
    movq    128(%r8), %r8
.Lweft_lanes_block:
    # Each lane goes on where the next block has its part.
    .irp    i, 8, 9, 10, 11
    vmovq   %r\i, %xmm4
    vpclmulqdq $0x00, %xmm11, %xmm4, %xmm4
    vmovq   %xmm4, %rax
    xorl    %r\i\()d, %r\i\()d
    crc32q  %rax, %r\i
    .endr
    vmovdqa %ymm9, %ymm8
    xorl    %eax, %eax
    .p2align 4
.Lweft_lanes:
    .irp    i, 0, 1, 2, 3
    vmovdqu 64*\i(%rsi,%rax,8), %ymm4
    vmovdqu 64*\i+32(%rsi,%rax,8), %ymm5
    vmovdqu %ymm4, 64*\i(%rdi,%rax,8)
    vmovdqu %ymm5, 64*\i+32(%rdi,%rax,8)
    vpclmulqdq $0x00, %ymm8, %ymm\i, %ymm6
    vpclmulqdq $0x11, %ymm8, %ymm\i, %ymm\i
    vpxor   32*\i(%rcx,%rax,4), %ymm6, %ymm6
    vpxor   %ymm6, %ymm\i, %ymm\i
    crc32q  1024+8*\i(%rcx,%rax), %r8
    crc32q  1280+8*\i(%rcx,%rax), %r9
    crc32q  1536+8*\i(%rcx,%rax), %r10
    crc32q  1792+8*\i(%rcx,%rax), %r11
    .endr
    vmovdqa %ymm10, %ymm8
    addl    $32, %eax
    cmpl    $256, %eax
    jb      .Lweft_lanes
    addq    $2048, %rsi
    addq    $2048, %rdi
    addq    $2048, %rcx
    subq    $2048, %rdx
    jnz     .Lweft_lanes_block
    vmovq   %xmm7, %rdx
    .irp    i, 0, 1, 2, 3
    vmovdqu %ymm\i, 32*\i(%rdx)
    .endr
    movq    %r8, 128(%rdx)
    movq    %r9, 136(%rdx)
    movq    %r10, 144(%rdx)
    movq    %r11, 152(%rdx)
    movl    $1, %eax
    vzeroupper
    ret
    .cfi_endproc
    .size   weft_guarded_copy_lanes, . - weft_guarded_copy_lanes

    .globl  weft_guarded_fetch_add
    .hidden weft_guarded_fetch_add
    .type   weft_guarded_fetch_add, @function
weft_guarded_fetch_add:
    .cfi_startproc
    movl    $1, %eax
    movq    (%rsi), %rcx
    lock xaddq %rcx, (%rdi)
    movq    %rcx, (%rsi)
    ret
    .cfi_endproc
    .size   weft_guarded_fetch_add, . - weft_guarded_fetch_add

    .globl  weft_guarded_exchange
    .hidden weft_guarded_exchange
    .type   weft_guarded_exchange, @function
weft_guarded_exchange:
    .cfi_startproc
    movl    $1, %eax
    movq    (%rsi), %rcx
    xchgq   %rcx, (%rdi)
    movq    %rcx, (%rsi)
    ret
    .cfi_endproc
    .size   weft_guarded_exchange, . - weft_guarded_exchange

    .globl  weft_guarded_compare_exchange
    .hidden weft_guarded_compare_exchange
    .type   weft_guarded_compare_exchange, @function
weft_guarded_compare_exchange:
    .cfi_startproc
    movq    (%rsi), %rax
    lock cmpxchgq %rdx, (%rdi)
    movq    %rax, (%rsi)
    movl    $1, %eax
    ret
    .cfi_endproc
    .size   weft_guarded_compare_exchange, . - weft_guarded_compare_exchange

    .globl  weft_guarded_fault
    .hidden weft_guarded_fault
    .type   weft_guarded_fault, @function
weft_guarded_fault:
    .cfi_startproc
    cmpl    $0, weft_guarded_wide(%rip)
    je      .Lweft_fault_narrow
    vzeroupper
.Lweft_fault_narrow:
    xorl    %eax, %eax
    ret
    .cfi_endproc
    .size   weft_guarded_fault, . - weft_guarded_fault
)");

#elif defined(__aarch64__)

// The arguments are in x0, x1 and x2, and x4 and x5 are the ends of the source and the destination.
// The atomic operations use pairs of exclusive accesses, which all processors of ARMv8 have, unlike
// the instructions of ARMv8.1. A comparison that fails stores the old value, as on x86-64.
asm(R"(
    .text
    .p2align 6
    .globl  weft_guarded_begin
    .hidden weft_guarded_begin
weft_guarded_begin:

    .globl  weft_guarded_copy
    .hidden weft_guarded_copy
    .type   weft_guarded_copy, %function
weft_guarded_copy:
    .cfi_startproc
    add     x4, x1, x2
    add     x5, x0, x2
    cmp     x2, #16
    b.lo    .Lweft_under_16
    cmp     x2, #32
    b.hi    .Lweft_over_32
    ldr     q0, [x1]
    ldr     q1, [x4, #-16]
    str     q0, [x0]
    str     q1, [x5, #-16]
    b       .Lweft_done
.Lweft_under_16:
    tbz     x2, #3, .Lweft_under_8
    ldr     x6, [x1]
    ldr     x7, [x4, #-8]
    str     x6, [x0]
    str     x7, [x5, #-8]
    b       .Lweft_done
.Lweft_under_8:
    tbz     x2, #2, .Lweft_under_4
    ldr     w6, [x1]
    ldr     w7, [x4, #-4]
    str     w6, [x0]
    str     w7, [x5, #-4]
    b       .Lweft_done
.Lweft_under_4:
    cbz     x2, .Lweft_done
    ldrb    w6, [x1]
    tbz     x2, #1, .Lweft_one
    ldrh    w7, [x4, #-2]
    strh    w7, [x5, #-2]
.Lweft_one:
    strb    w6, [x0]
    b       .Lweft_done
.Lweft_over_32:
    cmp     x2, #64
    b.hi    .Lweft_over_64
    ldp     q0, q1, [x1]
    ldp     q2, q3, [x4, #-32]
    stp     q0, q1, [x0]
    stp     q2, q3, [x5, #-32]
    b       .Lweft_done
.Lweft_over_64:
    ldp     q4, q5, [x4, #-64]
    ldp     q6, q7, [x4, #-32]
    sub     x6, x5, #64
.Lweft_loop:
    ldp     q0, q1, [x1]
    ldp     q2, q3, [x1, #32]
    add     x1, x1, #64
    stp     q0, q1, [x0]
    stp     q2, q3, [x0, #32]
    add     x0, x0, #64
    cmp     x0, x6
    b.lo    .Lweft_loop
    stp     q4, q5, [x5, #-64]
    stp     q6, q7, [x5, #-32]
.Lweft_done:
    mov     w0, #1
    ret
    .cfi_endproc
    .size   weft_guarded_copy, . - weft_guarded_copy

    .globl  weft_guarded_fetch_add
    .hidden weft_guarded_fetch_add
    .type   weft_guarded_fetch_add, %function
weft_guarded_fetch_add:
    .cfi_startproc
    ldr     x2, [x1]
1:  ldaxr   x3, [x0]
    add     x4, x3, x2
    stlxr   w5, x4, [x0]
    cbnz    w5, 1b
    dmb     ish
    str     x3, [x1]
    mov     w0, #1
    ret
    .cfi_endproc
    .size   weft_guarded_fetch_add, . - weft_guarded_fetch_add

    .globl  weft_guarded_exchange
    .hidden weft_guarded_exchange
    .type   weft_guarded_exchange, %function
weft_guarded_exchange:
    .cfi_startproc
    ldr     x2, [x1]
1:  ldaxr   x3, [x0]
    stlxr   w5, x2, [x0]
    cbnz    w5, 1b
    dmb     ish
    str     x3, [x1]
    mov     w0, #1
    ret
    .cfi_endproc
    .size   weft_guarded_exchange, . - weft_guarded_exchange

    .globl  weft_guarded_compare_exchange
    .hidden weft_guarded_compare_exchange
    .type   weft_guarded_compare_exchange, %function
weft_guarded_compare_exchange:
    .cfi_startproc
    ldr     x4, [x1]
1:  ldaxr   x3, [x0]
    cmp     x3, x4
    csel    x6, x2, x3, eq
    stlxr   w5, x6, [x0]
    cbnz    w5, 1b
    dmb     ish
    str     x3, [x1]
    mov     w0, #1
    ret
    .cfi_endproc
    .size   weft_guarded_compare_exchange, . - weft_guarded_compare_exchange

    .globl  weft_guarded_fault
    .hidden weft_guarded_fault
    .type   weft_guarded_fault, %function
weft_guarded_fault:
    .cfi_startproc
    mov     w0, #0
    ret
    .cfi_endproc
    .size   weft_guarded_fault, . - weft_guarded_fault
)");

#endif
