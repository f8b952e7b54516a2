//! FSSTAT, FSINFO and PATHCONF (RFC 1813 sections 3.3.18 to 3.3.20).

use millrace_store::Store;
use millrace_wire::nfs3::{
    FsinfoOk, FsinfoResults, FsstatOk, FsstatResults, PathconfOk, PathconfResults, Time, properties,
};

use super::context::{Context, bare};
use super::directory::LISTING_PREFERRED;
use crate::file_data::largest_transfer;
use crate::store_times::StoreClass;

/// Page size: offsets and counts that are multiples of it are served best.
const MULTIPLE: u32 = 4096;

pub(super) async fn fsstat<S: Store>(context: &Context<'_, S>) -> FsstatResults {
    let object = context.subject().map_err(bare)?;
    match object
        .store(StoreClass::Metadata)
        .statistics(object.handle)
        .await
    {
        Ok(now) => Ok(FsstatOk {
            attributes: Some(object.attributes(&now.attributes)),
            total_bytes: now.total_bytes,
            free_bytes: now.free_bytes,
            available_bytes: now.available_bytes,
            total_files: now.total_inodes,
            free_files: now.free_inodes,
            available_files: now.available_inodes,
            invariant_seconds: 0,
        }),
        Err(error) => object.failure(error).await,
    }
}

pub(super) async fn fsinfo<S: Store>(context: &Context<'_, S>) -> FsinfoResults {
    let object = context.subject().map_err(bare)?;
    match object
        .store(StoreClass::Metadata)
        .attributes(object.handle)
        .await
    {
        Ok(attributes) => {
            // A call with less security than the export takes asks for others with more.
            let own = context.access.identity.security;
            let listed = &object.export.rules.security;
            let used = match listed.contains(own) {
                true => own,
                false => listed.iter().next().unwrap_or_default(),
            };
            let most = largest_transfer(used);
            Ok(FsinfoOk {
                attributes: Some(object.attributes(&attributes)),
                read_max: most,
                read_preferred: most,
                read_multiple: MULTIPLE,
                write_max: most,
                write_preferred: most,
                write_multiple: MULTIPLE,
                readdir_preferred: LISTING_PREFERRED,
                max_file_size: object.export.store.properties().size_max,
                time_delta: Time {
                    seconds: 0,
                    nanoseconds: 1,
                },
                properties: properties::LINK
                    | properties::SYMLINK
                    | properties::HOMOGENEOUS
                    | properties::CAN_SET_TIME,
            })
        }
        Err(error) => object.failure(error).await,
    }
}

pub(super) async fn pathconf<S: Store>(context: &Context<'_, S>) -> PathconfResults {
    let object = context.subject().map_err(bare)?;
    match object
        .store(StoreClass::Metadata)
        .attributes(object.handle)
        .await
    {
        Ok(attributes) => {
            let limits = object.export.store.properties();
            Ok(PathconfOk {
                attributes: Some(object.attributes(&attributes)),
                link_max: limits.links_max,
                name_max: limits.name_max,
                no_truncation: true,
                chown_restricted: true,
                case_insensitive: false,
                case_preserving: true,
            })
        }
        Err(error) => object.failure(error).await,
    }
}
