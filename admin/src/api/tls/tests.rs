//! Certificate files: loading, refusal, notes and reloading.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, SanType};
use tempfile::TempDir;

use super::*;

/// An authority and a folder for files.
pub struct Authority {
    pub folder: TempDir,
    pub certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

/// PEM.
pub struct Pair {
    pub certificate: String,
    pub key: String,
}

impl Authority {
    pub fn new() -> Self {
        let mut parameters = CertificateParams::new(Vec::new()).unwrap();
        parameters.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = parameters.self_signed(&key).unwrap().pem();
        Self {
            folder: TempDir::new().unwrap(),
            certificate,
            issuer: Issuer::new(parameters, key),
        }
    }

    pub fn issue(&self, change: impl FnOnce(&mut CertificateParams)) -> Pair {
        let mut parameters = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let address = SanType::IpAddress(std::net::Ipv4Addr::LOCALHOST.into());
        parameters.subject_alt_names.push(address);
        change(&mut parameters);
        let key = KeyPair::generate().unwrap();
        Pair {
            certificate: parameters.signed_by(&key, &self.issuer).unwrap().pem(),
            key: key.serialize_pem(),
        }
    }

    /// A pair for a client of this name.
    pub fn client(&self, name: &str) -> Pair {
        self.issue(|parameters| {
            parameters.distinguished_name.push(DnType::CommonName, name);
            parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        })
    }

    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        path
    }

    /// Files of a server with this pair.
    pub fn files(&self, pair: &Pair) -> Tls {
        Tls {
            certificate: self.write("server.pem", &pair.certificate),
            key: self.write("server.key", &pair.key),
            client_ca: None,
            client_auth: ClientAuth::None,
        }
    }

    /// The same with client certificates of this authority.
    pub fn asking(&self, pair: &Pair, client_auth: ClientAuth) -> Tls {
        Tls {
            client_ca: Some(self.write("clients.pem", &self.certificate)),
            client_auth,
            ..self.files(pair)
        }
    }
}

#[test]
fn good_files_are_read_without_a_note() {
    let authority = Authority::new();
    let pair = authority.issue(|_| {});
    for files in [
        authority.files(&pair),
        authority.asking(&pair, ClientAuth::Optional),
        authority.asking(&pair, ClientAuth::Required),
    ] {
        let certificates = Certificates::load(&files).unwrap();
        assert_eq!(certificates.notes(), Vec::<String>::new());
    }
}

#[test]
fn bad_files_are_named_with_the_reason() {
    let authority = Authority::new();
    let pair = authority.issue(|_| {});
    let other = authority.issue(|_| {});
    let good = authority.asking(&pair, ClientAuth::Required);
    let refused = |files: &Tls, key: &str, words: &str| {
        let error = Certificates::load(files).unwrap_err();
        assert!(error.key == key && error.reason.contains(words), "{error}");
        let file = error.file.display();
        assert!(
            error
                .to_string()
                .starts_with(&format!("admin.tls.{key}: {file}: ")),
            "{error}"
        );
    };
    let missing = || authority.folder.path().join("missing");
    let text = |text: &str| authority.write("bad", text);
    let with = |change: &dyn Fn(&mut Tls)| {
        let mut files = good.clone();
        change(&mut files);
        files
    };
    let certificate = |file: PathBuf| with(&|files| files.certificate = file.clone());
    let key = |file: PathBuf| with(&|files| files.key = file.clone());
    let clients = |file: PathBuf| with(&|files| files.client_ca = Some(file.clone()));

    refused(&certificate(missing()), "certificate", "No such file");
    refused(&certificate(text("")), "certificate", "BEGIN CERTIFICATE");
    refused(
        &certificate(good.key.clone()),
        "certificate",
        "has no certificate",
    );
    let cut = &pair.certificate[..200];
    refused(&certificate(text(cut)), "certificate", "no end");
    let odd = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    refused(&certificate(text(odd)), "certificate", "cannot be used");
    let odd = "-----BEGIN CERTIFICATE-----\n?\n-----END CERTIFICATE-----\n";
    refused(&certificate(text(odd)), "certificate", "invalid characters");
    let long = " ".repeat((1 << 20) + 1);
    refused(
        &certificate(text(&long)),
        "certificate",
        "more than 1048576",
    );
    refused(&key(missing()), "key", "No such file");
    refused(&key(good.certificate.clone()), "key", "BEGIN PRIVATE KEY");
    let odd = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    refused(&key(text(odd)), "key", "cannot be used");
    refused(
        &key(text(&other.key)),
        "key",
        "is not the key of the certificate in",
    );
    refused(&clients(missing()), "client_ca", "No such file");
    refused(
        &clients(good.key.clone()),
        "client_ca",
        "has no certificate",
    );
}

#[test]
fn notes_tell_of_keys_that_all_can_read_and_of_certificates_out_of_date() {
    let authority = Authority::new();
    let pair = authority.issue(|parameters| {
        parameters.not_after = rcgen::date_time_ymd(2001, 1, 1);
        parameters.not_before = rcgen::date_time_ymd(2000, 1, 1);
    });
    let files = authority.files(&pair);
    fs::set_permissions(&files.key, Permissions::from_mode(0o644)).unwrap();
    let notes = Certificates::load(&files).unwrap().notes();
    assert_eq!(notes.len(), 2, "{notes:?}");
    assert!(notes[0].contains("has expired") && notes[1].contains("chmod o-rw"));

    let early = authority.issue(|parameters| {
        parameters.not_before = rcgen::date_time_ymd(2900, 1, 1);
        parameters.not_after = rcgen::date_time_ymd(2901, 1, 1);
    });
    let notes = Certificates::load(&authority.files(&early))
        .unwrap()
        .notes();
    assert!(notes[0].contains("is not valid before"), "{notes:?}");
}

#[test]
fn changed_files_are_taken_up_after_a_second_and_broken_ones_are_not() {
    let authority = Authority::new();
    let files = authority.files(&authority.issue(|_| {}));
    let certificates = Certificates::load(&files).unwrap();
    let start = certificates.state.lock().unwrap().checked;
    let first = certificates.current(start);
    let mut second = 0;
    let mut next = || {
        second += 1;
        certificates.current(start + CHECK_INTERVAL * second)
    };
    assert!(Arc::ptr_eq(&first, &next()), "nothing has changed");

    // The certificate is replaced first, the key later.
    let pair = authority.issue(|_| {});
    authority.write("server.pem", &pair.certificate);
    assert!(Arc::ptr_eq(&first, &next()), "the key is missing yet");
    assert!(Arc::ptr_eq(&first, &next()));
    assert!(certificates.reload().is_err());
    authority.write("server.key", &pair.key);
    let early = certificates.current(start + CHECK_INTERVAL * 3 + CHECK_INTERVAL / 2);
    assert!(
        Arc::ptr_eq(&first, &early),
        "looked at once a second at most"
    );
    let fourth = next();
    assert!(!Arc::ptr_eq(&first, &fourth));

    fs::remove_file(&files.key).unwrap();
    assert!(Arc::ptr_eq(&fourth, &next()));
    authority.write("server.key", &pair.key);
    assert!(!Arc::ptr_eq(&fourth, &next()));

    let last = next();
    certificates.reload().unwrap();
    assert!(!Arc::ptr_eq(&last, &next()), "a reload asks for no change");
}

#[test]
fn a_client_is_known_by_its_common_name_or_its_first_other_name() {
    let authority = Authority::new();
    let name_of = |pair: &Pair| {
        let der = CertificateDer::from_pem_slice(pair.certificate.as_bytes()).unwrap();
        CertificateIdentity::of(&der).map(|identity| identity.name)
    };
    let named = |text: &str| name_of(&authority.client(text));
    assert_eq!(named("ops@example").as_deref(), Some("ops@example"));
    assert_eq!(named("a\nb\u{1b}[2J").as_deref(), Some("a?b?[2J"));
    assert_eq!(named(&"x".repeat(1000)).map(|name| name.len()), Some(256));
    let unnamed = |sans: Vec<SanType>| {
        name_of(&authority.issue(|parameters| {
            parameters.distinguished_name = rcgen::DistinguishedName::new();
            parameters.subject_alt_names = sans;
            parameters.serial_number = Some(vec![1, 0xab].into());
        }))
    };
    let dns = SanType::DnsName("scraper.example".try_into().unwrap());
    assert_eq!(unnamed(vec![dns]).as_deref(), Some("scraper.example"));
    let mail = SanType::Rfc822Name("ops@example".try_into().unwrap());
    assert_eq!(unnamed(vec![mail]).as_deref(), Some("ops@example"));
    assert_eq!(unnamed(vec![]).as_deref(), Some("certificate 1ab"));
    let odd = CertificateDer::from(vec![1, 2, 3]);
    assert_eq!(CertificateIdentity::of(&odd), None);
}

#[test]
fn common_names_and_other_names_of_dns_and_uri_can_have_entries() {
    let authority = Authority::new();
    let pair = authority.issue(|parameters| {
        let subject = &mut parameters.distinguished_name;
        subject.push(DnType::CommonName, "Storage Operations");
        subject.push(DnType::OrganizationName, "dns:organization");
        parameters.subject_alt_names = vec![
            SanType::DnsName("ops.example.org".try_into().unwrap()),
            SanType::DnsName("*.example.org".try_into().unwrap()),
            SanType::URI("spiffe://example.org/ops".try_into().unwrap()),
            SanType::Rfc822Name("ops@example.org".try_into().unwrap()),
            SanType::IpAddress(std::net::Ipv4Addr::LOCALHOST.into()),
        ];
    });
    let der = CertificateDer::from_pem_slice(pair.certificate.as_bytes()).unwrap();
    let entries = CertificateIdentity::of(&der).unwrap().entries;
    let entries: Vec<&str> = entries.iter().map(String::as_str).collect();
    let expected = [
        "cn:Storage Operations",
        "dns:*.example.org",
        "dns:ops.example.org",
        "uri:spiffe://example.org/ops",
    ];
    assert_eq!(entries, expected);
}

#[test]
fn a_certificate_of_version_1_is_told_as_that() {
    let folder = TempDir::new().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let files = Tls {
        certificate: file("certificate", include_str!("version1.pem")),
        key: file("key", &KeyPair::generate().unwrap().serialize_pem()),
        client_ca: None,
        client_auth: ClientAuth::None,
    };
    let error = Certificates::load(&files).expect_err("refused").to_string();
    assert!(
        error.contains("version 1") && error.contains("-extfile"),
        "{error}"
    );
}
