//! Protection of the connections to the management plane.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::validate::Problems;
use super::{Admin, KeyPath};

/// HTTPS instead of HTTP. The files are PEM; they are reloaded when they change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    /// The server's certificate, followed by the intermediate certificates.
    #[schema(value_type = String)]
    pub certificate: PathBuf,
    /// Its private key: PKCS#8, PKCS#1 or SEC1.
    #[schema(value_type = String)]
    pub key: PathBuf,
    /// The authorities that issue clients' certificates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub client_ca: Option<PathBuf>,
    /// Whether clients present certificates.
    #[serde(default)]
    pub client_auth: ClientAuth,
}

/// Whether clients present certificates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ClientAuth {
    /// Not requested.
    #[default]
    None,
    /// Optional; an invalid certificate ends the connection.
    Optional,
    /// Required for everything, including `/healthz`.
    Required,
}

/// Where HTTP without TLS is permitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum PlainHttp {
    /// At addresses of this host only.
    #[default]
    Loopback,
    /// At any address.
    Anywhere,
}

/// The rules of the management plane's protection.
pub(super) fn check(problems: &mut Problems, path: &KeyPath, admin: &Admin) {
    let listen = admin.listen;
    if admin.tls.is_none()
        && admin.plain_http == PlainHttp::Loopback
        && !listen.ip().to_canonical().is_loopback()
    {
        let message = format!(
            "{listen} is not loopback, and without TLS the token could be read on the network and \
             used; give admin.tls a certificate and a key, listen on 127.0.0.1:{}, or write \
             plain_http: anywhere if the network is trusted",
            listen.port()
        );
        problems.add(&path.key("listen"), message);
    }
    let Some(tls) = &admin.tls else { return };
    let path = path.key("tls");
    problems.absolute(&path.key("certificate"), &tls.certificate);
    problems.absolute(&path.key("key"), &tls.key);
    if let Some(file) = &tls.client_ca {
        problems.absolute(&path.key("client_ca"), file);
    }
    match (tls.client_auth, &tls.client_ca) {
        (ClientAuth::None, Some(_)) => problems.add(
            &path.key("client_ca"),
            "it has no effect, as clients are not asked for certificates; write client_auth: \
             required or optional beside it, or leave it out",
        ),
        (ClientAuth::Optional | ClientAuth::Required, None) => problems.add(
            &path.key("client_auth"),
            "client_ca is missing: the file with the authorities that issue clients' certificates",
        ),
        _ => {}
    }
}
