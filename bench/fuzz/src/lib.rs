//! What the fuzz targets share.

pub mod memory;

use std::fmt::Debug;

use millrace_wire::xdr::{Decode, Decoder, Encode, to_bytes};

/// Decodes a value and checks that its encoding has the same encoding again.
///
/// # Panics
/// If not.
pub fn check<'a, T: Decode<'a> + Encode + Debug>(bytes: &'a [u8]) {
    let mut input = Decoder::new(bytes);
    let Ok(value) = T::decode(&mut input) else {
        return;
    };
    assert!(input.position() <= bytes.len());
    let mut encoded = vec![0; bytes.len()];
    let length = to_bytes(&value, &mut encoded).expect("a decoded value encodes in its own room");
    assert_eq!(length, input.position(), "{value:?}");
}

/// A first byte that chooses, and the bytes behind it.
#[must_use]
pub fn choice(bytes: &[u8], of: usize) -> Option<(usize, &[u8])> {
    let (first, rest) = bytes.split_first()?;
    Some((usize::from(*first) % of, rest))
}
