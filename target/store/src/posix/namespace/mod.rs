//! Making, removing and renaming.
//!
//! Each operation is one job on a helper. Under the locks of its directories ([`changes`]) it
//! queries them, makes the change with the caller's rights, and queries them again; then it syncs
//! the change if the volume is strict ([`durable`]), and answers. The kernel checks permissions.

pub(super) mod changes;
mod create;
mod durable;
mod job_context;
mod moving;
mod remove;
pub(super) mod unlinked;

use super::open_files::Opened;
use super::view::ClientView;
use crate::name_check as check;
use crate::{
    Attributes, Caller, Consistency, CreateHow, Handle, Kind, Linked, Modified, Renamed, Result,
    SetAttributes, SpecialKind, StoreError,
};

pub(super) use self::job_context::{Changed, JobContext, OpenObject};

impl ClientView<'_> {
    pub(super) async fn create(
        &self,
        caller: &Caller,
        directory: Handle,
        name: &[u8],
        how: &CreateHow,
    ) -> Modified<(Handle, Attributes)> {
        let (name, how) = (check::new(name), *how);
        let done = self
            .in_directory(caller, directory, move |context, place, parent| {
                create::file(context, place, parent, name, &how)
            })
            .await;
        self.keep(done)
    }

    pub(super) async fn make_directory(
        &self,
        caller: &Caller,
        directory: Handle,
        name: &[u8],
        set: &SetAttributes,
    ) -> Modified<(Handle, Attributes)> {
        let (name, set) = (check::new(name), *set);
        let done = self
            .in_directory(caller, directory, move |context, place, parent| {
                create::directory(context, place, parent, name, &set)
            })
            .await;
        self.keep(done)
    }

    pub(super) async fn symlink(
        &self,
        caller: &Caller,
        directory: Handle,
        name: &[u8],
        text: &[u8],
        set: &SetAttributes,
    ) -> Modified<(Handle, Attributes)> {
        let (name, text, set) = (check::new(name), check::link_text(text), *set);
        let done = self
            .in_directory(caller, directory, move |context, place, parent| {
                create::symlink(context, place, parent, name, text, &set)
            })
            .await;
        self.keep(done)
    }

    pub(super) async fn make_node(
        &self,
        caller: &Caller,
        directory: Handle,
        name: &[u8],
        kind: SpecialKind,
        set: &SetAttributes,
    ) -> Modified<(Handle, Attributes)> {
        let (name, set) = (check::new(name), *set);
        let done = self
            .in_directory(caller, directory, move |context, place, parent| {
                create::node(context, place, parent, name, kind, &set)
            })
            .await;
        self.keep(done)
    }

    pub(super) async fn remove(
        &self,
        caller: &Caller,
        directory: Handle,
        name: &[u8],
    ) -> Modified<()> {
        let name = check::removable(name);
        let done = self
            .in_directory(caller, directory, move |context, place, _| {
                remove::name(context, place, name)
            })
            .await;
        done.map(|last| self.let_go(last))
    }

    pub(super) async fn remove_directory(
        &self,
        caller: &Caller,
        directory: Handle,
        name: &[u8],
    ) -> Modified<()> {
        let name = check::removable_directory(name);
        let done = self
            .in_directory(caller, directory, move |context, place, _| {
                remove::directory(context, place, name)
            })
            .await;
        done.map(|last| self.let_go(last))
    }

    pub(super) async fn rename(
        &self,
        caller: &Caller,
        from: (Handle, &[u8]),
        to: (Handle, &[u8]),
    ) -> Renamed {
        let names = [check::movable(from.1), check::movable(to.1)];
        let begin = async {
            let (context, one) = self.job_context(caller, from.0).await?;
            let other = if from.0 == to.0 {
                one.clone()
            } else {
                OpenObject::of(&*self.objects.get(self.client, to.0).await?)
            };
            self.volume
                .helpers()
                .run(self.client, move || {
                    moving::rename(&context, [&one, &other], names)
                })
                .await
        };
        match begin.await {
            Ok((renamed, last)) => {
                self.let_go(last);
                renamed
            }
            Err(error) => moving::not_renamed(error),
        }
    }

    pub(super) async fn link(
        &self,
        caller: &Caller,
        object: Handle,
        directory: Handle,
        name: &[u8],
    ) -> Linked {
        let name = check::new(name);
        let begin = async {
            let object = OpenObject::of(&*self.objects.get(self.client, object).await?);
            let (context, directory) = self.job_context(caller, directory).await?;
            self.volume
                .helpers()
                .run(self.client, move || {
                    moving::link(&context, &object, &directory, name)
                })
                .await
        };
        begin.await.unwrap_or_else(|error| Linked {
            object: None,
            directory: Consistency::default(),
            result: Err(error),
        })
    }

    /// Keeps a new object open, since the client will usually use it next.
    fn keep(&self, done: Modified<Opened>) -> Modified<(Handle, Attributes)> {
        done.map(|opened| {
            let shown = (opened.handle, opened.attributes);
            self.objects.insert(opened);
            shown
        })
    }

    /// Closes an object whose last name was removed, to free its space. Other reactors are notified
    /// ([`unlinked`]).
    fn let_go(&self, last: Option<Handle>) {
        if let Some(handle) = last {
            self.objects.close(&handle);
        }
    }

    /// Runs a change of a directory on a helper.
    async fn in_directory<T: Send + 'static>(
        &self,
        caller: &Caller,
        directory: Handle,
        work: impl FnOnce(&JobContext, &OpenObject, &Attributes) -> Result<Changed<T>> + Send + 'static,
    ) -> Modified<T> {
        let begin = async {
            let (context, place) = self.job_context(caller, directory).await?;
            let job = move || match place.kind {
                Kind::Directory => context.change(&place, |before| {
                    context.require_inside(&place)?;
                    work(&context, &place, before)
                }),
                _ => Modified::failed(StoreError::NotDirectory),
            };
            self.volume.helpers().run(self.client, job).await
        };
        begin.await.unwrap_or_else(Modified::failed)
    }

    /// The context of a job that changes an object as a caller.
    pub(super) async fn job_context(
        &self,
        caller: &Caller,
        object: Handle,
    ) -> Result<(JobContext, OpenObject)> {
        let identity = self.identity(caller).await?;
        let place = OpenObject::of(&*self.objects.get(self.client, object).await?);
        let volume = self.volume.clone();
        Ok((JobContext { volume, identity }, place))
    }
}
