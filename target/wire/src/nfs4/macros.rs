//! Operations declared once: numbers, arguments and results.

/// The operations of a kind of COMPOUND. Each `served` operation has arguments and results; of an
/// `unserved` one only the number is known, and only a status without details can answer it.
macro_rules! operations {
    (
        $(#[$number_meta:meta])* numbers $number:ident;
        $(#[$arguments_meta:meta])* arguments $arguments:ident;
        $(#[$results_meta:meta])* results $results:ident;
        served { $($variant:ident = $value:literal, $minor:literal, $name:literal:
            $argument:ty => $result:ty;)* }
        unserved { $($other:ident = $other_value:literal, $other_minor:literal, $other_name:literal;)* }
    ) => {
        $(#[$number_meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u32)]
        pub enum $number {
            $(#[doc = concat!($name, ".")] $variant = $value,)*
            $(#[doc = concat!($other_name, "; not served.")] $other = $other_value,)*
        }

        impl $number {
            /// All operations that are served.
            pub const SERVED: &'static [Self] = &[$(Self::$variant,)*];
            /// All that are known and not served.
            pub const UNSERVED: &'static [Self] = &[$(Self::$other,)*];

            /// The number on the wire.
            #[must_use]
            pub const fn number(self) -> u32 {
                self as u32
            }

            /// The operation with this number.
            #[must_use]
            pub const fn from_number(number: u32) -> Option<Self> {
                match number {
                    $($value => Some(Self::$variant),)*
                    $($other_value => Some(Self::$other),)*
                    _ => None,
                }
            }

            /// The name in the standard.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                    $(Self::$other => $other_name,)*
                }
            }

            /// Least minor version that has it.
            #[must_use]
            pub const fn minor_version(self) -> u32 {
                match self {
                    $(Self::$variant => $minor,)*
                    $(Self::$other => $other_minor,)*
                }
            }
        }

        impl core::fmt::Display for $number {
            fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                out.write_str(self.name())
            }
        }

        $(#[$arguments_meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(clippy::large_enum_variant)] // There is no allocator to box with.
        pub enum $arguments<'a> {
            $(#[doc = concat!($name, ".")] $variant($argument),)*
            /// Known and not served: its arguments are neither decoded nor encoded.
            Unserved($number),
            /// A number that the minor version does not define.
            Illegal(u32),
        }

        impl<'a> $crate::nfs4::CompoundOperation<'a> for $arguments<'a> {
            fn decode_operation(
                minor_version: u32,
                input: &mut $crate::xdr::Decoder<'a>,
            ) -> core::result::Result<Self, $crate::nfs4::MalformedOperation> {
                let malformed = |number| move |error| {
                    $crate::nfs4::MalformedOperation { number, error }
                };
                let number = input.u32().map_err(malformed(OP_ILLEGAL))?;
                let known = $number::from_number(number)
                    .filter(|known| known.minor_version() <= minor_version);
                Ok(match known {
                    $(Some($number::$variant) => Self::$variant(
                        $crate::xdr::Decode::decode(input).map_err(malformed(number))?,
                    ),)*
                    Some(unserved) => Self::Unserved(unserved),
                    None => Self::Illegal(number),
                })
            }

            fn refusal(&self) -> Option<(u32, $crate::nfs4::OperationStatus)> {
                match self {
                    Self::Unserved(number) => {
                        Some((number.number(), $crate::nfs4::OperationStatus::NotSupported))
                    }
                    Self::Illegal(_) => {
                        Some((OP_ILLEGAL, $crate::nfs4::OperationStatus::IllegalOperation))
                    }
                    _ => None,
                }
            }

            fn number(&self) -> u32 {
                match self {
                    $(Self::$variant(_) => $number::$variant.number(),)*
                    Self::Unserved(number) => number.number(),
                    Self::Illegal(number) => *number,
                }
            }
        }

        impl $crate::xdr::Encode for $arguments<'_> {
            fn encode(&self, out: &mut $crate::xdr::Encoder<'_>) -> $crate::xdr::Result<()> {
                out.u32($crate::nfs4::CompoundOperation::number(self))?;
                match self {
                    $(Self::$variant(arguments) => $crate::xdr::Encode::encode(arguments, out),)*
                    Self::Unserved(_) | Self::Illegal(_) => Ok(()),
                }
            }
        }

        $(#[$results_meta])*
        #[derive(Clone, Copy, Debug, PartialEq)]
        #[allow(clippy::large_enum_variant)] // There is no allocator to box with.
        pub enum $results<'a> {
            $(#[doc = concat!($name, ".")] $variant($result),)*
            /// An operation that failed with no more than a status, any but OK, under this number.
            Refused(u32, $crate::nfs4::OperationStatus),
        }

        impl $results<'_> {
            /// The number of the operation.
            #[must_use]
            pub const fn number(&self) -> u32 {
                match self {
                    $(Self::$variant(_) => $number::$variant.number(),)*
                    Self::Refused(number, _) => *number,
                }
            }
        }

        impl $crate::nfs4::HasStatus for $results<'_> {
            fn status(&self) -> $crate::nfs4::OperationStatus {
                match self {
                    $(Self::$variant(results) => $crate::nfs4::HasStatus::status(results),)*
                    Self::Refused(_, status) => *status,
                }
            }
        }

        impl $crate::xdr::Encode for $results<'_> {
            fn encode(&self, out: &mut $crate::xdr::Encoder<'_>) -> $crate::xdr::Result<()> {
                out.u32(self.number())?;
                match self {
                    $(Self::$variant(results) => $crate::xdr::Encode::encode(results, out),)*
                    Self::Refused(_, $crate::nfs4::OperationStatus::Ok) => {
                        Err($crate::xdr::Error::Value)
                    }
                    Self::Refused(number, status) => {
                        $crate::xdr::Encode::encode(status, out)?;
                        // A failed SETATTR returns the attributes that were set: none.
                        if *number == $crate::nfs4::operations::SETATTR { out.u32(0) } else { Ok(()) }
                    }
                }
            }
        }

        impl<'a> $crate::xdr::Decode<'a> for $results<'a> {
            fn decode(input: &mut $crate::xdr::Decoder<'a>) -> $crate::xdr::Result<Self> {
                let number = input.u32()?;
                match $number::from_number(number) {
                    $(Some($number::$variant) => {
                        $crate::xdr::Decode::decode(input).map(Self::$variant)
                    })*
                    _ => match $crate::xdr::Decode::decode(input)? {
                        $crate::nfs4::OperationStatus::Ok => Err($crate::xdr::Error::Value),
                        status => Ok(Self::Refused(number, status)),
                    },
                }
            }
        }
    };
}

pub(super) use operations;
