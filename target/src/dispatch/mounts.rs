//! The procedures of MOUNT version 3: decode, serve, encode.

use millrace_store::Store;
use millrace_wire::mount::{
    ExportEntry, Flavors, MountOk, MountResults, Mounted, Name, Path, Procedure, Status,
};
use millrace_wire::rpc::{AUTH_NONE, AUTH_SYS, Accepted, answer_to};
use millrace_wire::xdr::{Decoder, Encode, Encoder, Result as XdrResult, encode_list};

use super::{Done, Refused, Service, arguments, encode};
use crate::call::{Answer, Call, Reply};
use crate::exports::Flavor;
use crate::mount3::resolve;

/// Most bytes of a list of mounts or exports.
const LIST_MAX: usize = 60 << 10;

impl<S: Store> Service<S> {
    pub(super) async fn mount_procedure(
        &self,
        call: &Call<'_>,
        xid: u32,
        procedure: Procedure,
        input: &mut Decoder<'_>,
        reply: &mut Reply,
    ) -> Result<Done, Refused> {
        let header = &answer_to(xid, Accepted::Success);
        let clients = &self.inner.clients;
        let client = call.peer.address;
        let mut success = true;
        let answer = match procedure {
            Procedure::Null => encode(reply, header, &()),
            Procedure::Mount => {
                let path: Path<'_> = arguments(input)?;
                let results = self.mnt(call, path).await;
                success = matches!(results, MountResults::Ok(_));
                encode(reply, header, &results)
            }
            Procedure::Unmount => {
                let path: Path<'_> = arguments(input)?;
                clients.remove(client, Some(&String::from_utf8_lossy(path.0)));
                encode(reply, header, &())
            }
            Procedure::UnmountAll => {
                clients.remove(client, None);
                encode(reply, header, &())
            }
            Procedure::Dump => self.dump(header, reply).await,
            Procedure::Export => self.export(header, reply).await,
        };
        Ok(Done::plain(answer, success))
    }

    async fn mnt(&self, call: &Call<'_>, path: Path<'_>) -> MountResults {
        let Ok(path) = std::str::from_utf8(path.0) else {
            return MountResults::Err(Status::NoEntry);
        };
        let client = call.peer.address;
        match resolve(&self.exports(), client, path).await {
            Ok((export, directory)) => {
                self.inner.clients.add(client, path);
                tracing::info!(%client, path, "mounted");
                let handle = self.inner.key.seal(export.id.0, directory);
                let mut flavors = Flavors::new();
                flavors.push(AUTH_SYS);
                if export.rules.flavor == Flavor::None {
                    flavors.push(AUTH_NONE);
                }
                MountResults::Ok(MountOk { handle, flavors })
            }
            Err(status) => {
                if status == Status::AccessDenied {
                    self.inner.counters.not_admitted.add(1);
                }
                tracing::info!(%client, path, %status, "mount refused");
                MountResults::Err(status)
            }
        }
    }

    async fn dump(&self, header: &impl Encode, reply: &mut Reply) -> Answer {
        reply.reserve(LIST_MAX).await;
        let mounts = self.inner.clients.list();
        let hosts: Vec<String> = mounts
            .iter()
            .map(|mount| mount.client.to_string())
            .collect();
        let mut list: Vec<Mounted<'_>> = hosts
            .iter()
            .zip(&mounts)
            .map(|(host, mount)| Mounted {
                host: Name(host.as_bytes()),
                path: Path(mount.path.as_bytes()),
            })
            .collect();
        // A list that does not fit loses its oldest entries.
        list.reverse();
        fitting(reply, header, &list)
    }

    async fn export(&self, header: &impl Encode, reply: &mut Reply) -> Answer {
        reply.reserve(LIST_MAX).await;
        let exports = self.exports();
        let networks: Vec<Vec<String>> = exports
            .iter()
            .map(|export| {
                export
                    .rules
                    .clients
                    .iter()
                    .map(ToString::to_string)
                    .collect()
            })
            .collect();
        let list: Vec<_> = exports
            .iter()
            .zip(&networks)
            .map(|(export, networks)| ExportEntry {
                path: Path(export.rules.path.as_bytes()),
                groups: networks.iter().map(|network| Name(network.as_bytes())),
            })
            .collect();
        fitting(reply, header, &list)
    }
}

/// As much of the front of a linked list as the reply holds.
struct Front<'l, T>(&'l [T]);

impl<T: Encode> Encode for Front<'_, T> {
    fn encode(&self, out: &mut Encoder<'_>) -> XdrResult<()> {
        for item in self.0 {
            let before = out.position();
            let fits = out.bool(true).and_then(|()| item.encode(out));
            if fits.is_err() || out.remaining() < 4 {
                out.rewind(before);
                break;
            }
        }
        encode_list::<()>([], out)
    }
}

fn fitting(reply: &mut Reply, header: &impl Encode, list: &[impl Encode]) -> Answer {
    encode(reply, header, &Front(list))
}
