//! A realm: folder, KDC and principals.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The realm's name.
pub const REALM: &str = "MILLRACE.TEST";
/// The variable with the folder of the realm that a test runs in.
const FOLDER: &str = "MILLRACE_TEST_REALM";
/// How often another port is tried.
const PORTS_TRIED: usize = 5;

/// What differs between realms.
pub struct RealmOptions<'a> {
    /// Encryption types of keys, as the KDC names them.
    pub keys: &'a str,
    /// Encryption types that clients may use; empty: the library's default.
    pub permitted: &'a str,
    /// Longest life of a ticket.
    pub life: &'a str,
    /// A clock for `faketime`: the test is run with the machine's clock, and then with this one.
    pub clock: &'a str,
}

impl Default for RealmOptions<'_> {
    fn default() -> Self {
        Self {
            keys: "aes256-cts-hmac-sha384-192:normal aes256-cts-hmac-sha1-96:normal \
                   aes128-cts-hmac-sha256-128:normal aes128-cts-hmac-sha1-96:normal",
            permitted: "",
            life: "10h",
            clock: "",
        }
    }
}

/// A realm with a user `user1`, a machine `host/client.test` and a service `nfs/server.test`; their
/// keytabs are in its folder.
pub struct Realm {
    folder: PathBuf,
    /// The folder of the one that started the realm, which ends it.
    _owned: Option<tempfile::TempDir>,
}

/// Runs a test in a realm, in a process of its own: the library reads its configuration from the
/// environment. Skips it where there is no KDC.
pub fn in_realm(test: &str, options: &RealmOptions<'_>, body: impl FnOnce(&Realm)) {
    if let Some(realm) = Realm::of_process() {
        return body(&realm);
    }
    let mut tools = vec!["krb5kdc", "kdb5_util", "kadmin.local", "kinit", "kvno"];
    if !options.clock.is_empty() {
        tools.push("faketime");
    }
    if let Some(missing) = tools.into_iter().find(|tool| !is_installed(tool)) {
        millrace_testing::skip!("{missing} is not installed");
        return;
    }
    let realm = Realm::start(options);
    realm.run_test(test, "");
    if !options.clock.is_empty() {
        realm.run_test(test, options.clock);
    }
}

fn is_installed(tool: &str) -> bool {
    let mut folders = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"].into_iter();
    folders.any(|folder| Path::new(folder).join(tool).exists())
}

impl Realm {
    /// The realm that this process was started in.
    pub fn of_process() -> Option<Self> {
        let folder = env::var_os(FOLDER)?.into();
        Some(Self {
            folder,
            _owned: None,
        })
    }

    /// Starts a KDC.
    pub fn start(options: &RealmOptions<'_>) -> Self {
        let owned = tempfile::tempdir().expect("a folder");
        let realm = Self {
            folder: owned.path().to_owned(),
            _owned: Some(owned),
        };
        fs::write(realm.file("acl"), "").expect("written");
        realm.configure(options, 1);
        realm.run("kdb5_util", &["-P", "master", "create", "-s", "-r", REALM]);
        realm.admin("addprinc -randkey nfs/server.test");
        realm.admin("addprinc -randkey host/client.test");
        realm.admin("addprinc -pw secret user1");
        realm.take_keys("nfs/server.test", "nfs.keytab");
        realm.take_keys("host/client.test", "host.keytab");
        realm.take_keys("user1", "user1.keytab");
        for _ in 0..PORTS_TRIED {
            realm.configure(options, free_port());
            let pid = realm.path("kdc.pid");
            let mut kdc = realm.command("krb5kdc", &["-P", &pid, "-r", REALM]);
            // It serves once it has put itself into the background.
            if kdc.stdout(Stdio::null()).status().expect("a KDC").success() {
                return realm;
            }
        }
        panic!(
            "the KDC does not start: {:?}",
            fs::read_to_string(realm.file("kdc.log"))
        );
    }

    /// This program in the realm, with a clock of its own if one is named.
    pub fn this_program(&self, clock: &str) -> Command {
        let program = env::current_exe().expect("this program");
        let mut command = if clock.is_empty() {
            Command::new(program)
        } else {
            let mut command = Command::new("faketime");
            command.args(["-f", clock]).arg(program);
            command
        };
        self.environment(&mut command);
        command.env(FOLDER, &self.folder);
        command
    }

    fn run_test(&self, test: &str, clock: &str) {
        let mut command = self.this_program(clock);
        let outcome = command.args([test, "--exact", "--nocapture"]).output();
        let outcome = outcome.expect("this program");
        let text = [outcome.stdout, outcome.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        assert!(outcome.status.success(), "{text}");
        assert!(text.contains("1 passed"), "{test} was not run: {text}");
    }

    fn configure(&self, options: &RealmOptions<'_>, port: u16) {
        let permitted = match options.permitted {
            "" => String::new(),
            types => format!(
                " permitted_enctypes = {types}\n default_tkt_enctypes = {types}\n \
                 default_tgs_enctypes = {types}\n allow_weak_crypto = true\n allow_rc4 = true\n"
            ),
        };
        let text = format!(
            "[libdefaults]\n default_realm = {REALM}\n dns_lookup_realm = false\n \
             dns_lookup_kdc = false\n dns_canonicalize_hostname = false\n rdns = false\n\
             {permitted}[realms]\n {REALM} = {{\n  kdc = 127.0.0.1:{port}\n }}\n\
             [domain_realm]\n server.test = {REALM}\n"
        );
        fs::write(self.file("krb5.conf"), text).expect("written");
        let folder = self.folder.display();
        let text = format!(
            "[kdcdefaults]\n kdc_listen = 127.0.0.1:{port}\n kdc_tcp_listen = 127.0.0.1:{port}\n\
             [realms]\n {REALM} = {{\n  database_name = {folder}/principal\n  \
             key_stash_file = {folder}/stash\n  acl_file = {folder}/acl\n  \
             max_life = {}\n  supported_enctypes = {}\n }}\n\
             [logging]\n kdc = FILE:{folder}/kdc.log\n",
            options.life, options.keys
        );
        fs::write(self.file("kdc.conf"), text).expect("written");
    }

    /// A file of the realm.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn path(&self, name: &str) -> String {
        self.file(name).display().to_string()
    }

    fn environment(&self, command: &mut Command) {
        command
            .env("KRB5_CONFIG", self.file("krb5.conf"))
            .env("KRB5_KDC_PROFILE", self.file("kdc.conf"))
            .env("KRB5CCNAME", self.cache());
    }

    fn command<A: AsRef<OsStr>>(&self, program: &str, arguments: &[A]) -> Command {
        let mut command = Command::new(program);
        let path = env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{path}:/usr/sbin:/sbin"));
        self.environment(&mut command);
        command.args(arguments).stdin(Stdio::null());
        command
    }

    fn run<A: AsRef<OsStr>>(&self, program: &str, arguments: &[A]) {
        let outcome = self.command(program, arguments).output().expect(program);
        let text = String::from_utf8_lossy(&outcome.stderr);
        assert!(outcome.status.success(), "{program}: {text}");
    }

    /// A query to the database of principals.
    pub fn admin(&self, query: &str) {
        self.run("kadmin.local", &["-r", REALM, "-q", query]);
    }

    /// Writes the keys of a principal to a keytab.
    pub fn take_keys(&self, principal: &str, keytab: &str) {
        let path = self.path(keytab);
        self.admin(&format!("ktadd -norandkey -k {path} {principal}"));
    }

    /// Gets a ticket for a service by the keytab of a client. The options are those of `kinit` and
    /// `kvno`.
    pub fn ticket(&self, client: &str, keytab: &str, service: &str, kinit: &[&str], kvno: &[&str]) {
        let cache = format!("FILE:{}", self.path("cc"));
        let keytab = self.path(keytab);
        let kinit = [kinit, &["-k", "-t", &keytab, "-c", &cache, client]].concat();
        self.run("kinit", &kinit);
        self.run("kvno", &[kvno, &["-c", &cache, service]].concat());
    }

    /// The cache with the tickets of [`Self::ticket`].
    pub fn cache(&self) -> String {
        format!("FILE:{}", self.path("cc"))
    }
}

impl Drop for Realm {
    fn drop(&mut self) {
        if self._owned.is_none() {
            return;
        }
        let pid = fs::read_to_string(self.file("kdc.pid")).unwrap_or_default();
        if !pid.trim().is_empty() {
            drop(Command::new("kill").arg(pid.trim()).status());
        }
    }
}

/// A port that is free for TCP and UDP.
fn free_port() -> u16 {
    loop {
        let tcp = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = tcp.local_addr().expect("bound").port();
        if UdpSocket::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
