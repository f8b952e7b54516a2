//! Copies of whole blocks by instructions of x86-64, which all have SSE2.

use std::arch::asm;

/// Bytes of a block: a cache line.
const BLOCK: usize = 64;

/// Copies as many whole blocks as `len` bytes have, and returns their bytes.
///
/// # Safety
/// Both ranges of `len` bytes are mapped for the time of the call and do not overlap, and no
/// reference that the compiler knows of forbids the access.
pub(super) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) -> usize {
    let blocks = len / BLOCK;
    if blocks > 0 {
        // SAFETY: the loop reads and writes `blocks` blocks of 64 bytes, which are inside the
        // ranges that the caller promises, and changes nothing but what is named here.
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
                "dec {blocks}",
                "jnz 2b",
                from = inout(reg) from => _,
                to = inout(reg) to => _,
                blocks = inout(reg) blocks => _,
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
