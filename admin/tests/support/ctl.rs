//! The command line, as scripts and people run it.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;

use millrace_admin::api::AdminHandle;
use millrace_admin::config::{Admin, Config, to_yaml};

use super::Service;

/// The token of the service. No output ever has it.
pub const TOKEN: &str = "a-token-of-the-tests";

/// A service with a token and a configuration file, and a folder for the test's own files.
pub struct Bench {
    pub folder: tempfile::TempDir,
    pub service: Arc<Service>,
    pub admin: AdminHandle,
    address: String,
}

impl Bench {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let token = folder.path().join("token");
        std::fs::write(&token, format!("{TOKEN}\n")).unwrap();
        let config = Config {
            admin: Admin {
                token_file: Some(token),
                ..Admin::default()
            },
            ..Config::default()
        };
        let file = folder.path().join("millraced.yaml");
        std::fs::write(&file, to_yaml(&config)).unwrap();
        let service = Service::new(config);
        let admin = service.serve_file(Some(file));
        let address = format!("http://{}", admin.address());
        Self {
            folder,
            service,
            admin,
            address,
        }
    }

    /// A file of the test's.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let file = self.file(name);
        std::fs::write(&file, text).unwrap();
        file
    }

    /// A command with the server's address and its token.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = ctl();
        command
            .env("MILLRACE_ADDRESS", &self.address)
            .env("MILLRACE_TOKEN_FILE", self.file("token"))
            .env("TMPDIR", self.folder.path())
            .args(arguments);
        command
    }

    /// Runs a command that ends with this status; gives what it says and what it complains of.
    pub fn ends(&self, status: i32, arguments: &[&str]) -> (String, String) {
        ended(status, self.command(arguments).output().unwrap())
    }

    /// Runs a command that succeeds, and gives what it says.
    pub fn says(&self, arguments: &[&str]) -> String {
        self.ends(0, arguments).0
    }

    /// As [`Bench::says`], as JSON.
    pub fn json(&self, arguments: &[&str]) -> serde_json::Value {
        let text = self.says(&[arguments, &["--json"]].concat());
        serde_json::from_str(&text).unwrap()
    }
}

/// The program, without what the environment of the test may have for it.
pub fn ctl() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_millracectl"));
    for name in ["ADDRESS", "TOKEN_FILE", "CA", "CERT", "KEY"] {
        command.env_remove(format!("MILLRACE_{name}"));
    }
    command.env_remove("VISUAL").env_remove("EDITOR");
    command.stdin(Stdio::null());
    command
}

/// Starts a command with something to say to it.
pub fn told(mut command: Command, input: &str) -> Child {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(input.as_bytes())
        .unwrap();
    child
}

/// What a program said and what it complained of, if it ended with this status.
pub fn ended(status: i32, output: Output) -> (String, String) {
    let said = String::from_utf8(output.stdout).unwrap();
    let complained = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(status), "{said}\n{complained}");
    for text in [&said, &complained] {
        assert!(!text.contains(TOKEN), "the token is in:\n{text}");
    }
    (said, complained)
}

/// Says which words are missing.
pub fn has(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "no {word:?} in:\n{text}");
    }
}
