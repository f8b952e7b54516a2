//! Roles of client certificates, over HTTPS.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use millrace_admin::api::AdminHandle;
use millrace_admin::client::{Answer, Client, ClientToken, Method, Order, Session, TlsFiles};
use millrace_admin::config::{Admin, ClientAuth, Config, ReadToken, Tls};
use millrace_admin::roles::{Role, hash};
use millrace_admin::status::{ProblemType, RequesterProof, RequesterStatus};
use rcgen::DnType;
use serde_json::Value;
use support::Service;
use support::ctl::{ctl, ended, has};
use support::tls::Authority;

mod support;

const READER: &str = "a-token-that-may-read";
const OPERATOR: &str = "a-token-that-may-operate";

struct CertificateBench {
    folder: tempfile::TempDir,
    authority: Authority,
    _service: Arc<Service>,
    admin: AdminHandle,
}

impl CertificateBench {
    /// A server with these lines in its file of roles.
    fn new(lines: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new();
        let client_ca = Some(authority.write(folder.path()));
        let server = authority.issue("127.0.0.1", |_| {});
        let (certificate, key) = server.write(folder.path());
        let config = Config {
            admin: Admin {
                roles_file: Some(folder.path().join("roles")),
                audit_file: Some(folder.path().join("audit")),
                read_token: ReadToken::Required,
                tls: Some(Tls {
                    certificate,
                    key,
                    client_ca,
                    client_auth: ClientAuth::Optional,
                }),
                ..Admin::default()
            },
            ..Config::default()
        };
        let service = Service::new(config);
        let admin = service.serve_tls();
        let bench = Self {
            folder,
            authority,
            _service: service,
            admin,
        };
        bench.roles(lines);
        bench
    }

    fn roles(&self, lines: &str) {
        fs::write(self.folder.path().join("roles"), lines).unwrap();
    }

    /// The files of a client whose certificate has a common name and a DNS name.
    fn files(&self, common: &str, dns: &str) -> (PathBuf, PathBuf) {
        let identity = self.authority.issue(dns, |parameters| {
            parameters
                .distinguished_name
                .push(DnType::CommonName, common);
        });
        let folder = self.folder.path().join(common);
        fs::create_dir_all(&folder).unwrap();
        identity.write(&folder)
    }

    fn address(&self) -> String {
        format!("https://{}", self.admin.address())
    }

    fn client(&self, identity: Option<(PathBuf, PathBuf)>) -> Client {
        let files = TlsFiles {
            authority: self.folder.path().join("ca.pem"),
            identity,
        };
        let client = Client::new(&self.address()).unwrap();
        client.with_tls(files.load().unwrap())
    }

    fn token(&self, token: &str) -> ClientToken {
        let file = self.folder.path().join("sent");
        fs::write(&file, token).unwrap();
        ClientToken::read(&file).unwrap()
    }

    /// Author and outcome of what was tried.
    fn audit(&self) -> Vec<(String, String)> {
        let text = fs::read_to_string(self.folder.path().join("audit")).unwrap();
        let line = |line: &str| {
            let line: Value = serde_json::from_str(line).unwrap();
            let word = |key: &str| line[key].as_str().unwrap().to_owned();
            (word("author"), word("outcome"))
        };
        text.lines().map(line).collect()
    }
}

fn list(client: &Client) -> Answer {
    client.get("/api/v1/exports").unwrap()
}

fn ban(client: &Client) -> Answer {
    let order = Order::new(Method::Put, "/api/v1/clients/192.0.2.99/ban");
    let order = order.with_body("application/json", r#"{"seconds":60}"#);
    client.send(&order).unwrap()
}

fn configure(client: &Client) -> Answer {
    let order = Order::new(Method::Patch, "/api/v1/config").if_match("*");
    let order = order.with_body("application/merge-patch+json", r#"{"log":"debug"}"#);
    client.send(&order).unwrap()
}

#[test]
fn a_certificate_may_do_what_its_role_permits_without_a_token() {
    let bench = CertificateBench::new(
        "certificate cn:rita read\ncertificate dns:ops.example.org operate\n\
         certificate cn:ada admin\n",
    );
    let rita = bench.client(Some(bench.files("rita", "rita.example.org")));
    assert_eq!(list(&rita).status, 200);
    let refused = ban(&rita);
    assert_eq!(refused.status, 403);
    let problem = refused.problem().unwrap();
    assert_eq!(problem.kind, ProblemType::Forbidden.uri());
    has(&problem.detail, &["cn:rita has the role read", "operate"]);
    let otto = bench.client(Some(bench.files("otto", "ops.example.org")));
    assert_eq!(ban(&otto).status, 200);
    assert_eq!(configure(&otto).status, 403);
    let ada = bench.client(Some(bench.files("ada", "ada.example.org")));
    assert_eq!(configure(&ada).status, 200);
    let pairs = bench.audit();
    let pairs: Vec<(&str, &str)> = pairs.iter().map(|(a, b)| (&**a, &**b)).collect();
    let expected = [
        ("cn:rita", "refused"),
        ("dns:ops.example.org", "done"),
        ("dns:ops.example.org", "refused"),
        ("cn:ada", "applied"),
    ];
    assert_eq!(pairs, expected);
}

#[test]
fn a_requester_is_told_its_name_and_role() {
    let bench = CertificateBench::new(
        "certificate dns:ops.example.org operate\ncertificate cn:ada admin\n",
    );
    let told = |client: &Client| -> (Option<String>, Option<Role>, Option<RequesterProof>) {
        let answer = client.get("/api/v1/whoami").unwrap();
        assert_eq!(answer.status, 200, "{answer:?}");
        let RequesterStatus { name, role, by } = answer.value().unwrap();
        (name, role, by)
    };
    let name = |name: &str| Some(name.to_owned());
    let certificate = Some(RequesterProof::Certificate);
    let otto = bench.client(Some(bench.files("otto", "ops.example.org")));
    let operates = (
        name("dns:ops.example.org"),
        Some(Role::Operate),
        certificate,
    );
    assert_eq!(told(&otto), operates);
    let ada = || bench.client(Some(bench.files("ada", "ada.example.org")));
    assert_eq!(
        told(&ada()),
        (name("cn:ada"), Some(Role::Admin), certificate)
    );
    // A certificate without a role has a name. Neither it nor who has none may read anything else.
    let eve = bench.client(Some(bench.files("eve", "eve.example.org")));
    let (eve_name, role, by) = told(&eve);
    assert!(eve_name.unwrap().contains("eve"));
    assert_eq!((role, by), (None, certificate));
    let stranger = bench.client(None);
    assert_eq!(told(&stranger), (None, None, None));
    assert_eq!(list(&stranger).status, 401);
    bench.roles("certificate cn:ada read\n");
    assert_eq!(
        told(&ada()),
        (name("cn:ada"), Some(Role::Read), certificate)
    );
}

#[test]
fn a_certificate_without_an_entry_leaves_it_to_the_token() {
    let token = format!("token otto operate {}\n", hash(OPERATOR));
    // Of other kinds, and parts of its names.
    let bench = CertificateBench::new(&format!(
        "{token}certificate dns:eve admin\ncertificate cn:eve.example.org admin\n\
         certificate dns:example.org admin\ncertificate dns:*.example.org admin\n"
    ));
    for identity in [None, Some(bench.files("eve", "eve.example.org"))] {
        let eve = bench.client(identity);
        assert_eq!(list(&eve).status, 401);
        assert_eq!(ban(&eve).status, 401);
        let eve = eve.with_token(bench.token(OPERATOR));
        assert_eq!(list(&eve).status, 200);
        assert_eq!(ban(&eve).status, 200);
    }
    let done = ("otto".to_owned(), "done".to_owned());
    assert_eq!(bench.audit(), [done.clone(), done]);
}

#[test]
fn a_token_that_is_sent_decides_alone() {
    let token = format!("token reader read {}\n", hash(READER));
    let bench = CertificateBench::new(&format!("{token}certificate cn:ada admin\n"));
    let ada = bench.files("ada", "ada.example.org");
    let ada = || bench.client(Some(ada.clone()));
    assert_eq!(ban(&ada()).status, 200);
    let lower = ada().with_token(bench.token(READER));
    assert_eq!(list(&lower).status, 200);
    assert_eq!(ban(&lower).status, 403);
    // Guesses count as those without a certificate do.
    let wrong = ada().with_token(bench.token("none-of-the-known-tokens"));
    assert_eq!(ban(&wrong).status, 401);
    while ban(&wrong).status == 401 {}
    assert_eq!(ban(&wrong).status, 429);
}

#[test]
fn an_entry_that_is_taken_out_gives_no_role_to_an_open_connection_either() {
    let bench = CertificateBench::new("certificate cn:ada admin\n");
    let ada = bench.client(Some(bench.files("ada", "ada.example.org")));
    let mut session = Session::new(ada).unwrap();
    let mut status = || session.get("/api/v1/exports").unwrap().status;
    assert_eq!(status(), 200);
    bench.roles("certificate cn:other admin\n");
    assert_eq!(status(), 401);
    bench.roles("certificate cn:ada\n");
    assert_eq!(status(), 503);
    bench.roles("certificate cn:ada read\n");
    assert_eq!(status(), 200);
}

#[test]
fn the_command_line_needs_no_token_where_the_certificate_has_a_role() {
    let bench = CertificateBench::new("certificate cn:otto operate\n");
    let (certificate, key) = bench.files("otto", "otto.example.org");
    let mut command = ctl();
    command.args(["--address", &bench.address(), "--ca"]);
    command.arg(bench.folder.path().join("ca.pem"));
    command.arg("--cert").arg(certificate).arg("--key").arg(key);
    command.args(["clients", "ban", "192.0.2.99", "--for", "60s"]);
    ended(0, command.output().unwrap());
    let done = ("cn:otto".to_owned(), "done".to_owned());
    assert_eq!(bench.audit(), [done]);
}
