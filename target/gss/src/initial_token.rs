//! The frame of a first token (RFC 2743 3.1), looked at before the library sees it.

use crate::{Failure, FailureReason, KERBEROS_OID, status};

/// Whether a first token is one of Kerberos. SPNEGO's and those of the old identifiers of Kerberos
/// are not.
///
/// # Errors
///
/// `GSS_S_BAD_MECH` or `GSS_S_DEFECTIVE_TOKEN`.
pub fn check(token: &[u8]) -> Result<(), Failure> {
    let oid = mechanism(token).ok_or_else(|| Failure {
        major: status::DEFECTIVE_TOKEN,
        minor: 0,
        reason: FailureReason::Token,
        text: "what the client sent is not a token of GSS-API".to_owned(),
    })?;
    if oid != KERBEROS_OID {
        return Err(Failure {
            major: status::BAD_MECH,
            minor: 0,
            reason: FailureReason::Mechanism,
            text: "the client uses another mechanism than Kerberos".to_owned(),
        });
    }
    Ok(())
}

/// The object identifier: `60 length 06 length identifier`.
fn mechanism(token: &[u8]) -> Option<&[u8]> {
    let content = definite(token, 0x60)?;
    // The frame has the whole token, or the mechanism would read behind it.
    if content.1 != 0 {
        return None;
    }
    let (oid, _) = definite(content.0, 0x06)?;
    (!oid.is_empty()).then_some(oid)
}

/// The content of an element with this tag, and how many bytes follow it.
fn definite(bytes: &[u8], tag: u8) -> Option<(&[u8], usize)> {
    let (first, rest) = bytes.split_first()?;
    let (&short, mut rest) = rest.split_first()?;
    if *first != tag {
        return None;
    }
    let mut length = usize::from(short);
    if short & 0x80 != 0 {
        let count = usize::from(short & 0x7f);
        if !(1..=4).contains(&count) {
            return None;
        }
        let (digits, behind) = rest.split_at_checked(count)?;
        length = digits
            .iter()
            .fold(0, |sum, digit| sum << 8 | usize::from(*digit));
        rest = behind;
    }
    let content = rest.get(..length)?;
    Some((content, rest.len() - length))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(oid: &[u8], content: &[u8]) -> Vec<u8> {
        let mut inner = vec![6, u8::try_from(oid.len()).expect("short")];
        inner.extend(oid);
        inner.extend(content);
        let mut token = vec![0x60];
        match u8::try_from(inner.len()) {
            Ok(short @ ..0x80) => token.push(short),
            _ => {
                token.push(0x82);
                token.extend(u16::try_from(inner.len()).expect("short").to_be_bytes());
            }
        }
        token.extend(inner);
        token
    }

    fn major(token: &[u8]) -> u32 {
        check(token).map_or_else(|failure| failure.major, |()| 0)
    }

    #[test]
    fn gss_ctx_09_kerberos_is_taken_and_no_other_mechanism() {
        let spnego = [0x2b, 6, 1, 5, 5, 2];
        let microsoft = [0x2a, 0x86, 0x48, 0x82, 0xf7, 0x12, 1, 2, 2];
        let old = [0x2b, 5, 1, 5, 2];
        for content in [&[1, 0][..], &[7; 300]] {
            assert_eq!(major(&framed(&KERBEROS_OID, content)), 0);
            for other in [&spnego[..], &microsoft, &old, &KERBEROS_OID[..8]] {
                assert_eq!(major(&framed(other, content)), status::BAD_MECH);
            }
        }
    }

    #[test]
    fn gss_lim_04_damaged_frames_are_no_tokens() {
        let token = framed(&KERBEROS_OID, &[7; 300]);
        for length in 0..token.len() {
            assert_eq!(major(&token[..length]), status::DEFECTIVE_TOKEN);
        }
        let mut longer = token.clone();
        longer.push(0);
        assert_eq!(major(&longer), status::DEFECTIVE_TOKEN);
        for noise in [
            &[0x60, 0x80, 6, 9][..],
            &[0x60, 0x84, 0xff, 0xff, 0xff, 0xff, 6],
            &[0x60, 0x89, 1, 1, 1, 1, 1, 1, 1, 1, 1],
            &[0x60, 2, 6, 0],
            &[0x60, 4, 6, 0x84, 0xff, 0xff],
            &[0x61, 0],
        ] {
            assert_eq!(major(noise), status::DEFECTIVE_TOKEN, "{noise:x?}");
        }
    }
}
