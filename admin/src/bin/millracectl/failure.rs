//! Errors of commands, and hints for the user.

use std::fmt::Write;
use std::io;
use std::process::ExitCode;

use millrace_admin::client::{Answer, ClientError, ClientTokenError, TlsFailure, TlsFileError};

use super::table::{plain, time};

/// The error of a command.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error("{0}{hint}", hint = hint(.0))]
    Client(#[from] ClientError),
    #[error("{0}")]
    Token(#[from] ClientTokenError),
    #[error("{0}")]
    TlsFile(#[from] TlsFileError),
    #[error("{}", told(.0))]
    Refused(Box<Answer>),
    #[error("the answer of the server is not understood (is it of another version?): {0}")]
    Answer(#[from] serde_json::Error),
    #[error("cannot read or write: {0}")]
    Io(#[from] io::Error),
    /// The command line, or a file that it names, is invalid.
    #[error("{0}")]
    Usage(String),
    /// The request is not possible, though the command line is valid.
    #[error("{0}")]
    No(String),
}

impl Failure {
    pub fn usage(text: impl Into<String>) -> Self {
        Self::Usage(text.into())
    }

    pub fn no(text: impl Into<String>) -> Self {
        Self::No(text.into())
    }

    /// 1 when the server refuses, 2 when it cannot be reached.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Refused(_) | Self::No(_) => ExitCode::FAILURE,
            _ => ExitCode::from(2),
        }
    }
}

/// The option that helps with an error of the requester.
fn hint(error: &ClientError) -> &'static str {
    match error {
        ClientError::NoTrust { .. } => "; give it by --ca FILE (or MILLRACE_CA)",
        ClientError::Connect { authority, source } if authority.starts_with("unix:") => {
            match source.kind() {
                io::ErrorKind::PermissionDenied => {
                    "; only root and the server's user and group may use its socket: try sudo, or \
                     --address http://127.0.0.1:9620 with a token for changes"
                }
                _ => "; is millraced running, and is this `admin.socket` of its configuration?",
            }
        }
        ClientError::Connect { .. } => {
            "; is millraced running, and is its `admin.listen` the address of --address?"
        }
        ClientError::Time { .. } => "; --timeout extends this",
        ClientError::Tls { failure, .. } => match failure {
            TlsFailure::UnknownAuthority => "; use --ca FILE for the authority to trust",
            TlsFailure::OtherName => "; use one of its names in --address",
            TlsFailure::CertificateWanted => "; give one by --cert FILE and --key FILE",
            TlsFailure::CertificateRefused(_) => {
                "; was --cert issued by the authority in its client_ca?"
            }
            TlsFailure::Plain => "; write http:// in --address",
            TlsFailure::OutOfTime | TlsFailure::Other(_) => "",
        },
        _ => "",
    }
}

/// A refusal as text, part by part.
fn told(answer: &Answer) -> String {
    let status = answer.status;
    let mut text = match answer.problem() {
        Some(problem) => {
            let mut text = format!("the server answers {status}: {}", plain(&problem.detail));
            // Writing to a string does not fail.
            for error in &problem.errors {
                let message = plain(&error.message);
                let _ = match error.path.as_str() {
                    "" => write!(text, "\n  {message}"),
                    path => write!(text, "\n  {}: {message}", plain(path)),
                };
            }
            for one in &problem.uses {
                let (resource, message) = (plain(&one.resource), plain(&one.message));
                let _ = write!(text, "\n  {resource}: {message}");
                if !one.clients.is_empty() {
                    let _ = write!(text, " ({})", plain(&one.clients.join(", ")));
                }
            }
            for reactor in &problem.reactors {
                let name = plain(&reactor.name);
                let _ = match &reactor.error {
                    Some(error) => write!(text, "\n  {name}: {}", plain(error)),
                    None => write!(text, "\n  {name}: after {}", time(reactor.seconds)),
                };
            }
            text
        }
        None => format!("the server answers {status}: {}", plain(answer.body.trim())),
    };
    text.push_str(match status {
        401 => {
            "\n  this needs the server's token: --token-file FILE (or MILLRACE_TOKEN_FILE) with \
             what `admin.token_file` of the server has"
        }
        412 => {
            "\n  nothing was changed; `millracectl config history` shows the other change. Run the \
             command again to add yours to it"
        }
        _ => "",
    });
    text
}
