//! All operations of NFS version 4: what is encoded decodes to the same; cut off, it decodes to
//! nothing; changed anywhere, it decodes to something or to an error, and to no panic.

use std::fmt::Debug;

use millrace_wire::nfs4::*;
use millrace_wire::xdr::{Decode, Decoder, Encode, Error, from_bytes, to_bytes};

/// Words of which most make sense as counts, enumerations and booleans.
struct Words(u64);

impl Words {
    fn next(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        let word = (self.0 >> 24) as u32;
        match word % 8 {
            0..=4 => (word >> 8) & 1,
            5 => (word >> 8) & 3,
            6 => (word >> 8) & 15,
            _ => word,
        }
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length)
            .flat_map(|_| self.next().to_be_bytes())
            .collect()
    }
}

fn encode(value: &impl Encode) -> Vec<u8> {
    let mut room = vec![0xaa; 16384];
    let length = to_bytes(value, &mut room).expect("what was decoded encodes");
    room.truncate(length);
    room
}

/// Draws values of a type until enough decode, and tries each.
fn round_trip(what: &str, decode: impl Fn(&[u8]) -> Option<Vec<u8>>, first: &[u32]) {
    let mut words = Words(0x9e37_79b9_7f4a_7c15 ^ u64::from(first[0]));
    let mut found = 0;
    for _ in 0..200_000 {
        let mut bytes: Vec<u8> = first.iter().flat_map(|word| word.to_be_bytes()).collect();
        bytes.extend(words.bytes(96));
        let Some(encoded) = decode(&bytes) else {
            continue;
        };
        let again = decode(&encoded);
        assert_eq!(
            again.as_ref(),
            Some(&encoded),
            "{what} decodes from its encoding"
        );
        for end in 0..encoded.len() {
            assert_eq!(
                decode(&encoded[..end]),
                None,
                "{what} from its first {end} bytes"
            );
        }
        let mut changed = encoded;
        if !changed.is_empty() {
            let at = words.next() as usize % changed.len();
            changed[at] ^= 1 << (words.next() % 8);
            decode(&changed);
        }
        found += 1;
        if found == 64 {
            return;
        }
    }
    panic!("{what}: {found} of 64 random values decode");
}

/// Decodes an operation of the newest minor version and encodes it; `None` for one that is refused,
/// which a changed number may make of it.
fn operation<'a, O>(bytes: &'a [u8]) -> Option<Vec<u8>>
where
    O: CompoundOperation<'a> + Encode + Debug,
{
    let operation = O::decode_operation(2, &mut Decoder::new(bytes)).ok()?;
    operation.refusal().is_none().then(|| encode(&operation))
}

fn results<'a, R: Decode<'a> + Encode + Debug>(bytes: &'a [u8]) -> Option<Vec<u8>> {
    from_bytes::<R>(bytes).ok().map(|results| encode(&results))
}

#[test]
fn arguments_of_all_operations() {
    for number in OperationNumber::SERVED {
        let first = [number.number()];
        round_trip(
            number.name(),
            |bytes| operation::<Operation<'_>>(bytes),
            &first,
        );
    }
    for number in CallbackNumber::SERVED {
        let first = [number.number()];
        round_trip(
            number.name(),
            |bytes| operation::<CallbackOperation<'_>>(bytes),
            &first,
        );
    }
}

#[test]
fn results_of_all_operations() {
    for number in OperationNumber::SERVED {
        for status in [
            0,
            OperationStatus::Denied.number(),
            OperationStatus::OffloadRequirements.number(),
        ] {
            let first = [number.number(), status];
            round_trip(
                number.name(),
                |bytes| results::<OperationResults<'_>>(bytes),
                &first,
            );
        }
    }
    for number in CallbackNumber::SERVED {
        for status in [0, OperationStatus::BadStateId.number()] {
            let first = [number.number(), status];
            round_trip(
                number.name(),
                |bytes| results::<CallbackResults<'_>>(bytes),
                &first,
            );
        }
    }
}

#[test]
fn values_of_all_attributes() {
    for &number in AttributeNumber::ALL {
        let value = |bytes: &[u8]| {
            let attribute = Attribute::decode_value(number, &mut Decoder::new(bytes)).ok()?;
            assert_eq!(attribute.number(), number);
            let mut room = [0; 4096];
            let built = Attributes::build(&[attribute], &mut room).expect("it encodes");
            assert!(built.get(number).is_ok_and(|found| found.is_some()));
            Some(built.values.to_vec())
        };
        let mut words = Words(u64::from(number.number()) + 1);
        let found = (0..1000).filter(|_| {
            let Some(encoded) = value(&words.bytes(24)) else {
                return false;
            };
            assert_eq!(value(&encoded).as_ref(), Some(&encoded));
            assert!((0..encoded.len()).all(|end| value(&encoded[..end]).is_none()));
            true
        });
        assert!(found.count() > 8, "{number}");
    }
}

#[test]
fn any_bytes_as_a_compound() {
    let mut words = Words(7);
    for length in 0..4000 {
        let bytes = words.bytes(length % 200);
        let mut input = Decoder::new(&bytes);
        if let Ok(header) = CompoundHeader::decode(&mut input) {
            let reader: OperationReader<'_> =
                OperationReader::new(input, header.minor_version, header.operations);
            assert!(reader.count() <= bytes.len() / 4 + 1);
        }
        let mut input = Decoder::new(&bytes);
        if let Ok(header) = CompoundReplyHeader::decode(&mut input) {
            let reader: ResultsReader<'_> = ResultsReader::new(input, header.results);
            assert!(reader.count() <= bytes.len() / 4 + 1);
        }
        let _ = from_bytes::<CallbackHeader<'_>>(&bytes);
    }
}

#[test]
fn a_failure_with_the_status_of_success_does_not_encode() {
    let mut room = [0; 64];
    let lookup = OperationResults::Lookup(Err(OperationStatus::Ok));
    assert_eq!(to_bytes(&lookup, &mut room), Err(Error::Value));
    let refused = OperationResults::Refused(7, OperationStatus::Ok);
    assert_eq!(to_bytes(&refused, &mut room), Err(Error::Value));
    let lock = OperationResults::Lock(Err(LockFailure::Other(OperationStatus::Denied)));
    assert_eq!(to_bytes(&lock, &mut room), Err(Error::Value));
}
