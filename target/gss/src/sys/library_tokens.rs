//! The library's own tokens, for tests that compare them with ours.
#![allow(unsafe_code)]

use std::ptr;

use super::gss_library::Buffer;
use super::initiator::InitiatorContext;

impl InitiatorContext {
    /// A MIC token; empty if the library makes none.
    pub fn mic(&self, message: &[u8]) -> Vec<u8> {
        let message = Buffer::of(message);
        let (mut minor, mut token) = (0, Buffer::EMPTY);
        // SAFETY: the context is null or one of the library, which refuses what is not complete;
        // the message is read during the call only, and the token is written.
        unsafe {
            (self.library.gss_get_mic)(
                &raw mut minor,
                self.context,
                0,
                &raw const message,
                &raw mut token,
            );
        }
        self.library.take(token)
    }

    /// Whether a MIC token of the acceptor is good. Tokens out of order are good, too.
    pub fn verifies(&self, message: &[u8], token: &[u8]) -> bool {
        let (message, token) = (Buffer::of(message), Buffer::of(token));
        let mut minor = 0;
        // SAFETY: the context is null or one of the library, which refuses what is not complete;
        // message and token are read during the call only.
        let major = unsafe {
            (self.library.gss_verify_mic)(
                &raw mut minor,
                self.context,
                &raw const message,
                &raw const token,
                ptr::null_mut(),
            )
        };
        major >> 16 == 0
    }

    /// A Wrap token; empty if the library makes none.
    pub fn wrap(&self, message: &[u8], sealed: bool) -> Vec<u8> {
        let message = Buffer::of(message);
        let (mut minor, mut token) = (0, Buffer::EMPTY);
        // SAFETY: the context is null or one of the library, which refuses what is not complete;
        // the message is read during the call only, and the token is written.
        unsafe {
            (self.library.gss_wrap)(
                &raw mut minor,
                self.context,
                sealed.into(),
                0,
                &raw const message,
                ptr::null_mut(),
                &raw mut token,
            );
        }
        self.library.take(token)
    }

    /// The message of a Wrap token of the acceptor, and whether it was sealed.
    pub fn unwrap(&self, token: &[u8]) -> Option<(Vec<u8>, bool)> {
        let token = Buffer::of(token);
        let (mut minor, mut message, mut sealed) = (0, Buffer::EMPTY, 0);
        // SAFETY: the context is null or one of the library, which refuses what is not complete;
        // the token is read during the call only; message and number are written.
        let major = unsafe {
            (self.library.gss_unwrap)(
                &raw mut minor,
                self.context,
                &raw const token,
                &raw mut message,
                &raw mut sealed,
                ptr::null_mut(),
            )
        };
        let message = self.library.take(message);
        (major >> 16 == 0).then_some((message, sealed != 0))
    }
}
