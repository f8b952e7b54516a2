//! An independent client over TCP, which waits for each answer.

use std::future::Future;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use nfs3_client::{ConnectError, Nfs3Connection, Nfs3ConnectionBuilder};
use nfs3_types::nfs3 as n;
use nfs3_types::rpc::{auth_unix, opaque_auth};
use nfs3_types::xdr_codec::Opaque;

/// A blocking socket for the client crate.
pub struct Blocking(TcpStream);

impl nfs3_client::io::AsyncRead for Blocking {
    async fn async_read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        match self.0.read(bytes)? {
            0 => Err(std::io::ErrorKind::UnexpectedEof.into()),
            length => Ok(length),
        }
    }
}

impl nfs3_client::io::AsyncWrite for Blocking {
    async fn async_write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.write(bytes)
    }
}

struct Connector;

impl nfs3_client::net::Connector for Connector {
    type Connection = Blocking;

    async fn connect(&self, address: SocketAddr) -> std::io::Result<Blocking> {
        TcpStream::connect(address).map(Blocking)
    }

    async fn connect_with_port(&self, address: SocketAddr, _: u16) -> std::io::Result<Blocking> {
        TcpStream::connect(address).map(Blocking)
    }
}

pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
        {
            return value;
        }
    }
}

pub type Connection = Nfs3Connection<Blocking>;

/// Mounts an export as the superuser.
pub async fn mount(server: SocketAddr, path: &str) -> Result<Connection, ConnectError> {
    let user = auth_unix {
        uid: 0,
        gid: 0,
        ..auth_unix::default()
    };
    Nfs3ConnectionBuilder::new(Connector, "127.0.0.1", path)
        .connect_from_privileged_port(false)
        .mount_port(server.port())
        .nfs3_port(server.port())
        .credential(opaque_auth::auth_unix(&user))
        .mount()
        .await
}

pub fn name(text: &str) -> n::filename3<'static> {
    n::filename3(Opaque::owned(text.as_bytes().to_vec()))
}

pub async fn create(client: &mut Connection, directory: &n::nfs_fh3, text: &str) -> n::nfs_fh3 {
    let how = n::createhow3::GUARDED(n::sattr3 {
        mode: n::Nfs3Option::Some(0o644),
        ..n::sattr3::default()
    });
    let where_ = n::diropargs3 {
        dir: directory.clone(),
        name: name(text),
    };
    let created = client
        .create(&n::CREATE3args { where_, how })
        .await
        .unwrap()
        .unwrap();
    created.obj.unwrap()
}

/// Writes without asking for it to be durable. The answer's verifier.
pub async fn write(
    client: &mut Connection,
    file: &n::nfs_fh3,
    offset: u64,
    data: &[u8],
) -> n::writeverf3 {
    let arguments = n::WRITE3args {
        file: file.clone(),
        offset,
        count: data.len() as u32,
        stable: n::stable_how::UNSTABLE,
        data: Opaque::borrowed(data),
    };
    let written = client.write(&arguments).await.unwrap().unwrap();
    assert_eq!(written.count as usize, data.len());
    written.verf
}
