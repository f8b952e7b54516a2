//! Vectors of the RFCs.

use super::hex;
use crate::Enctype;
use crate::krb5::cipher::{BLOCK, DecryptionKey, EncryptionKey, before_tail};
use crate::krb5::derive::{Purpose, derive, n_fold};
use crate::krb5::mac::Mac;

/// RFC 3961 A.1.
#[test]
fn n_fold_gives_what_rfc_3961_lists() {
    for (input, folded) in [
        ("012345", "be072631276b1955"),
        ("password", "78a07b6caf85fa"),
        ("Rough Consensus, and Running Code", "bb6ed30870b7f0e0"),
        ("password", "59e4a8ca7c0385c3c37b3f6d2000247cb6e6bd5b3e"),
        (
            "MASSACHVSETTS INSTITVTE OF TECHNOLOGY",
            "db3b0d8f0b061e603282b308a50841229ad798fab9540c1b",
        ),
        ("Q", "518a54a2 15a8452a 518a54a2 15a8452a 518a54a2 15"),
        ("ba", "fb25d531 ae897449 9f52fd92 ea9857c4 ba24cf29 7e"),
        ("kerberos", "6b657262 65726f73"),
        ("kerberos", "6b657262 65726f73 7b9b5b2b 93132b93"),
        (
            "kerberos",
            "8372c236 344e5f15 50cd0747 e15d62ca 7a5a3bce a4",
        ),
    ] {
        let expected = hex(folded);
        let mut found = vec![0; expected.len()];
        n_fold(input.as_bytes(), &mut found);
        assert_eq!(found, expected, "{input}");
    }
}

/// RFC 3962 appendix B.
#[test]
fn ciphertext_is_stolen_as_rfc_3962_lists() {
    let text = b"I would like the General Gau's Chicken, please, and wonton soup.";
    for (length, ciphertext) in [
        (17, "c6353568f2bf8cb4d8a580362da7ff7f97"),
        (
            31,
            "fc00783e0efdb2c1d445d4c8eff7ed22 97687268d6ecccc0c07b25e25ecfe5",
        ),
        (
            32,
            "39312523a78662d5be7fcbcc98ebf5a8 97687268d6ecccc0c07b25e25ecfe584",
        ),
        (
            47,
            "97687268d6ecccc0c07b25e25ecfe584 b3fffd940c16a18c1b5549d2f838029e
             39312523a78662d5be7fcbcc98ebf5",
        ),
        (
            48,
            "97687268d6ecccc0c07b25e25ecfe584 9dad8bbb96c4cdc03bc103e1a194bbd8
             39312523a78662d5be7fcbcc98ebf5a8",
        ),
        (
            64,
            "97687268d6ecccc0c07b25e25ecfe584 39312523a78662d5be7fcbcc98ebf5a8
             4807efe836ee89a526730dbc2f7bc840 9dad8bbb96c4cdc03bc103e1a194bbd8",
        ),
    ] {
        let mut data = text[..length].to_vec();
        let tail = before_tail(length);
        let key = EncryptionKey::new(b"chicken teriyaki").expect("a key");
        let mut state = [0; BLOCK];
        key.blocks(&mut state, &mut data[..tail]);
        key.tail(&mut state, &mut data[tail..]);
        assert_eq!(data, hex(ciphertext), "{length} bytes");
        let key = DecryptionKey::new(b"chicken teriyaki").expect("a key");
        let mut state = [0; BLOCK];
        key.blocks(&mut state, &mut data[..tail]);
        key.tail(&mut state, &mut data[tail..]);
        assert_eq!(data, text[..length], "{length} bytes");
    }
}

const BASE_128: &str = "3705D96080C17728A0E800EAB6E0D23C";
const BASE_256: &str = "6D404D37FAF79F9DF0D33568D320669800EB4836472EA8A026D16B7182460C52";

/// RFC 8009 appendix A.
#[test]
fn keys_are_derived_as_rfc_8009_lists() {
    for (enctype, base, purpose, key) in [
        (
            Enctype::Aes128Sha256,
            BASE_128,
            Purpose::Checksum,
            "B31A018A48F54776F403E9A396325DC3",
        ),
        (
            Enctype::Aes128Sha256,
            BASE_128,
            Purpose::Encryption,
            "9B197DD1E8C5609D6E67C3E37C62C72E",
        ),
        (
            Enctype::Aes128Sha256,
            BASE_128,
            Purpose::Integrity,
            "9FDA0E56AB2D85E1569A688696C26A6C",
        ),
        (
            Enctype::Aes256Sha384,
            BASE_256,
            Purpose::Checksum,
            "EF5718BE86CC84963D8BBB5031E9F5C4BA41F28FAF69E73D",
        ),
        (
            Enctype::Aes256Sha384,
            BASE_256,
            Purpose::Encryption,
            "56AB22BEE63D82D7BC5227F6773F8EA7A5EB1C825160C38312980C442E5C7E49",
        ),
        (
            Enctype::Aes256Sha384,
            BASE_256,
            Purpose::Integrity,
            "69B16514E3CD8E56B82010D5C73012B622C4D00FFC23ED1F",
        ),
    ] {
        let found = derive(enctype, &hex(base), 2, purpose);
        assert_eq!(*found, hex(key), "{enctype:?} {purpose:?}");
    }
}

/// RFC 8009 appendix A.
#[test]
fn checksums_are_those_of_rfc_8009() {
    let message: Vec<u8> = (0..=0x14).collect();
    for (enctype, base, checksum) in [
        (
            Enctype::Aes128Sha256,
            BASE_128,
            "D78367186643D67B411CBA9139FC1DEE",
        ),
        (
            Enctype::Aes256Sha384,
            BASE_256,
            "45EE791567EEFCA37F4AC1E0222DE80D43C3BFA06699672A",
        ),
    ] {
        let key = derive(enctype, &hex(base), 2, Purpose::Checksum);
        let mut mac = Mac::new(enctype, &key);
        mac.update(&message);
        let checksum = hex(checksum);
        assert_eq!(mac.finish()[..checksum.len()], checksum, "{enctype:?}");
    }
}

/// RFC 8009 appendix A: confounder, bytes of plaintext, ciphertext and checksum.
#[test]
fn messages_are_encrypted_as_rfc_8009_lists() {
    for (enctype, base, confounder, length, sealed) in [
        (
            Enctype::Aes128Sha256,
            BASE_128,
            "7BCA285E2FD4130FB55B1A5C83BC5B24",
            6,
            "84D7F30754ED987BAB0BF3506BEB09CFB55402CEF7E6877CE99E247E52D16ED4421DFDF8976C",
        ),
        (
            Enctype::Aes128Sha256,
            BASE_128,
            "56AB21713FF62C0A1457200F6FA9948F",
            16,
            "3517D640F50DDC8AD3628722B3569D2AE07493FA8263254080EA65C1008E8FC2
             95FB4852E7D83E1E7C48C37EEBE6B0D3",
        ),
        (
            Enctype::Aes128Sha256,
            BASE_128,
            "A7A4E29A4728CE10664FB64E49AD3FAC",
            21,
            "720F73B18D9859CD6CCB4346115CD336C70F58EDC0C4437C5573544C31C813BC
             E1E6D072C186B39A413C2F92CA9B8334A287FFCBFC",
        ),
        (
            Enctype::Aes256Sha384,
            BASE_256,
            "B80D3251C1F6471494256FFE712D0B9A",
            6,
            "4ED7B37C2BCAC8F74F23C1CF07E62BC7B75FB3F637B9
             F559C7F664F69EAB7B6092237526EA0D1F61CB20D69D10F2",
        ),
        (
            Enctype::Aes256Sha384,
            BASE_256,
            "53BF8A0D105265D4E276428624CE5E63",
            16,
            "BC47FFEC7998EB91E8115CF8D19DAC4BBBE2E163E87DD37F49BECA92027764F6
             8CF51F14D798C2273F35DF574D1F932E40C4FF255B36A266",
        ),
        (
            Enctype::Aes256Sha384,
            BASE_256,
            "763E65367E864F02F55153C7E3B58AF1",
            21,
            "40013E2DF58E8751957D2878BCD2D6FE101CCFD556CB1EAE79DB3C3EE86429F2
             B2A602AC86FEF6ECB647D6295FAE077A1FEB517508D2C16B4192E01F62",
        ),
    ] {
        let mut data = hex(confounder);
        data.extend(0..length);
        let tail = before_tail(data.len());
        let key = derive(enctype, &hex(base), 2, Purpose::Encryption);
        let key = EncryptionKey::new(&key).expect("a key");
        let mut state = [0; BLOCK];
        key.blocks(&mut state, &mut data[..tail]);
        key.tail(&mut state, &mut data[tail..]);
        let mut mac = Mac::new(enctype, &derive(enctype, &hex(base), 2, Purpose::Integrity));
        mac.update(&[0; BLOCK]);
        mac.update(&data);
        data.extend(&mac.finish()[..enctype.mac_length()]);
        assert_eq!(data, hex(sealed), "{enctype:?}, {length} bytes");
    }
}
