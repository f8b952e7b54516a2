//! Structures and enumerations declared once, with their layout.

/// A structure whose layout is that of its fields in order. With a lifetime, it borrows; `fixed`,
/// its encodings all have one length.
macro_rules! xdr_struct {
    ($(#[$meta:meta])* pub fixed struct $name:ident { $($(#[$field_meta:meta])* pub $field:ident: $type:ty,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name { $($(#[$field_meta])* pub $field: $type,)* }

        impl $crate::xdr::FixedLength for $name {
            const LENGTH: usize = 0 $(+ <$type as $crate::xdr::FixedLength>::LENGTH)*;

            #[inline]
            fn put(&self, room: &mut [u8]) {
                $(
                    let (place, room) = room.split_at_mut(<$type as $crate::xdr::FixedLength>::LENGTH);
                    $crate::xdr::FixedLength::put(&self.$field, place);
                )*
                let _ = room;
            }
        }

        impl $crate::xdr::Encode for $name {
            #[inline]
            fn encode(&self, out: &mut $crate::xdr::Encoder<'_>) -> $crate::xdr::Result<()> {
                out.fixed(self)
            }
        }

        impl $crate::xdr::Decode<'_> for $name {
            #[inline]
            fn decode(input: &mut $crate::xdr::Decoder<'_>) -> $crate::xdr::Result<Self> {
                Ok(Self { $($field: $crate::xdr::Decode::decode(input)?,)* })
            }
        }
    };
    ($(#[$meta:meta])* pub struct $name:ident { $($(#[$field_meta:meta])* pub $field:ident: $type:ty,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name { $($(#[$field_meta])* pub $field: $type,)* }

        impl $crate::xdr::Encode for $name {
            fn encode(&self, out: &mut $crate::xdr::Encoder<'_>) -> $crate::xdr::Result<()> {
                $($crate::xdr::Encode::encode(&self.$field, out)?;)*
                Ok(())
            }
        }

        impl $crate::xdr::Decode<'_> for $name {
            #[inline]
            fn decode(input: &mut $crate::xdr::Decoder<'_>) -> $crate::xdr::Result<Self> {
                Ok(Self { $($field: $crate::xdr::Decode::decode(input)?,)* })
            }
        }
    };
    ($(#[$meta:meta])* pub struct $name:ident<$lt:lifetime> { $($(#[$field_meta:meta])* pub $field:ident: $type:ty,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name<$lt> { $($(#[$field_meta])* pub $field: $type,)* }

        impl $crate::xdr::Encode for $name<'_> {
            fn encode(&self, out: &mut $crate::xdr::Encoder<'_>) -> $crate::xdr::Result<()> {
                $($crate::xdr::Encode::encode(&self.$field, out)?;)*
                Ok(())
            }
        }

        impl<$lt> $crate::xdr::Decode<$lt> for $name<$lt> {
            #[inline]
            fn decode(input: &mut $crate::xdr::Decoder<$lt>) -> $crate::xdr::Result<Self> {
                Ok(Self { $($field: $crate::xdr::Decode::decode(input)?,)* })
            }
        }
    };
}

/// An enumeration with the number, the name in its standard, and a text for people.
macro_rules! xdr_enum {
    ($(#[$meta:meta])* pub enum $type:ident {
        $($variant:ident = $number:literal, $name:literal, $text:literal;)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u32)]
        pub enum $type {
            $(#[doc = concat!($name, " (", $number, "): ", $text, ".")] $variant = $number,)*
        }

        impl $type {
            /// All values, in ascending order.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The number on the wire.
            #[must_use]
            pub const fn number(self) -> u32 {
                self as u32
            }

            /// The value with this number.
            #[must_use]
            pub const fn from_number(number: u32) -> Option<Self> {
                match number {
                    $($number => Some(Self::$variant),)*
                    _ => None,
                }
            }

            /// The name in the standard.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// What it means, in a few words.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)*
                }
            }
        }

        impl core::fmt::Display for $type {
            fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                out.write_str(self.name())
            }
        }

        impl $crate::xdr::FixedLength for $type {
            const LENGTH: usize = 4;

            #[inline]
            fn put(&self, room: &mut [u8]) {
                self.number().put(room);
            }
        }

        impl $crate::xdr::Encode for $type {
            #[inline]
            fn encode(&self, out: &mut $crate::xdr::Encoder<'_>) -> $crate::xdr::Result<()> {
                out.fixed(self)
            }
        }

        impl $crate::xdr::Decode<'_> for $type {
            #[inline]
            fn decode(input: &mut $crate::xdr::Decoder<'_>) -> $crate::xdr::Result<Self> {
                Self::from_number(input.u32()?).ok_or($crate::xdr::Error::Value)
            }
        }
    };
}

/// A discriminated union (RFC 4506 section 4.15) whose arms are void or one value.
macro_rules! xdr_union {
    ($(#[$meta:meta])* pub enum $name:ident $(<$lt:lifetime>)? {
        $($(#[$arm_meta:meta])* $arm:ident $(($value:ident: $type:ty))? = $number:literal,)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name $(<$lt>)? { $($(#[$arm_meta])* $arm $(($type))?,)* }

        impl $(<$lt>)? $crate::xdr::Encode for $name $(<$lt>)? {
            fn encode(&self, out: &mut $crate::xdr::Encoder<'_>) -> $crate::xdr::Result<()> {
                match self {
                    $(Self::$arm $(($value))? => {
                        out.u32($number)?;
                        $($crate::xdr::Encode::encode($value, out)?;)?
                    })*
                }
                Ok(())
            }
        }

        $crate::xdr::xdr_union! { decode [$($lt)?] $name {
            $($arm $(($value: $type))? = $number,)*
        } }
    };
    (decode [] $name:ident { $($arms:tt)* }) => {
        impl $crate::xdr::Decode<'_> for $name {
            fn decode(input: &mut $crate::xdr::Decoder<'_>) -> $crate::xdr::Result<Self> {
                $crate::xdr::xdr_union! { arms input { $($arms)* } }
            }
        }
    };
    (decode [$lt:lifetime] $name:ident { $($arms:tt)* }) => {
        impl<$lt> $crate::xdr::Decode<$lt> for $name<$lt> {
            fn decode(input: &mut $crate::xdr::Decoder<$lt>) -> $crate::xdr::Result<Self> {
                $crate::xdr::xdr_union! { arms input { $($arms)* } }
            }
        }
    };
    (arms $input:ident { $($arm:ident $(($value:ident: $type:ty))? = $number:literal,)* }) => {
        match $input.u32()? {
            $($number => Ok(Self::$arm $((<$type as $crate::xdr::Decode<'_>>::decode($input)?))?),)*
            _ => Err($crate::xdr::Error::Value),
        }
    };
}

pub(crate) use {xdr_enum, xdr_struct, xdr_union};
