//! Options of every command: where the server is, and how to be known there.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use millrace_admin::client::{Client, TlsFiles, Token};
use millrace_admin::config::parse_duration;

use super::failure::Failure;

/// The token's file where nothing else is said, if it can be read.
const TOKEN_FILE: &str = "/etc/millrace/token";

/// How long an answer may take where nothing else is said.
const TIMEOUT: Duration = Duration::from_secs(15);

/// Where the server is, and how to be known there. The identifiers are apart from those of the
/// commands' own arguments, which are told by name, too.
#[derive(Args)]
#[command(next_help_heading = "Server")]
pub struct Options {
    /// Where the server's management plane listens: `admin.listen` of its configuration.
    #[arg(
        id = "server_address",
        long = "address",
        global = true,
        value_name = "URL",
        env = "MILLRACE_ADDRESS",
        default_value = "http://127.0.0.1:9620"
    )]
    pub address: String,
    /// The token that allows changes [default: /etc/millrace/token, if it can be read and the
    /// server is on this host or asked by https].
    #[arg(
        id = "server_token_file",
        long = "token-file",
        global = true,
        value_name = "FILE",
        env = "MILLRACE_TOKEN_FILE"
    )]
    pub token_file: Option<PathBuf>,
    /// For https: the certificate of the authority that the server's is from, in PEM.
    #[arg(
        id = "server_ca",
        long = "ca",
        global = true,
        value_name = "FILE",
        env = "MILLRACE_CA"
    )]
    pub ca: Option<PathBuf>,
    /// For https: a certificate to be known by, in PEM.
    #[arg(
        id = "server_cert",
        long = "cert",
        global = true,
        value_name = "FILE",
        env = "MILLRACE_CERT"
    )]
    pub cert: Option<PathBuf>,
    /// For https: the private key of --cert.
    #[arg(
        id = "server_key",
        long = "key",
        global = true,
        value_name = "FILE",
        env = "MILLRACE_KEY"
    )]
    pub key: Option<PathBuf>,
    /// How long an answer may take, with us, ms or s [default: 15s]; for wait-ready, how long to
    /// wait [default: 30s].
    #[arg(id = "server_timeout", long = "timeout", global = true, value_name = "DURATION", value_parser = duration)]
    pub timeout: Option<Duration>,
}

/// Reads a duration of the command line.
pub fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).map_err(|error| error.to_string())
}

impl Options {
    /// The requester for the server.
    pub fn client(&self) -> Result<Client, Failure> {
        let mut client = Client::new(&self.address)?.with_timeout(self.timeout.unwrap_or(TIMEOUT));
        client = match (&self.ca, &self.cert, &self.key) {
            (None, None, None) => client,
            (None, ..) => {
                return Err(Failure::usage(
                    "--cert and --key are for https; give --ca, too",
                ));
            }
            (Some(_), Some(_), None) | (Some(_), None, Some(_)) => {
                return Err(Failure::usage(
                    "--cert and --key go together; one is missing",
                ));
            }
            (Some(authority), certificate, key) => {
                let files = TlsFiles {
                    authority: authority.clone(),
                    identity: certificate.clone().zip(key.clone()),
                };
                client.with_tls(files.load()?)
            }
        };
        Ok(match self.token(client.is_private())? {
            Some(token) => client.with_token(token),
            None => client,
        })
    }

    /// The token. One that nobody asked for is not sent where others on the way could read it.
    fn token(&self, private: bool) -> Result<Option<Token>, Failure> {
        match &self.token_file {
            Some(file) => Ok(Some(Token::read(file)?)),
            None => {
                let readable = private && File::open(TOKEN_FILE).is_ok();
                let token = readable.then(|| Token::read(Path::new(TOKEN_FILE)));
                Ok(token.transpose()?)
            }
        }
    }
}
