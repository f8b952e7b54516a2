//! HTTPS: authentication, and isolation of clients.

use std::net::{Ipv4Addr, SocketAddr};

use axum::{Extension, Router, routing::get};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, HandshakeKind, StreamOwned, SupportedProtocolVersion, version};
use tokio::sync::watch;

use super::*;
use crate::api::connection::{self, Shared};
use crate::api::gate::Gate;
use crate::api::places::ConnectionPlaces;
use crate::api::starting::Answers;
use crate::api::tls::tests::{Authority, Pair};
use crate::client::{Answer, TlsFailure, TlsFiles};
use crate::config::{ClientAuth, Tls};

/// A server with these files, and one connection for each client.
fn start_tls(files: &Tls, limits: ApiLimits) -> AdminHandle {
    let service = Service::new();
    let config_store =
        ConfigStore::new(Arc::clone(&service) as _, Arc::new(Config::default()), None);
    let state = AdminState::new(service as _, Metrics::new(), Arc::new(config_store));
    let certificates = Certificates::load(files).unwrap();
    let state = state
        .with_limits(limits)
        .with_certificates(Arc::new(certificates));
    serve(TcpListener::bind("127.0.0.1:0").unwrap(), state).unwrap()
}

/// A client that trusts this authority, and presents a certificate or none.
fn client(address: SocketAddr, authority: &Authority, pair: Option<&Pair>) -> Client {
    let identity = pair.map(|pair| {
        (
            authority.write("client.pem", &pair.certificate),
            authority.write("client.key", &pair.key),
        )
    });
    let files = TlsFiles {
        authority: authority.write("ca.pem", &authority.certificate),
        identity,
    };
    let client = Client::new(&format!("https://{address}")).unwrap();
    client.with_tls(files.load().unwrap())
}

fn version_of(client: &Client) -> Result<Answer, ClientError> {
    client.get("/api/v1/version")
}

#[test]
fn https_is_spoken_in_both_versions_with_http_1_alone() {
    let authority = Authority::new();
    let files = authority.files(&authority.issue(|_| {}));
    let handle = start_tls(&files, ApiLimits::default());
    assert_eq!(
        version_of(&client(handle.address(), &authority, None))
            .unwrap()
            .status,
        200
    );
    let speak = |versions: &[&'static SupportedProtocolVersion], protocol: &[u8]| {
        let mut roots = rustls::RootCertStore::empty();
        let root =
            rustls::pki_types::pem::PemObject::from_pem_slice(authority.certificate.as_bytes());
        roots.add(root.unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![protocol.to_vec()];
        let name = ServerName::from(Ipv4Addr::LOCALHOST);
        let session = ClientConnection::new(Arc::new(config), name).unwrap();
        let stream = TcpStream::connect(handle.address()).unwrap();
        let mut stream = StreamOwned::new(session, stream);
        stream
            .write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        assert_eq!(stream.conn.alpn_protocol(), Some(protocol));
        Ok::<_, std::io::Error>(stream.conn.protocol_version().unwrap())
    };
    let seen = speak(&[&version::TLS12], b"http/1.1").unwrap();
    assert_eq!(seen, rustls::ProtocolVersion::TLSv1_2);
    let seen = speak(&[&version::TLS13], b"http/1.1").unwrap();
    assert_eq!(seen, rustls::ProtocolVersion::TLSv1_3);
    assert!(speak(&[&version::TLS13], b"h2").is_err());
}

#[test]
fn plain_http_at_a_port_with_tls_is_told_so() {
    let authority = Authority::new();
    let files = authority.files(&authority.issue(|_| {}));
    let handle = start_tls(&files, ApiLimits::default());
    // Short enough to be read in one piece, so that no reset overtakes the response.
    let mut stream = TcpStream::connect(handle.address()).unwrap();
    stream.write_all(b"G").unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer);
    assert!(
        answer.is_empty() || answer.starts_with("HTTP/1.1 400 ") && answer.contains("https://"),
        "{answer}"
    );
    assert_eq!(
        version_of(&client(handle.address(), &authority, None))
            .unwrap()
            .status,
        200
    );
}

#[test]
fn certificates_of_clients_are_asked_for_as_configured() {
    let authority = Authority::new();
    let stranger = Authority::new().client("stranger");
    let known = authority.client("ops");
    let server = authority.issue(|_| {});
    // As with no client, an optional one, and a required one.
    for (client_auth, without, with_foreign) in [
        (ClientAuth::Optional, true, false),
        (ClientAuth::Required, false, false),
    ] {
        let handle = start_tls(
            &authority.asking(&server, client_auth),
            ApiLimits::default(),
        );
        for (pair, expected) in [
            (None, without),
            (Some(&known), true),
            (Some(&stranger), with_foreign),
        ] {
            let answer = version_of(&client(handle.address(), &authority, pair));
            assert_eq!(
                answer.as_ref().is_ok_and(Answer::is_success),
                expected,
                "{client_auth:?}: {answer:?}"
            );
        }
    }
    let handle = start_tls(&authority.files(&server), ApiLimits::default());
    let answer = version_of(&client(handle.address(), &authority, Some(&stranger)));
    assert_eq!(answer.unwrap().status, 200, "it is not asked");
}

#[test]
fn requests_carry_the_address_and_the_name_of_the_client() {
    let authority = Authority::new();
    let files = authority.asking(&authority.issue(|_| {}), ClientAuth::Optional);
    let who = |address: Extension<PeerAddress>, identity: Extension<PeerIdentity>| async move {
        let name = identity.0.0.as_ref().map(|identity| &identity.name);
        format!("{} {name:?}", address.0.0.ip())
    };
    let limits = ApiLimits::default();
    let service = Service::new();
    let config_store =
        ConfigStore::new(Arc::clone(&service) as _, Arc::new(Config::default()), None);
    let shared = Arc::new(Shared {
        answers: Answers::with_router(
            Router::new().route("/who", get(who)),
            AdminState::new(service as _, Metrics::new(), Arc::new(config_store)),
        ),
        gate: Gate::new(&limits),
        limits,
        certificates: Some(Arc::new(Certificates::load(&files).unwrap())),
    });
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    listener.set_nonblocking(true).unwrap();
    let (_stop, stopped) = watch::channel(false);
    let serving = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.unwrap().block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            let places = ConnectionPlaces::new(1);
            for _ in 0..2 {
                let (stream, peer) = listener.accept().await.unwrap();
                let place = places.take(peer.ip()).unwrap();
                connection::serve(stream, peer, Arc::clone(&shared), stopped.clone(), place).await;
            }
        });
    });
    let named = client(address, &authority, Some(&authority.client("ops")));
    assert_eq!(named.get("/who").unwrap().body, "127.0.0.1 Some(\"ops\")");
    let nameless = client(address, &authority, None);
    assert_eq!(nameless.get("/who").unwrap().body, "127.0.0.1 None");
    serving.join().unwrap();
}

#[test]
fn every_connection_has_its_certificate_verified() {
    let authority = Authority::new();
    let files = authority.asking(&authority.issue(|_| {}), ClientAuth::Required);
    let handle = start_tls(&files, ApiLimits::default());
    let pair = authority.client("ops");
    let identity = (
        authority.write("client.pem", &pair.certificate),
        authority.write("client.key", &pair.key),
    );
    let files = TlsFiles {
        authority: authority.write("ca.pem", &authority.certificate),
        identity: Some(identity),
    };
    let config = files.load().unwrap();
    for _ in 0..2 {
        let name = ServerName::from(Ipv4Addr::LOCALHOST);
        let session = ClientConnection::new(Arc::clone(&config), name).unwrap();
        let stream = TcpStream::connect(handle.address()).unwrap();
        let mut stream = StreamOwned::new(session, stream);
        stream
            .write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
            .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        let kind = stream.conn.handshake_kind();
        assert_eq!(kind, Some(HandshakeKind::Full));
    }
}

#[test]
fn handshakes_take_places_and_are_cut_off() {
    let authority = Authority::new();
    let files = authority.files(&authority.issue(|_| {}));
    let limits = ApiLimits {
        connections: 4,
        ..ApiLimits::default()
    };
    let handle = start_tls(&files, limits.clone());
    let mut silent = [(); 2].map(|()| TcpStream::connect(handle.address()).unwrap());
    // Loopback has two of the four places; the first is evicted for a third.
    let _third = TcpStream::connect(handle.address()).unwrap();
    assert_eq!(silent[0].read(&mut [0]).unwrap(), 0);

    let limits = ApiLimits {
        handshake_time: Duration::from_millis(20),
        ..limits
    };
    // No real handshake here: that may take longer on a busy machine.
    let handle = start_tls(&files, limits);
    for beginning in ["", "\u{16}\u{3}\u{1}"] {
        // Ends only because the server closes the connection.
        raw(&handle, beginning);
    }
}

#[test]
fn garbage_in_place_of_a_handshake_ends_that_connection() {
    let authority = Authority::new();
    let files = authority.files(&authority.issue(|_| {}));
    let handle = start_tls(&files, ApiLimits::default());
    for garbage in [
        "\u{16}\u{3}\u{1}\u{7f}\u{7f}",
        "\0\0\0\0\0\0\0\0",
        "\u{80}\u{80}",
    ] {
        raw(&handle, &garbage.repeat(1000));
    }
    assert_eq!(
        version_of(&client(handle.address(), &authority, None))
            .unwrap()
            .status,
        200
    );
}

#[test]
fn clients_see_a_new_certificate_once_it_is_there() {
    let old = Authority::new();
    let new = Authority::new();
    let files = old.files(&old.issue(|_| {}));
    let handle = start_tls(&files, ApiLimits::default());
    let of_new = client(handle.address(), &new, None);
    let refused = version_of(&of_new);
    assert!(
        matches!(
            refused,
            Err(ClientError::Tls {
                failure: TlsFailure::UnknownAuthority,
                ..
            })
        ),
        "{refused:?}"
    );
    let pair = new.issue(|_| {});
    old.write("server.key", &pair.key);
    old.write("server.pem", &pair.certificate);
    // Checked once a second.
    while version_of(&of_new).is_err() {}
    assert!(version_of(&client(handle.address(), &old, None)).is_err());
}
