//! MOUNT version 3 as the program table has it: decode, serve, encode.

use std::cell::Cell;
use std::net::IpAddr;
use std::rc::Rc;

use millrace_store::Store;
use millrace_wire::mount::{
    ExportEntry, Flavors, MountOk, MountResults, Mounted, Name, PROGRAM, Path, Procedure, Status,
    VERSION,
};
use millrace_wire::xdr::{Encode, Encoder, Result as XdrResult, encode_list};

use super::{MountTable, resolve};
use crate::access::{Security, ServedExports};
use crate::call::{Bulk, Reply};
use crate::rpc::program::{
    ProcedureInfo, Program, ProgramAnswer, ProgramCall, ProgramInfo, Unserved,
};

/// The program table's entry for MOUNT version 3 (RFC 1813 section 5.2).
pub const INFO: ProgramInfo = ProgramInfo {
    number: PROGRAM,
    name: "mount",
    versions: VERSION..=VERSION,
    procedures: &[
        ProcedureInfo::plain("null").free(),
        ProcedureInfo::plain("mnt").free(),
        ProcedureInfo::plain("dump").free(),
        ProcedureInfo::plain("umnt").free(),
        ProcedureInfo::plain("umntall").free(),
        ProcedureInfo::plain("export").free(),
    ],
    counted: true,
};

/// Most bytes of a list of mounts or exports.
const LIST_MAX: usize = 60 << 10;

/// MOUNT version 3 over the exports of one reactor.
pub struct Mount3<S> {
    exports: Rc<ServedExports<S>>,
    clients: MountTable,
    is_off: Cell<bool>,
}

impl<S: Store> Program for Mount3<S> {
    const INFO: &'static ProgramInfo = &INFO;

    fn is_served(&self) -> bool {
        !self.is_off.get()
    }

    async fn serve<B: Bulk>(
        &self,
        call: &mut ProgramCall<'_, B>,
        reply: &mut Reply,
    ) -> Result<ProgramAnswer, Unserved> {
        let client = call.client();
        Ok(match Procedure::from_number(call.number) {
            None => return Err(Unserved::NoProcedure),
            Some(Procedure::Null) => call.answer(reply, &(), true),
            Some(Procedure::Mount) => {
                let results = self.mnt(client, call.arguments()?).await;
                let answer = call.answer(reply, &results, matches!(results, MountResults::Ok(_)));
                ProgramAnswer {
                    turned_away: results == MountResults::Err(Status::AccessDenied),
                    ..answer
                }
            }
            Some(Procedure::Unmount) => {
                let path: Path<'_> = call.arguments()?;
                let path = String::from_utf8_lossy(path.0);
                self.clients.remove(client, Some(&path));
                call.answer(reply, &(), true)
            }
            Some(Procedure::UnmountAll) => {
                self.clients.remove(client, None);
                call.answer(reply, &(), true)
            }
            Some(Procedure::Dump) => self.dump(call, reply).await,
            Some(Procedure::Export) => self.export(call, reply).await,
        })
    }
}

impl<S: Store> Mount3<S> {
    /// Serves these exports. `clients` are those of the whole process.
    #[must_use]
    pub fn new(exports: Rc<ServedExports<S>>, clients: MountTable) -> Self {
        Self {
            exports,
            clients,
            is_off: Cell::new(false),
        }
    }

    /// Serves nothing from now on.
    pub fn end(&self) {
        self.is_off.set(true);
    }

    async fn mnt(&self, client: IpAddr, path: Path<'_>) -> MountResults {
        let Ok(path) = std::str::from_utf8(path.0) else {
            return MountResults::Err(Status::NoEntry);
        };
        match resolve(&self.exports.table(), client, path).await {
            Ok((export, directory)) => {
                self.clients.add(client, path);
                tracing::info!(%client, path, "mounted");
                let handle = self.exports.key.seal(export.id.0, directory);
                let security = export.rules.security.iter();
                let flavors: Flavors = security.map(Security::pseudo_flavor).collect();
                MountResults::Ok(MountOk { handle, flavors })
            }
            Err(status) => {
                tracing::info!(%client, path, %status, "mount refused");
                MountResults::Err(status)
            }
        }
    }

    async fn dump<B: Bulk>(&self, call: &ProgramCall<'_, B>, reply: &mut Reply) -> ProgramAnswer {
        reply.reserve(LIST_MAX).await;
        let mounts = self.clients.list();
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
        call.answer(reply, &Front(&list), true)
    }

    async fn export<B: Bulk>(&self, call: &ProgramCall<'_, B>, reply: &mut Reply) -> ProgramAnswer {
        reply.reserve(LIST_MAX).await;
        let exports = self.exports.table();
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
        call.answer(reply, &Front(&list), true)
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
