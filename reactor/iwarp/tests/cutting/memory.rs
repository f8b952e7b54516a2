//! Plain vectors as the memory of a stream.

use std::cell::RefCell;
use std::rc::Rc;

use millrace_iwarp::{Chunk, Direct, DirectTarget, Memory};

/// A part of a shared vector.
#[derive(Clone, Debug, Default)]
pub struct Range {
    bytes: Rc<RefCell<Vec<u8>>>,
    start: usize,
    length: usize,
}

impl Range {
    pub fn new(length: usize, seed: usize) -> Self {
        let bytes = (0..length).map(|i| (i * seed + seed) as u8).collect();
        Self {
            bytes: Rc::new(RefCell::new(bytes)),
            start: 0,
            length,
        }
    }

    pub fn part(&self, start: usize, length: usize) -> Self {
        assert!(start + length <= self.length);
        Self {
            start: self.start + start,
            length,
            ..self.clone()
        }
    }

    pub fn bytes(&self) -> Vec<u8> {
        self.bytes.borrow()[self.start..self.start + self.length].to_vec()
    }

    fn put(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.length, "outside the range");
        let at = self.start + offset;
        self.bytes.borrow_mut()[at..at + bytes.len()].copy_from_slice(bytes);
    }
}

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
        let part = local.part(offset, bytes.len());
        bytes.copy_from_slice(&part.bytes());
    }

    fn capacity(receive: &Vec<u8>) -> usize {
        receive.len()
    }

    fn fill(receive: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
        receive[offset..offset + bytes.len()].copy_from_slice(bytes);
    }
}

/// Adds what is to be sent.
pub fn append(bytes: &mut Vec<u8>, chunk: &Chunk<'_, Range>) {
    match chunk {
        Chunk::Bytes(more) => bytes.extend_from_slice(more),
        Chunk::Memory {
            local,
            offset,
            length,
        } => bytes.extend(local.part(*offset, *length).bytes()),
    }
}

/// Puts bytes straight where they belong.
pub fn put(direct: Direct<'_, Range, Vec<u8>>, bytes: &[u8]) {
    match direct.target {
        DirectTarget::Receive(receive) => {
            receive[direct.offset..direct.offset + bytes.len()].copy_from_slice(bytes);
        }
        DirectTarget::Local(local) => local.put(direct.offset, bytes),
    }
}
