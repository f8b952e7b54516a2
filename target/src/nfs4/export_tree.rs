//! One name space over all exports: the folders on their paths (RFC 8881 section 7).
//!
//! A folder that is no export itself is a pseudo folder. It is read-only, and its handle contains a
//! hash of its path. The set of pseudo folders that a client sees depends on its address.

use std::net::IpAddr;

use millrace_store::{Handle, Time};

use crate::exports::{ExportId, Exports};

/// The folder at the top.
pub(super) const ROOT: FolderIndex = FolderIndex(0);

/// A folder of the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FolderIndex(usize);

/// The folders above exports, and the exports among them.
#[derive(Debug)]
pub(super) struct ExportTree {
    folders: Vec<TreeFolder>,
    made: Time,
}

#[derive(Debug)]
struct TreeFolder {
    name: Box<[u8]>,
    parent: FolderIndex,
    /// A hash of its path: its file number, and its identifier in handles.
    id: u64,
    export: Option<ExportId>,
    children: Vec<FolderIndex>,
}

/// The export in handles of pseudo folders: that of the empty path.
pub(super) fn pseudo_export() -> ExportId {
    ExportId::of("")
}

impl ExportTree {
    /// The tree of a table of exports.
    pub fn new<S>(exports: &Exports<S>) -> Self {
        let mut tree = Self {
            folders: Vec::new(),
            made: exports.made(),
        };
        tree.add(ROOT, b"", "/");
        for export in exports.iter() {
            let path = export.rules.path.as_str();
            let mut folder = ROOT;
            let mut end = 0;
            for name in path.split('/').filter(|name| !name.is_empty()) {
                end += 1 + name.len();
                let name = name.as_bytes();
                folder = match tree.child(folder, name) {
                    Some(child) => child,
                    None => tree.add(folder, name, &path[..end]),
                };
            }
            tree.folders[folder.0].export = Some(export.id);
        }
        for at in 0..tree.folders.len() {
            let mut children = std::mem::take(&mut tree.folders[at].children);
            children.sort_by(|one, other| tree.name(*one).cmp(tree.name(*other)));
            tree.folders[at].children = children;
        }
        tree
    }

    fn add(&mut self, parent: FolderIndex, name: &[u8], path: &str) -> FolderIndex {
        let index = FolderIndex(self.folders.len());
        self.folders.push(TreeFolder {
            name: name.into(),
            parent,
            id: ExportId::of(path).0,
            export: None,
            children: Vec::new(),
        });
        if index != ROOT {
            self.folders[parent.0].children.push(index);
        }
        index
    }

    /// When the tree was built: the change attribute of its folders.
    pub fn made(&self) -> Time {
        self.made
    }

    /// The folder that a handle names.
    pub fn find(&self, object: &Handle) -> Option<FolderIndex> {
        let id = u64::from_be_bytes(*object.as_bytes().first_chunk()?);
        let found = self.folders.iter().position(|folder| folder.id == id);
        found
            .filter(|_| object.as_bytes().len() == 8)
            .map(FolderIndex)
    }

    /// The object part of a folder's handles.
    pub fn handle(&self, folder: FolderIndex) -> Handle {
        let id = self.id(folder).to_be_bytes();
        Handle::new(&id).expect("eight bytes are not too many")
    }

    /// The number of a folder.
    pub fn id(&self, folder: FolderIndex) -> u64 {
        self.folders[folder.0].id
    }

    /// The name of a folder in its parent.
    pub fn name(&self, folder: FolderIndex) -> &[u8] {
        &self.folders[folder.0].name
    }

    /// The folder above; that at the top is above itself.
    pub fn parent(&self, folder: FolderIndex) -> FolderIndex {
        self.folders[folder.0].parent
    }

    /// The export that begins at a folder.
    pub fn export(&self, folder: FolderIndex) -> Option<ExportId> {
        self.folders[folder.0].export
    }

    /// The folders in a folder, by name.
    pub fn children(&self, folder: FolderIndex) -> &[FolderIndex] {
        &self.folders[folder.0].children
    }

    /// The folder with a name in another one.
    pub fn child(&self, folder: FolderIndex, name: &[u8]) -> Option<FolderIndex> {
        let children = self.children(folder).iter().copied();
        children.into_iter().find(|child| self.name(*child) == name)
    }

    /// The folder at which an export begins.
    pub fn of_export(&self, export: ExportId) -> Option<FolderIndex> {
        let found = self
            .folders
            .iter()
            .position(|folder| folder.export == Some(export));
        found.map(FolderIndex)
    }

    /// The export around a folder, not counting one that begins at the folder itself, and the
    /// folder at which that export begins.
    pub fn outer(&self, mut folder: FolderIndex) -> Option<(ExportId, FolderIndex)> {
        while folder != ROOT {
            folder = self.parent(folder);
            if let Some(export) = self.export(folder) {
                return Some((export, folder));
            }
        }
        None
    }

    /// The names on the way from one folder to another below it.
    pub fn path(&self, from: FolderIndex, to: FolderIndex) -> Vec<&[u8]> {
        let mut names = Vec::new();
        let mut folder = to;
        while folder != from && folder != ROOT {
            names.push(self.name(folder));
            folder = self.parent(folder);
        }
        names.reverse();
        names
    }

    /// The folders below one, with all below them.
    pub fn below(&self, folder: FolderIndex) -> Vec<FolderIndex> {
        let mut found = self.children(folder).to_vec();
        let mut at = 0;
        while let Some(&next) = found.get(at) {
            found.extend_from_slice(self.children(next));
            at += 1;
        }
        found
    }

    /// Whether a client may use an export at a folder or below.
    pub fn is_visible<S>(&self, folder: FolderIndex, exports: &Exports<S>, client: IpAddr) -> bool {
        let admitted = |export| {
            let export = exports.by_id(export);
            export.is_some_and(|export| export.rules.admits(client))
        };
        self.export(folder).is_some_and(admitted)
            || self
                .children(folder)
                .iter()
                .any(|child| self.is_visible(*child, exports, client))
    }
}
