//! Plain vectors as the memory of an iWARP stream, strict about bounds.

use std::cell::RefCell;
use std::rc::Rc;

use millrace_iwarp::{Direct, DirectTarget, Memory};

/// A part of a shared vector.
#[derive(Clone, Debug, Default)]
pub struct Range {
    bytes: Rc<RefCell<Vec<u8>>>,
    start: usize,
    length: usize,
}

impl Range {
    /// All of a new vector of these bytes.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Self {
        Self {
            start: 0,
            length: bytes.len(),
            bytes: Rc::new(RefCell::new(bytes)),
        }
    }

    /// A part of this one.
    ///
    /// # Panics
    /// If it is no part.
    #[must_use]
    pub fn part(&self, start: usize, length: usize) -> Self {
        assert!(start + length <= self.length, "outside the range");
        Self {
            bytes: Rc::clone(&self.bytes),
            start: self.start + start,
            length,
        }
    }

    /// The bytes as they are now.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        self.bytes.borrow()[self.start..self.start + self.length].to_vec()
    }

    fn put(&self, offset: usize, bytes: &[u8]) {
        let part = self.part(offset, bytes.len());
        self.bytes.borrow_mut()[part.start..part.start + part.length].copy_from_slice(bytes);
    }
}

/// [`Range`]s and vectors.
pub struct Vectors;

impl Memory for Vectors {
    type Local = Range;
    type Receive = Vec<u8>;

    fn length(local: &Range) -> usize {
        local.length
    }

    fn place(local: &Range, offset: usize, bytes: &[u8]) {
        local.put(offset, bytes);
    }

    fn fetch(local: &Range, offset: usize, bytes: &mut [u8]) {
        bytes.copy_from_slice(&local.part(offset, bytes.len()).bytes());
    }

    fn capacity(receive: &Vec<u8>) -> usize {
        receive.len()
    }

    fn fill(receive: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
        receive[offset..offset + bytes.len()].copy_from_slice(bytes);
    }
}

/// Puts bytes straight where they belong, as a scattered read does.
///
/// # Panics
/// If that is outside the memory.
pub fn put(direct: Direct<'_, Range, Vec<u8>>, bytes: &[u8]) {
    match direct.target {
        DirectTarget::Receive(receive) => {
            receive[direct.offset..direct.offset + bytes.len()].copy_from_slice(bytes);
        }
        DirectTarget::Local(local) => local.put(direct.offset, bytes),
    }
}
