//! Why a command did not come about, and what to do about it.

use std::fmt::Write;
use std::io;
use std::process::ExitCode;

use millrace_admin::client::{Answer, ClientError, ClientTokenError, TlsFailure, TlsFileError};

use super::table::{plain, time};

/// Why a command did not come about.
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
    /// The command line or a file it names is of no use.
    #[error("{0}")]
    Usage(String),
    /// What is asked for cannot be, though nothing is wrong with the command line.
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

    /// 1 when the server refuses, 2 when it cannot be asked.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Refused(_) | Self::No(_) => ExitCode::FAILURE,
            _ => ExitCode::from(2),
        }
    }
}

/// Which option helps against an error of the requester.
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
            "; is millraced running, and is its `admin.listen` what --address says?"
        }
        ClientError::Time { .. } => "; --timeout allows more",
        ClientError::Tls { failure, .. } => match failure {
            TlsFailure::UnknownAuthority => "; --ca FILE names the authority to trust",
            TlsFailure::OtherName => "; ask by such a name in --address",
            TlsFailure::CertificateWanted => "; give one by --cert FILE and --key FILE",
            TlsFailure::CertificateRefused(_) => "; is --cert from the authority in its client_ca?",
            TlsFailure::Plain => "; write http:// in --address",
            TlsFailure::OutOfTime | TlsFailure::Other(_) => "",
        },
        _ => "",
    }
}

/// A refusal in words, part by part.
fn told(answer: &Answer) -> String {
    let status = answer.status;
    let mut text = match answer.problem() {
        Some(problem) => {
            let mut text = format!("the server answers {status}: {}", plain(&problem.detail));
            // Writing into a string has no way to fail.
            for error in &problem.errors {
                let message = plain(&error.message);
                let _ = match error.path.as_str() {
                    "" => write!(text, "\n  {message}"),
                    path => write!(text, "\n  {}: {message}", plain(path)),
                };
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
            "\n  nothing was changed; `millracectl config history` shows who was faster. Run the \
             command again to make the change on top of theirs"
        }
        _ => "",
    });
    text
}
