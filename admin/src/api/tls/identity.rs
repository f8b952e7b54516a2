//! The names in a client's certificate.

use std::collections::BTreeSet;

use rustls::pki_types::CertificateDer;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use crate::roles::CertificateKind;

/// The most characters of the name in records.
const NAME_MAX: usize = 256;

/// Who a client is by its certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateIdentity {
    /// The name in records: the common name, else the first other name, else the serial number.
    pub name: String,
    /// The names that entries of `admin.roles_file` can have, as they are written there.
    pub entries: BTreeSet<String>,
}

impl CertificateIdentity {
    /// That of a certificate, which the handshake has verified; `None` if it cannot be parsed. Its
    /// length is limited by the handshake.
    pub fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
        let common = certificate.subject().iter_common_name();
        let common: Vec<&str> = common.filter_map(|name| name.as_str().ok()).collect();
        // An extension that stands twice, or is malformed, names nobody.
        let others = certificate.subject_alternative_name().ok().flatten();
        let others = others.map_or(&[][..], |names| &names.value.general_names);
        let name = common.first().filter(|name| !name.is_empty());
        let name = name.map(|name| (*name).to_owned());
        let name = name.or_else(|| others.first().map(words));
        let name = name.unwrap_or_else(|| format!("certificate {:x}", certificate.serial));
        let common = common
            .iter()
            .map(|name| CertificateKind::Common.entry(name));
        let others = others.iter().filter_map(|name| match name {
            GeneralName::DNSName(name) => Some(CertificateKind::Dns.entry(name)),
            GeneralName::URI(name) => Some(CertificateKind::Uri.entry(name)),
            _ => None,
        });
        // The name is logged.
        let plain = |c: char| if c.is_control() { '?' } else { c };
        Some(Self {
            name: name.chars().take(NAME_MAX).map(plain).collect(),
            entries: common.chain(others).collect(),
        })
    }
}

fn words(name: &GeneralName<'_>) -> String {
    match name {
        GeneralName::DNSName(text) | GeneralName::RFC822Name(text) | GeneralName::URI(text) => {
            (*text).to_owned()
        }
        name => name.to_string(),
    }
}
