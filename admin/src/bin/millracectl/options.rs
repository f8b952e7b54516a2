//! Options of every command: the server's address, and authentication.

use std::fs::{self, Metadata};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use millrace_admin::client::{Client, ClientToken, TlsFiles};
use millrace_admin::config::parse_duration;

use super::failure::Failure;

/// The default token file, if it can be read.
const TOKEN_FILE: &str = "/etc/millrace/token";

/// The default socket, if it is accessible.
const SOCKET: &str = "/run/millrace/admin.sock";
/// The default address without a socket.
const ADDRESS: &str = "http://127.0.0.1:9620";

/// The default timeout.
const TIMEOUT: Duration = Duration::from_secs(15);

/// The server's address, and authentication. The argument identifiers differ from those of the
/// commands' own arguments, which are looked up by name, too.
#[derive(Args)]
#[command(next_help_heading = "Server")]
pub struct Options {
    /// Address of the server's management plane: http://HOST:PORT, https://HOST:PORT or unix:/PATH
    /// [default: unix:/run/millrace/admin.sock if accessible, else http://127.0.0.1:9620].
    #[arg(
        id = "server_address",
        long = "address",
        global = true,
        value_name = "URL",
        env = "MILLRACE_ADDRESS"
    )]
    pub address: Option<String>,
    /// The file with the token that allows changes [default: /etc/millrace/token].
    #[arg(
        id = "server_token_file",
        long = "token-file",
        global = true,
        value_name = "FILE",
        env = "MILLRACE_TOKEN_FILE"
    )]
    pub token_file: Option<PathBuf>,
    /// For https: the authority's certificate, in PEM.
    #[arg(
        id = "server_ca",
        long = "ca",
        global = true,
        value_name = "FILE",
        env = "MILLRACE_CA"
    )]
    pub ca: Option<PathBuf>,
    /// For https: the client's certificate, in PEM.
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
    /// The server's configuration file, which root's millracectl writes for --persist if the server
    /// may not.
    #[arg(
        id = "server_config_file",
        long = "config-file",
        global = true,
        value_name = "FILE",
        env = "MILLRACE_CONFIG_FILE",
        default_value = "/etc/millrace/millraced.yaml"
    )]
    pub config_file: PathBuf,
    /// Timeout of an answer [default: 15s; 30s for wait-ready].
    #[arg(id = "server_timeout", long = "timeout", global = true, value_name = "DURATION", value_parser = duration)]
    pub timeout: Option<Duration>,
}

/// Reads a duration of the command line.
pub fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).map_err(|error| error.to_string())
}

impl Options {
    /// The server's address. Users without access to the socket's folder use TCP.
    fn address(&self) -> String {
        let is_socket = |about: Metadata| about.file_type().is_socket();
        match &self.address {
            Some(address) => address.clone(),
            None if fs::metadata(SOCKET).is_ok_and(is_socket) => format!("unix:{SOCKET}"),
            None => ADDRESS.to_owned(),
        }
    }

    /// The requester for queries, which usually need no token.
    pub fn client(&self) -> Result<Client, Failure> {
        let mut client =
            Client::new(&self.address())?.with_timeout(self.timeout.unwrap_or(TIMEOUT));
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
        Ok(client)
    }

    /// The requester for changes: with the token, if there is one. The default token file is
    /// ignored if it is not usable, and its token is not sent where it could be read on the
    /// network.
    pub fn changing(&self, client: &Client) -> Result<Client, Failure> {
        let token = match &self.token_file {
            Some(file) => Some(ClientToken::read(file)?),
            None if client.is_private() => ClientToken::read(Path::new(TOKEN_FILE)).ok(),
            None => None,
        };
        let client = client.clone();
        Ok(match token {
            Some(token) => client.with_token(token),
            None => client,
        })
    }
}
