//! Attributes of objects (RFC 8881 section 5): which there are, and their values.

mod bitmap;
mod decode;
mod encode;
mod table;

pub use bitmap::{Bitmap, WORDS_MAX};
pub use decode::{AttributeValues, Attributes, SettableAttributes};
pub use encode::{AttributeSource, encode_attributes};
pub use table::{
    Attribute, AttributeNumber, MaskedMode, ModeWithUmask, OpenArguments, change_type,
    handle_expiry, open_wishes,
};
