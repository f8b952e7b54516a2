//! What `millraced` makes of the files of `admin.tls`.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rcgen::{CertifiedKey, generate_simple_self_signed};

fn folder() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("millraced-tls");
    fs::create_dir_all(&folder).expect("a folder for tests");
    folder
}

/// What `--check` says, and its status.
fn check(name: &str, tls: &str) -> (Option<i32>, String) {
    let file = folder().join(format!("{name}.yaml"));
    let folder = folder();
    let tls = tls.replace("DIR", &folder.display().to_string());
    // Beside a server that has port 2049.
    let text = format!("admin: {{ tls: {{ {tls} }} }}\nrpc: {{ listen: \"127.0.0.1:0\" }}\n");
    fs::write(&file, text).expect("written");
    let ran = Command::new(env!("CARGO_BIN_EXE_millraced"))
        .args(["--check", "--config"])
        .arg(&file)
        .output()
        .expect("runs");
    let said = [ran.stdout, ran.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    (
        ran.status.code(),
        said.replace(&folder.display().to_string(), "DIR"),
    )
}

#[test]
fn check_reads_the_files_and_says_which_of_them_is_bad_and_why() {
    for name in ["one", "two"] {
        let names = vec!["localhost".to_owned()];
        let CertifiedKey { cert, signing_key } = generate_simple_self_signed(names).expect("made");
        fs::write(folder().join(format!("{name}.pem")), cert.pem()).expect("written");
        let key = folder().join(format!("{name}.key"));
        fs::write(&key, signing_key.serialize_pem()).expect("written");
        use std::os::unix::fs::PermissionsExt;
        let mode = if name == "one" { 0o600 } else { 0o644 };
        fs::set_permissions(&key, fs::Permissions::from_mode(mode)).expect("changed");
    }
    let (status, said) = check("good", "certificate: DIR/one.pem, key: DIR/one.key");
    assert!(
        status == Some(0) && said.contains("good") && !said.contains("admin.tls"),
        "{said}"
    );
    let (status, said) = check("exposed", "certificate: DIR/two.pem, key: DIR/two.key");
    assert!(
        status == Some(0) && said.contains("note: admin.tls.key: every user"),
        "{said}"
    );
    for (name, tls, words) in [
        (
            "mismatch",
            "certificate: DIR/one.pem, key: DIR/two.key",
            "admin.tls.key: DIR/two.key: is not the key of the certificate in DIR/one.pem",
        ),
        (
            "missing",
            "certificate: DIR/no.pem, key: DIR/two.key",
            "admin.tls.certificate: DIR/no.pem: No such file",
        ),
        (
            "clients",
            "certificate: DIR/one.pem, key: DIR/one.key, client_ca: DIR/one.key, \
             client_auth: required",
            "admin.tls.client_ca: DIR/one.key: has no certificate",
        ),
    ] {
        let (status, said) = check(name, tls);
        assert!(status == Some(2) && said.contains(words), "{said}");
        let place = format!("DIR/{name}.yaml:1:");
        assert!(said.starts_with(&place), "{said}");
    }
}

/// A running server, ended with the test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Reads lines up to one with these words.
fn until(log: &mut impl BufRead, words: &str) {
    let mut read = String::new();
    loop {
        let before = read.len();
        let length = log.read_line(&mut read).expect("text");
        assert!(length > 0, "no `{words}` in {read}");
        if read[before..].contains(words) {
            return;
        }
    }
}

#[test]
fn a_hang_up_has_the_certificates_read_again() {
    let folder = folder();
    let make = || {
        let names = vec!["localhost".to_owned()];
        let CertifiedKey { cert, signing_key } = generate_simple_self_signed(names).expect("made");
        fs::write(folder.join("hang-up.pem"), cert.pem()).expect("written");
        fs::write(folder.join("hang-up.key"), signing_key.serialize_pem()).expect("written");
    };
    make();
    let file = folder.join("hang-up.yaml");
    let place = folder.display();
    let text = format!(
        "reactors: {{ poll: adaptive }}\n\
         mempool: {{ hugepages: off, size: 8MiB }}\n\
         fabric: []\n\
         rpc: {{ listen: \"127.0.0.1:0\" }}\n\
         admin:\n  listen: \"127.0.0.1:0\"\n\
         \x20 tls: {{ certificate: {place}/hang-up.pem, key: {place}/hang-up.key }}\n"
    );
    fs::write(&file, text).expect("written");
    let mut process = Command::new(env!("CARGO_BIN_EXE_millraced"))
        .arg("--config")
        .arg(&file)
        .stderr(Stdio::piped())
        .spawn()
        .expect("runs");
    let mut log = BufReader::new(process.stderr.take().expect("piped"));
    let server = Server(process);
    let hang_up = || {
        let process = server.0.id().to_string();
        let sent = Command::new("kill").args(["-HUP", &process]).status();
        assert!(sent.expect("runs").success());
    };
    until(&mut log, "admin plane at https://");
    // No connection is made, which would have files looked at that have changed.
    make();
    hang_up();
    until(
        &mut log,
        "the certificates of the management plane were reloaded",
    );
    fs::write(folder.join("hang-up.key"), "no key").expect("written");
    hang_up();
    until(&mut log, "the previous certificates stay in use");
    // What the rest of the file says is put in force all the same.
    until(&mut log, "the configuration was reloaded");
}
