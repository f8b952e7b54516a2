//! Copies of whole blocks by instructions of x86-64: AVX where the processor has it, else SSE2.

use std::arch::asm;

/// Bytes of a block: a cache line.
const BLOCK: usize = 64;

/// Copies as many whole blocks as `len` bytes have, and returns their bytes.
///
/// # Safety
/// Both ranges of `len` bytes are mapped for the time of the call and do not overlap, and no
/// reference that the compiler knows of forbids the access.
pub(super) unsafe fn copy(mut from: *const u8, mut to: *mut u8, len: usize) -> usize {
    let blocks = len / BLOCK;
    let pairs = if blocks > 1 && is_x86_feature_detected!("avx") {
        blocks / 2
    } else {
        0
    };
    if pairs > 0 {
        // SAFETY: the loop reads and writes `pairs` pairs of blocks of 64 bytes, which are inside
        // the ranges that the caller promises, and changes nothing but what is named here. The
        // processor has AVX; the upper halves of its registers, which code without AVX does not
        // use, are cleared at the end.
        unsafe {
            asm!(
                "2:",
                "vmovups ymm0, [{from}]",
                "vmovups ymm1, [{from} + 32]",
                "vmovups ymm2, [{from} + 64]",
                "vmovups ymm3, [{from} + 96]",
                "vmovups [{to}], ymm0",
                "vmovups [{to} + 32], ymm1",
                "vmovups [{to} + 64], ymm2",
                "vmovups [{to} + 96], ymm3",
                "sub {from}, -128",
                "sub {to}, -128",
                "dec {pairs}",
                "jnz 2b",
                "vzeroupper",
                from = inout(reg) from,
                to = inout(reg) to,
                pairs = inout(reg) pairs => _,
                out("xmm0") _,
                out("xmm1") _,
                out("xmm2") _,
                out("xmm3") _,
                // `vzeroupper` clears a part of each.
                out("xmm4") _,
                out("xmm5") _,
                out("xmm6") _,
                out("xmm7") _,
                out("xmm8") _,
                out("xmm9") _,
                out("xmm10") _,
                out("xmm11") _,
                out("xmm12") _,
                out("xmm13") _,
                out("xmm14") _,
                out("xmm15") _,
                options(nostack),
            );
        }
    }
    let left = blocks - 2 * pairs;
    if left > 0 {
        // SAFETY: the loop reads and writes `left` blocks of 64 bytes behind those, which are
        // inside the ranges that the caller promises, and changes nothing but what is named here.
        unsafe {
            asm!(
                "2:",
                "movups xmm0, [{from}]",
                "movups xmm1, [{from} + 16]",
                "movups xmm2, [{from} + 32]",
                "movups xmm3, [{from} + 48]",
                "movups [{to}], xmm0",
                "movups [{to} + 16], xmm1",
                "movups [{to} + 32], xmm2",
                "movups [{to} + 48], xmm3",
                "add {from}, 64",
                "add {to}, 64",
                "dec {left}",
                "jnz 2b",
                from = inout(reg) from => _,
                to = inout(reg) to => _,
                left = inout(reg) left => _,
                out("xmm0") _,
                out("xmm1") _,
                out("xmm2") _,
                out("xmm3") _,
                options(nostack),
            );
        }
    }
    blocks * BLOCK
}
