//! The bytes of the files: a mark, the fields, and a checksum over both.

use std::hash::Hasher;
use std::time::Duration;

use siphasher::sip::SipHasher13;

use crate::state::DurableClient;

/// Longest file.
pub const FILE_MAX: usize = 2048;

const CLIENT_MARK: &[u8; 8] = b"MRclnt01";
const START_MARK: &[u8; 8] = b"MRstrt01";

/// What the server's starts have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartRecord {
    /// The number of the last start.
    pub start: u64,
    /// The last start whose grace period has ended.
    pub ended: u64,
    /// The longest lease that recorded clients may rely on.
    pub lease: Duration,
}

impl StartRecord {
    /// The bytes of its file.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = START_MARK.to_vec();
        bytes.extend(self.start.to_be_bytes());
        bytes.extend(self.ended.to_be_bytes());
        let lease = u64::try_from(self.lease.as_nanos()).unwrap_or(u64::MAX);
        bytes.extend(lease.to_be_bytes());
        sealed(bytes)
    }

    /// Reads the bytes of a file; `None` if it is damaged.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(opened(bytes, START_MARK)?);
        let record = Self {
            start: fields.number()?,
            ended: fields.number()?,
            lease: Duration::from_nanos(fields.number()?),
        };
        fields.0.is_empty().then_some(record)
    }
}

/// The bytes of a client's file; `None` if they would be too many.
pub fn encode_client(client: &DurableClient) -> Option<Vec<u8>> {
    let mut bytes = CLIENT_MARK.to_vec();
    bytes.extend(client.start.to_be_bytes());
    bytes.extend(client.verifier);
    bytes.push(u8::from(client.denies));
    for text in [&client.principal, &client.owner] {
        bytes.extend(u16::try_from(text.len()).ok()?.to_be_bytes());
        bytes.extend(&text[..]);
    }
    let bytes = sealed(bytes);
    (bytes.len() <= FILE_MAX).then_some(bytes)
}

/// Reads the bytes of a client's file; `None` if it is damaged.
pub fn decode_client(bytes: &[u8]) -> Option<DurableClient> {
    let mut fields = Fields(opened(bytes, CLIENT_MARK)?);
    let start = fields.number()?;
    let verifier = fields.array()?;
    let denies = match fields.array()? {
        [0] => false,
        [1] => true,
        _ => return None,
    };
    let (principal, owner) = (fields.text()?, fields.text()?);
    fields.0.is_empty().then_some(DurableClient {
        owner,
        verifier,
        principal,
        start,
        denies,
    })
}

fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.extend(checksum(&bytes));
    bytes
}

fn opened<'b>(bytes: &'b [u8], mark: &[u8]) -> Option<&'b [u8]> {
    let (content, sum) = bytes.split_last_chunk::<8>()?;
    let is_whole = bytes.len() <= FILE_MAX && checksum(content) == *sum;
    content.strip_prefix(mark).filter(|_| is_whole)
}

fn checksum(bytes: &[u8]) -> [u8; 8] {
    let mut hasher = SipHasher13::new();
    hasher.write(bytes);
    hasher.finish().to_be_bytes()
}

/// The fields that were not read yet.
struct Fields<'b>(&'b [u8]);

impl Fields<'_> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*field)
    }

    fn number(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    fn text(&mut self) -> Option<Box<[u8]>> {
        let length = usize::from(u16::from_be_bytes(self.array()?));
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(text.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(owner: usize) -> DurableClient {
        DurableClient {
            owner: vec![b'o'; owner].into(),
            verifier: *b"verifier",
            principal: Box::from(*b"\0\0\x03\xe8"),
            start: 7,
            denies: true,
        }
    }

    #[test]
    fn v4_lease_27_records_are_read_as_they_were_written_or_not_at_all() {
        for owner in [0, 1, 1024] {
            let record = client(owner);
            let bytes = encode_client(&record).unwrap();
            assert_eq!(decode_client(&bytes), Some(record));
        }
        assert_eq!(encode_client(&client(FILE_MAX)), None);
        let bytes = encode_client(&client(20)).unwrap();
        for length in 0..bytes.len() {
            assert_eq!(decode_client(&bytes[..length]), None, "{length}");
        }
        for bit in 0..bytes.len() * 8 {
            let mut bytes = bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode_client(&bytes), None, "{bit}");
        }
        let start = StartRecord {
            start: 3,
            ended: 2,
            lease: Duration::from_secs(90),
        };
        assert_eq!(StartRecord::decode(&start.encode()), Some(start));
        assert_eq!(StartRecord::decode(&bytes), None);
        assert_eq!(decode_client(&start.encode()), None);
    }
}
